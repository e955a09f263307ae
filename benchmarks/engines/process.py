"""Starts the process of an engine and sends it jobs. The JVM is reused between jobs."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Self

import msgspec
import psutil

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.engines.jobs import Drain, Drained, Follow

NAMES = ("penstock", "plain_spark")
_ROOT = Path(__file__).parents[2]
_RESPONSE_SECONDS = 900.0
_LINE_BYTES = 1 << 20


def keep_logs(directory: Path, target: Path | None) -> None:
    """Copy the logs of the engines to a directory, if one is given."""
    if target is not None:
        target.mkdir(exist_ok=True)
        for log in directory.glob("*.log"):
            shutil.copy(log, target)


class EngineError(Exception):
    """The engine failed to run a job."""


class EngineProcess:
    """Penstock's engine or plain Spark: the driver with its JVM and Python workers."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._tree = psutil.Process(process.pid)

    @classmethod
    async def start(cls, name: str, directory: Path) -> Self:
        """Start it. Its output goes to ``<name>.log`` in the directory."""
        log = (directory / f"{name}.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.engines.serve",
                name,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
                limit=_LINE_BYTES,
                env=os.environ
                | {
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_ROOT)])),
                    "SPARK_LOCAL_DIRS": str(directory),
                    "BENCHMARK_DIRECTORY": str(directory),
                },
            )
        return cls(name, process)

    async def drain(self, job: Drain) -> tuple[Drained, float]:
        """Run a drain. Return its result and CPU seconds."""
        before = cpu_seconds(self._tree)
        await self._send(job)
        if self._process.stdout is None:
            raise EngineError(f"{self.name} has no pipes")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _RESPONSE_SECONDS)
        except TimeoutError:
            raise EngineError(f"{self.name} did not respond within {_RESPONSE_SECONDS:.0f} s") from None
        if not line:
            raise EngineError(f"{self.name} ended: see its log")
        response = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "error" in response:
            raise EngineError(f"{self.name}: {msgspec.json.decode(response['error'], type=str)}")
        return msgspec.json.decode(line, type=Drained), cpu_seconds(self._tree) - before

    async def follow(self, job: Follow) -> None:
        """Start a continuous query, which runs until :meth:`stop`."""
        await self._send(job)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the driver, its JVM and its Python workers so far."""
        return cpu_seconds(self._tree)

    @property
    def pid(self) -> int:
        """The process id of the driver."""
        return self._tree.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def stop(self) -> None:
        """Terminate the process tree, and kill the remaining processes."""
        children = self._tree.children(recursive=True) if self.is_running else []
        if self.is_running:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 20)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 5)
        for process in alive:
            process.kill()

    async def _send(self, job: Drain | Follow) -> None:
        if self._process.stdin is None:
            raise EngineError(f"{self.name} has no pipes")
        try:
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise EngineError(f"{self.name} ended: {error}") from error
