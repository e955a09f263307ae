"""The processes of the demonstration: those that production has, each with a log, and none of which outlives it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_READY = re.compile(r"^(?:Listening|Console) on (http\S+)", re.MULTILINE)
_LOOK_SECONDS = 0.1
#: How long a process may take to end before it is ended.
_STOP_SECONDS = 20.0
#: What is shown of the log of one that failed.
_LAST_LINES = 12
_PR_SET_PDEATHSIG = 1


class ProcessFailed(Exception):
    """A process ended that was to run; the message has the end of its log."""


class Process:
    """A ``penstock`` command that runs beside this one, in a session of its own, so that Ctrl-C is ours alone."""

    def __init__(self, name: str, log: Path, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self._log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, arguments: Sequence[str], directory: Path, environ: Mapping[str, str]) -> Process:
        """Start ``penstock NAME ARGUMENTS``; what it says goes into a file of the directory."""
        log = directory / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock",
                name,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environ),
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        return cls(name, log, process)

    async def ready(self, seconds: float) -> str:
        """Wait until it listens; where."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            found = _READY.search(self._text())
            if found is not None:
                return found[1]
            await asyncio.sleep(_LOOK_SECONDS)
        raise ProcessFailed(f"`penstock {self.name}` has not said within {seconds:g} s where it listens")

    def check(self) -> None:
        """Raise if it has ended."""
        if self._process.returncode is not None:
            lines = "\n".join(self._text().splitlines()[-_LAST_LINES:])
            raise ProcessFailed(f"`penstock {self.name}` has ended with {self._process.returncode}:\n{lines}")

    async def stop(self) -> None:
        """Let it end; one that does not, and what it has started, is ended."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                pass
        _end_session(self.pid)
        await self._process.wait()

    def _text(self) -> str:
        return self._log.read_text(errors="replace")


def _end_session(pid: int) -> None:
    """End what is left of the session that a process of ours led: nothing, unless it had to be ended itself."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


_C = _libc()


def _end_with_parent() -> None:
    """In the child: ask to be told to end if the demonstration is killed, which could not do so itself."""
    if _C is not None:
        _C.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
