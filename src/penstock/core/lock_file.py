"""Locks between processes, on files (``flock``).

The kernel releases the locks of a process that dies. A lock belongs to the open file, which a forked child shares with
its parent, so forked children close all lock files.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

# Delays every fork() of this process. Code holds it while it opens a file and registers it for closing in forked
# children. A child that is forked in between would inherit a descriptor that nothing closes: it would keep a file lock,
# or keep a pipe's end of file from arriving. Reentrant, because a signal handler may fork.
no_fork = threading.RLock()

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)

_open_files: set[LockFile] = set()


class LockFile:
    """A file that processes lock. Opening creates it; links are not followed.

    Every method that touches the file raises ``OSError``, with the path as ``filename``.
    """

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        self.path = path
        with no_fork:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
            _open_files.add(self)

    def acquire(self, *, shared: bool = False) -> None:
        """Wait for the lock, exclusive or shared. Closes the file if that fails."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):  # the file system has no locks
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            raise

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free, and return whether it was. A shared lock held before is lost either way."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        return True

    def is_current(self) -> bool:
        """Return whether the path still names this file, and not one created after a deletion."""
        try:
            return os.path.samestat(os.fstat(self.fd), self.path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Unlock and close the file."""
        # Closing alone does not unlock: a command that another thread starts at this moment has the file open too.
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close the file. A process that inherited the descriptor keeps the lock until it ends."""
        with no_fork:
            _open_files.discard(self)
            os.close(self.fd)


def _close_all_in_child() -> None:
    for lock in _open_files:
        os.close(lock.fd)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_all_in_child)
