"""The outer side of a peer: starts its process and gives it orders."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.load.meter import Rate
from benchmarks.peers.environment import PeerUnavailable, python_for

NAMES = ("pgmq", "pgqueuer")
_ROOT = Path(__file__).parents[2]
_ANSWER_SECONDS = 600.0


class PeerProcess:
    """A peer in a process and an environment of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.versions: dict[str, str] = {}
        self._process = process

    @classmethod
    async def start(cls, name: str, url: str, tasks: int) -> PeerProcess:
        """Start it on an empty database, or raise PeerUnavailable."""
        python = await asyncio.to_thread(python_for, name)
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            f"benchmarks.peers.{name}_peer",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
        )
        peer = cls(name, process)
        try:
            peer.versions = (await peer._order(do="open", url=url, tasks=tasks))["versions"]
        except BaseException:
            await peer.stop()
            raise
        return peer

    async def run(self, what: str, batch: int, seconds: float) -> tuple[Rate, dict[str, Any]]:
        """Measure a cell: its rate, and the whole answer with the problems that the peer's oracle found."""
        answer = await self._order(do=what, batch=batch, seconds=seconds)
        return Rate(answer["events"], answer["seconds"], answer["cpu"]), answer

    async def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _order(self, **order: object) -> dict[str, Any]:
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
