"""The child processes of the demo: ``penstock`` commands, each with a log file, that end with the demo."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import PenstockError

_READY = re.compile(r"^(?:Listening|Console) on (http\S+)", re.MULTILINE)
_START_SECONDS = 180.0
#: A process that takes longer than this to end is killed.
_STOP_SECONDS = 20.0
_SHOWN_LINES = 12
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class ProcessFailed(PenstockError):
    """A process of the demo has ended or not started. The message has the end of its log."""


class Process:
    """A running ``penstock`` command. Ctrl-C does not reach it, because it has its own session."""

    def __init__(self, name: str, log: Path, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str, directory: Path, environ: Mapping[str, str]) -> Process:
        """Start ``penstock NAME ARGUMENTS`` with a log file in the directory."""
        log = directory / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "penstock", name, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environ,
                start_new_session=True,
                preexec_fn=None if _libc is None else _end_with_parent,
            )
        return cls(name, log, process)

    async def url(self) -> str:
        """Wait until the process listens, and return its URL."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            match = _READY.search(self._log.read_text(errors="replace"))
            if match is not None:
                return match[1]
            await asyncio.sleep(0.1)
        raise ProcessFailed(f"`penstock {self._name}` does not listen after {_START_SECONDS:g} s")

    def check(self) -> None:
        """Raise ProcessFailed if the process has ended."""
        if self._process.returncode is not None:
            lines = "\n".join(self._log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])
            raise ProcessFailed(f"`penstock {self._name}` has ended with {self._process.returncode}:\n{lines}")

    async def stop(self) -> None:
        """Terminate the process, and kill it and its children if it takes too long."""
        if self._process.returncode is None:
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


def _end_with_parent() -> None:
    """Make the kernel terminate this child when the demo is killed and cannot do it."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
