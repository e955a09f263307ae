"""A supervised process of the system, which can be killed and paused."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
#: The delay before a process that ended by itself is restarted.
_RESTART_SECONDS = 1.0
#: Exit codes after SIGTERM: 0, or the code of the signal.
_CLEAN = (0, 128 + signal.SIGTERM)


class Process:
    """A program and its children in their own session, with their output in ``log``."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        #: The number of starts, and the exit codes of unexpected ends.
        self.starts = 0
        self.ended: list[int] = []
        self._command = list(command)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        #: None if it should not run.
        self._start_at: float | None = None
        self._was_killed = False

    def start(self) -> None:
        """Start it and keep it running."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | self._environment,
            )
        self.starts += 1
        self._start_at = 0.0
        self._was_killed = False

    @property
    def pid(self) -> int:
        """The pid of its first process."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Return whether its first process exists, running or paused."""
        return self._process is not None and self._process.poll() is None

    def mind(self) -> None:
        """Restart it if it has ended and its restart is due."""
        if self._start_at is None or self.runs:
            return
        if not self._start_at:
            self._note_end()
            self._start_at = time.monotonic() + _RESTART_SECONDS
        if time.monotonic() >= self._start_at:
            self.start()

    def family(self) -> list[psutil.Process]:
        """Return its processes, including orphans in its session."""
        if self._process is None:
            return []
        found = {}
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self._process.pid)
            found = {process.pid: process for process in (first, *first.children(recursive=True))}
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self._process.pid:
                    found.setdefault(process.pid, process)
        return list(found.values())

    def kill(self, after_seconds: float = _RESTART_SECONDS) -> None:
        """Kill all its processes; it is restarted after a delay."""
        family, first = self.family(), self._process
        self._was_killed = True
        self._start_at = None
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)
        if first is not None:
            first.wait(10)
        self._start_at = time.monotonic() + after_seconds

    def stop(self, seconds: float) -> bool:
        """Send SIGTERM; return whether it ended in time with 0 or the code of the signal."""
        self._start_at = None
        if self._process is None or self._process.poll() is not None:
            return self._process is None or self._was_killed
        family = self.family()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        in_time = self._process.poll() in _CLEAN
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(family, timeout=10)
        return in_time

    def last_words(self, lines: int = 15) -> str:
        """Return the end of its output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _note_end(self) -> None:
        if self._process is not None and self._process.returncode is not None and not self._was_killed:
            self.ended.append(self._process.returncode)
