"""Stack samplers: py-spy for Python, JDK Flight Recorder for the JVM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.peers.environment import PeerUnavailable, python_for
from benchmarks.profile import stacks

_RATE = 100
_TIMEOUT_SECONDS = 60.0
_RECORDING = "penstock"
_DEPTH = 256


class Unavailable(Exception):
    """A sampler cannot be used on this machine."""


@dataclass(slots=True)
class Samples:
    """Stacks by component, and the reasons of unavailable samplers."""

    by_part: dict[str, dict[str, float]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def sampling(engine: int, directory: Path) -> AsyncIterator[Samples]:
    """Sample a driver and its descendants inside ``async with``. The samples are complete at its end."""
    samples = Samples()
    recorder, spy = FlightRecorder(engine, directory / "jvm.jfr"), PySpy(engine, directory / "python.txt")
    started: list[FlightRecorder | PySpy] = []
    for sampler in (recorder, spy):
        try:
            await sampler.start()
            started.append(sampler)
        except Unavailable as error:
            samples.unavailable[sampler.name] = str(error)
    try:
        yield samples
    finally:
        for sampler in reversed(started):
            try:
                samples.by_part |= await sampler.stop()
            except Unavailable as error:
                samples.unavailable[sampler.name] = str(error)


class PySpy:
    """Samples the driver and its Python descendants. It needs the permission to trace them."""

    name = "py-spy"

    def __init__(self, engine: int, file: Path) -> None:
        self._engine, self._file = engine, file
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        try:
            program = (await asyncio.to_thread(python_for, "py-spy")).with_name("py-spy")
        except PeerUnavailable as error:
            raise Unavailable(str(error)) from error
        options = ["--subprocesses", "--format", "raw", "--rate", str(_RATE), "--output", str(self._file)]
        self._process = process = await asyncio.create_subprocess_exec(
            program,
            "record",
            "--pid",
            str(self._engine),
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        failure = await asyncio.wait_for(self._await_start(process), _TIMEOUT_SECONDS)
        if failure is not None:
            raise Unavailable(f"it needs the permission to trace processes: {failure}")

    async def stop(self) -> dict[str, dict[str, float]]:
        process = self._process
        if process is None:
            return {}
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_SECONDS)
        if not self._file.exists():
            raise Unavailable(f"it wrote nothing: {_last_line(output)}")
        return await asyncio.to_thread(lambda: stacks.of_python(self._file.read_text().splitlines()))

    @staticmethod
    async def _await_start(process: asyncio.subprocess.Process) -> str | None:
        """Return None when it has started, otherwise the first line of its output, which is the error."""
        output, first = process.stdout, ""
        while output is not None and (line := await output.readline()):
            if b"Sampling process" in line:
                return None
            first = first or line.decode(errors="replace").strip()
        return first or "it ended"


class FlightRecorder:
    """Samples the threads of the JVM. A JDK includes it, a bare runtime may not."""

    name = "JDK Flight Recorder"

    def __init__(self, engine: int, file: Path) -> None:
        self._engine, self._file = engine, file
        self._pid = 0
        self._tools = Path()

    async def start(self) -> None:
        descendants = psutil.Process(self._engine).children(recursive=True)
        pid = next((process.pid for process in descendants if process.name() == "java"), None)
        if pid is None:
            raise Unavailable("the driver has no JVM")
        self._pid, self._tools = pid, Path(psutil.Process(pid).exe()).parent
        if missing := [tool for tool in ("jcmd", "jfr") if not (self._tools / tool).exists()]:
            raise Unavailable(f"the Java runtime of Spark has no {' and no '.join(missing)}: use a JDK")
        # Spark's stacks are deeper than the default limit, which cuts off the outer frames.
        await self._run("jcmd", str(pid), "JFR.configure", f"stackdepth={_DEPTH}")
        await self._run("jcmd", str(pid), "JFR.start", f"name={_RECORDING}", "settings=profile")

    async def stop(self) -> dict[str, dict[str, float]]:
        await self._run("jcmd", str(self._pid), "JFR.stop", f"name={_RECORDING}", f"filename={self._file}")
        text = await self._run(
            "jfr", "print", "--events", "jdk.ExecutionSample", "--stack-depth", str(_DEPTH), str(self._file)
        )
        return await asyncio.to_thread(stacks.of_jvm, text.splitlines())

    async def _run(self, tool: str, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            self._tools / tool, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_SECONDS)
        if process.returncode:
            raise Unavailable(f"{tool} {' '.join(arguments[:2])}: {_last_line(output)}")
        return output.decode(errors="replace")


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
