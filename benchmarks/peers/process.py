"""The outer side of a peer: starts its process and gives it orders."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.load.meter import Rate
from benchmarks.peers.environment import PeerUnavailable, python_for

QUEUES = ("pgmq", "pgqueuer", "procrastinate")
#: Those that know no other way to take a message than one at a time.
ONE_AT_A_TIME = ("procrastinate",)
_ROOT = Path(__file__).parents[2]
_ANSWER_SECONDS = 600.0


class PeerProcess:
    """A peer in a process and an environment of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.versions: dict[str, str] = {}
        self._process = process
        self._tree = psutil.Process(process.pid)

    @classmethod
    async def start(cls, name: str, *arguments: str, log: Path | None = None, **opening: object) -> PeerProcess:
        """Start it with its parameters, or raise PeerUnavailable. Its output goes to the log."""
        python = await asyncio.to_thread(python_for, name)
        with log.open("ab") if log is not None else nullcontext() as errors:
            process = await asyncio.create_subprocess_exec(
                python,
                "-m",
                f"benchmarks.peers.{name}_peer",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
            )
        peer = cls(name, process)
        try:
            peer.versions = (await peer.order(do="open", **opening))["versions"]
        except BaseException:
            await peer.stop()
            raise
        return peer

    async def run(self, what: str, batch: int, seconds: float) -> tuple[Rate, dict[str, Any]]:
        """Measure a cell: its rate, and the whole answer with the problems that the peer's oracle found."""
        answer = await self.order(do=what, batch=batch, seconds=seconds)
        return Rate(answer["events"], answer["seconds"], answer["cpu"]), answer

    def cpu_seconds(self) -> float:
        """CPU time of the peer and of everything below it so far."""
        return cpu_seconds(self._tree)

    async def stop(self) -> None:
        below = self._tree.children(recursive=True) if self._process.returncode is None else []
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, below, 5)
        for process in alive:
            process.kill()

    async def order(self, **order: object) -> dict[str, Any]:
        """Let it do something, and wait for its answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise PeerUnavailable("its process has no pipes")
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
            line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_SECONDS)
        except (ConnectionError, TimeoutError) as error:
            raise PeerUnavailable(f"its process did not answer: {error}") from error
        if not line:
            raise PeerUnavailable("its process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerUnavailable(answer["error"])
        return answer
