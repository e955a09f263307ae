"""Files and directories that nobody else can have put there, and the error for those that cannot be used."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from penstock.core.errors import ConfigurationError


def private_directory(path: Path, uid: int, gid: int = -1) -> None:
    """Make ``path`` a directory that belongs to ``uid`` alone, or refuse."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # Through the open directory, so that nobody can put another one in its place between look and change.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid not in {uid, os.geteuid()}:
            raise ConfigurationError(
                f"{path} belongs to another user, who could take the place of the database there: remove it, "
                "or set PENSTOCK_DATA_DIR to another directory"
            )
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        if os.fstat(fd).st_uid != uid:
            os.fchown(fd, uid, gid)
    finally:
        os.close(fd)


def is_private(path: Path, uid: int) -> bool:
    """Whether ``path`` is a directory, not a link to one, that only ``uid`` (and root) can put files into."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def check_not_shared(directory: Path) -> None:
    """Refuse a directory into which others can put a database, or settings for ours."""
    found = directory.stat()
    if found.st_mode & stat.S_IWOTH:
        raise ConfigurationError(
            f"everybody may write to {directory}, so anybody could put a database or its settings there: set "
            f"PENSTOCK_DATA_DIR to a directory of its own, say {directory / 'penstock'}"
        )
    # Root may look after the database of another user: it runs as that user.
    if os.geteuid() != 0 and found.st_uid not in {0, os.geteuid()}:
        raise ConfigurationError(
            f"{directory} belongs to another user, who could change the database there: set PENSTOCK_DATA_DIR to "
            "a directory of your own"
        )


def new_file(path: Path, mode: int) -> TextIO:
    """Make ``path`` anew, never writing through a link that somebody put in its place."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(fd, mode)  # whatever the umask
    return open(fd, "w", encoding="utf-8", errors="surrogateescape")


def cannot_use(error: OSError, path: Path) -> ConfigurationError:
    """Say in our words what the system said; ``path`` is what we were at if it does not name a file."""
    return ConfigurationError(
        f"the embedded PostgreSQL cannot use {error.filename or path}: {error.strerror}. Set PENSTOCK_DATA_DIR to a "
        "directory that this user may write to, or PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
    )
