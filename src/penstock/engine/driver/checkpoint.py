"""The directory that Structured Streaming insists on for its bookkeeping: new at each start, and gone at the end.

Whoever is killed leaves its directory behind. Each holds a file that its owner has locked for as long as it lives, so
the next start can tell what nobody owns any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "penstock-checkpoint-"
_LOCK = "owner.lock"
#: A directory without the file is one that is being made, or was made by somebody who did not come that far.
_MAKING_SECONDS = 600.0


class Checkpoint:
    """A directory of this process alone; in memory, unless other machines have to see it."""

    def __init__(self, *, in_memory: bool) -> None:
        room = _room(in_memory)
        _sweep(room)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=room))
        # Locked before it has its name: a sweeper that found it free would take the directory away.
        making = self.path / f"{_LOCK}.new"
        self._lock = os.open(making, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        making.rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _room(in_memory: bool) -> Path:
    memory = Path("/dev/shm")  # noqa: S108 - what lies there is only Spark's own bookkeeping, and is made for us alone
    if in_memory and memory.is_dir() and os.access(memory, os.W_OK):
        return memory
    return Path(tempfile.gettempdir())


def _sweep(room: Path) -> None:
    """Remove what was left by those who were killed."""
    for path in room.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.stat().st_uid == os.getuid() and _is_left(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_left(path: Path) -> bool:
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - path.stat().st_mtime > _MAKING_SECONDS
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
