"""Stops the server after its last user was killed. A process of its own, which starts and ends with the server.

It is run as a script with the standard library only, so that it starts fast and stays small.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_POLL_SECONDS = 1.0
_STOP_SECONDS = 120.0


def watch(directory: Path, pid_file: Path, pid: str) -> None:
    """Wait until the server has no user, and stop it. Returns early if the server has ended."""
    while True:
        time.sleep(_POLL_SECONDS)
        with (directory / "control.lock").open() as control, (directory / "users.lock").open() as users:
            # A process holds control.lock when it begins or ends to use the server, so it does not meet the lock here.
            if not _try_lock(control):
                continue
            if _read_pid(pid_file) != pid:
                return
            if _try_lock(users):
                os.kill(int(pid), signal.SIGINT)  # a fast shutdown
                deadline = time.monotonic() + _STOP_SECONDS
                while _read_pid(pid_file) == pid and time.monotonic() < deadline:
                    time.sleep(0.05)
                return


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(pid_file: Path) -> str:
    return pid_file.read_text(errors="replace").partition("\n")[0]


if __name__ == "__main__":
    directory, pid_file, pid = sys.argv[1:]
    with suppress(OSError):  # the server has ended and removed its pid file, or the directory was deleted
        watch(Path(directory), Path(pid_file), pid)
