"""A process that runs beside this one, is started again when it dies, and ends with this one."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

logger = logging.getLogger("penstock.companion")

#: From the death of a process to the next, longer each time, until one has run for a while.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_STEADY_SECONDS = 30.0
#: How long one may take to end before it is killed.
_END_SECONDS = 10.0


@contextmanager
def kept_running(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Keep a command running. It is given ``--parent FD``: what it reads there to the end when this process is gone.

    One that ends by itself without an error was told to by somebody, and is left alone.
    """
    theirs, ours = os.pipe()
    companion = _Companion(command, environ, theirs)
    try:
        companion.start()
        yield
    finally:
        companion.ending.set()
        os.close(ours)
        companion.end()
        os.close(theirs)


class _Companion:
    def __init__(self, command: Sequence[str], environ: Mapping[str, str], parent: int) -> None:
        self._command = [*command, "--parent", str(parent)]
        self._environ = dict(environ)
        self._parent = parent
        self._thread = threading.Thread(target=self._watch, name="companion", daemon=True)
        self.ending = threading.Event()

    def start(self) -> None:
        self._process = self._begin()
        self._thread.start()

    def end(self) -> None:
        """Wait until it has ended, and no longer than it may take."""
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own command
            self._command,
            env=self._environ,
            pass_fds=[self._parent],
            stdin=subprocess.DEVNULL,
            # Ctrl-C is this process's to read.
            start_new_session=True,
        )

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = self._process.wait()
            if self.ending.is_set() or code == 0:
                return
            if time.monotonic() - began >= _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            facts = {"pid": self._process.pid, "exit_code": code, "pause_seconds": pause}
            logger.error("%s died and is started again", self._command[3], extra=facts)
            if self.ending.wait(pause):
                return
            pause = min(pause * 2, _LONGEST_PAUSE)
            self._process = self._begin()
