"""Locks between processes: a file that is locked (flock) for as long as somebody has it open.

The kernel takes the locks of a dead process away. A lock belongs to the open file, which a forked child would
share with its parent, so the child closes all of them first.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.db.embedded.secure_files import cannot_use
from penstock.db.embedded.subprocess import no_fork

_open: set[LockFile] = set()


class LockFile:
    """An open file to lock, made if it is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with no_fork:
                self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                _open.add(self)
        except OSError as error:
            raise cannot_use(error, path) from None

    def wait(self, *, shared: bool = False) -> None:
        """Lock it, alone or along with others who share it, when those who are in the way have let go."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):  # a file system that knows no locks
                raise cannot_use(error, self.path) from None
            raise

    def try_alone(self) -> bool:
        """Lock it alone, at once or not at all; a share in it is lost either way."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_current(self) -> bool:
        """Whether others who open the path get this file, and not one made after it was deleted."""
        try:
            return os.path.samestat(os.fstat(self.fd), self.path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Unlock and close it."""
        # Said aloud, because a command that another thread is just starting still has the file open.
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close it; the lock lasts for as long as a process to which it was handed on lives."""
        with no_fork:
            _open.discard(self)
            os.close(self.fd)


def _close_all_in_child() -> None:
    for lock in _open:
        os.close(lock.fd)
    _open.clear()


os.register_at_fork(after_in_child=_close_all_in_child)
