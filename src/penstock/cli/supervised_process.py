"""A child process that is restarted when it fails and ends with this process."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.core.backoff import Backoff

logger = logging.getLogger("penstock.companion")

_RESTART_BACKOFF = Backoff(first=0.5, longest=60.0)
#: A process that ran for this long resets the backoff.
_STABLE_SECONDS = 30.0
#: A process that takes longer than this to end is killed.
_STOP_SECONDS = 10.0


@contextmanager
def supervise(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Run a command as a child process and restart it if it exits with an error.

    The command gets ``--parent FD``, the read end of a pipe. It reads EOF there when this process ends, even if this
    process was killed. A child that exits with 0 was stopped on purpose and is not restarted.
    """
    read_end, write_end = os.pipe()
    process = SupervisedProcess(command, environ, read_end)
    try:
        process.start()
        yield
    finally:
        process.stopping.set()
        os.close(write_end)
        process.wait()
        os.close(read_end)


class SupervisedProcess:
    def __init__(self, command: Sequence[str], environ: Mapping[str, str], parent: int) -> None:
        self._command = [*command, "--parent", str(parent)]
        self._environ = dict(environ)
        self._parent = parent
        self._thread = threading.Thread(target=self._restart_on_failure, name="companion", daemon=True)
        self.stopping = threading.Event()

    def start(self) -> None:
        self._process = self._spawn()
        self._thread.start()

    def wait(self) -> None:
        """Wait until the process has ended; kill it if it takes too long."""
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own command
            self._command,
            env=self._environ,
            pass_fds=[self._parent],
            stdin=subprocess.DEVNULL,
            # Ctrl-C in the terminal reaches this process only.
            start_new_session=True,
        )

    def _restart_on_failure(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            code = self._process.wait()
            if self.stopping.is_set() or code == 0:
                return
            failures = 1 if time.monotonic() - started >= _STABLE_SECONDS else failures + 1
            pause = _RESTART_BACKOFF.pause(failures)
            logger.error(
                "%s exited with an error and is restarted",
                self._command[3],
                extra={"pid": self._process.pid, "exit_code": code, "pause_seconds": round(pause, 3)},
            )
            if self.stopping.wait(pause):
                return
            self._process = self._spawn()
