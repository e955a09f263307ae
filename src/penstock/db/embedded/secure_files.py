"""Files and directories that no other user can replace, and the error for unusable paths."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from penstock.core.errors import ConfigurationError


def make_private_directory(path: Path, uid: int, gid: int = -1) -> None:
    """Make ``path`` a directory that only ``uid`` can use. Raises ConfigurationError if it has another owner."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # Works on the open directory, so that nobody can replace it between the check and the change.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid not in {uid, os.geteuid()}:
            raise ConfigurationError(
                f"{path} belongs to another user, who could replace the database there: remove it, or set "
                "PENSTOCK_DATA_DIR to another directory"
            )
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        if os.fstat(fd).st_uid != uid:
            os.fchown(fd, uid, gid)
    finally:
        os.close(fd)


def is_private(path: Path, uid: int) -> bool:
    """Return whether ``path`` is a directory, not a link, in which only ``uid`` and root can create files."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == uid and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def check_not_shared(directory: Path) -> None:
    """Raise ConfigurationError if other users can put a database or settings into the directory."""
    info = directory.stat()
    if info.st_mode & stat.S_IWOTH:
        raise ConfigurationError(
            f"all users may write to {directory}, so any of them could put a database or settings there: set "
            f"PENSTOCK_DATA_DIR to a directory of its own, such as {directory / 'penstock'}"
        )
    # Root may run the database of another user, as that user.
    if os.geteuid() != 0 and info.st_uid not in {0, os.geteuid()}:
        raise ConfigurationError(
            f"{directory} belongs to another user, who could change the database there: set PENSTOCK_DATA_DIR to a "
            "directory of your own"
        )


def create_file(path: Path, mode: int) -> TextIO:
    """Replace ``path`` by a new file. Never writes through a link that another user created."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(fd, mode)  # overrides the umask
    return open(fd, "w", encoding="utf-8", errors="surrogateescape")


def unusable_path(error: OSError, path: Path) -> ConfigurationError:
    """Return the error to raise for ``error``. ``path`` is used if the error names no file."""
    return ConfigurationError(
        f"the embedded PostgreSQL cannot use {error.filename or path}: {error.strerror}. Set PENSTOCK_DATA_DIR to a "
        "directory that this user can write to, or PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
    )
