"""Starts the process of a peer and sends it requests."""

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
#: Peers that can pop only one message at a time.
ONE_AT_A_TIME = ("procrastinate",)
_ROOT = Path(__file__).parents[2]
_RESPONSE_SECONDS = 600.0


class PeerProcess:
    """A peer in its own process and environment."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.versions: dict[str, str] = {}
        self._process = process
        self._tree = psutil.Process(process.pid)

    @classmethod
    async def start(
        cls, name: str, *arguments: str, module: str | None = None, log: Path | None = None, **opening: object
    ) -> PeerProcess:
        """Start it and send the ``open`` request, or raise PeerUnavailable. Its output goes to the log.

        The module, by default that of the peer's name, runs in the environment of that name.
        """
        python = await asyncio.to_thread(python_for, name)
        with log.open("ab") if log is not None else nullcontext() as errors:
            process = await asyncio.create_subprocess_exec(
                python,
                "-m",
                f"benchmarks.peers.{module or f'{name}_peer'}",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
            )
        peer = cls(name, process)
        try:
            peer.versions = (await peer.request(do="open", **opening))["versions"]
        except BaseException:
            await peer.stop()
            raise
        return peer

    async def run(self, operation: str, batch: int, seconds: float) -> tuple[Rate, dict[str, Any]]:
        """Measure a cell. Return its rate and the response, which has the problems found."""
        response = await self.request(do=operation, batch=batch, seconds=seconds)
        return Rate(response["events"], response["seconds"], response["cpu"]), response

    def cpu_seconds(self) -> float:
        """Return the CPU time of the peer and its descendants so far."""
        return cpu_seconds(self._tree)

    async def stop(self) -> None:
        children = self._tree.children(recursive=True) if self._process.returncode is None else []
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 5)
        for process in alive:
            process.kill()

    async def request(self, **request: object) -> dict[str, Any]:
        """Send a request and return the response."""
        if self._process.stdin is None or self._process.stdout is None:
            raise PeerUnavailable("its process has no pipes")
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
            line = await asyncio.wait_for(self._process.stdout.readline(), _RESPONSE_SECONDS)
        except (ConnectionError, TimeoutError) as error:
            raise PeerUnavailable(f"its process did not respond: {error}") from error
        if not line:
            raise PeerUnavailable("its process ended")
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise PeerUnavailable(response["error"])
        return response
