"""Shared by all sections of a run: server, log, engines, and a measured and checked drain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

import psycopg

from benchmarks.drain import load, sink
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.stock import Stock
from benchmarks.engines.jobs import Drain, Drained, Result
from benchmarks.engines.process import EngineProcess
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Measured:
    """A drain: its rate, its batches, and the CPU seconds of engine and PostgreSQL per million events."""

    events: int
    seconds: float
    batches: int
    engine_cpu: float
    server_cpu: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    def say(self, what: str) -> None:
        print(
            f"  {what:<24} {self.per_second:>9,.0f} events/s  {self.batches:>3} batches  "
            f"{self.engine_cpu:.2f} + {self.server_cpu:.2f} CPU s per million",
            flush=True,
        )

    def result(self) -> dict[str, float]:
        return {
            "events": self.events,
            "events_per_s": round(self.per_second),
            "batches": self.batches,
            "engine_cpu_s_per_million": round(self.engine_cpu, 2),
            "postgresql_cpu_s_per_million": round(self.server_cpu, 2),
        }


@dataclass(slots=True)
class Bench:
    """A run."""

    server: Server
    q: Penstock
    directory: Path
    stack: AsyncExitStack
    checks: Checks = field(default_factory=Checks)
    #: Every drain that was measured, by what it was.
    drains: dict[str, list[Measured]] = field(default_factory=dict)
    _engines: dict[str, EngineProcess] = field(default_factory=dict)

    async def grow(self, stock: Stock, queue: str, events: int) -> Oracle:
        """Fill a stock and its queue to this many events; return their oracle."""
        files = await asyncio.to_thread(stock.grow, events)
        print(f"  {events:,} events in {queue}", flush=True)
        await load.load(self.q, queue, files)
        return await asyncio.to_thread(Oracle, stock)

    async def engine(self, name: str) -> EngineProcess:
        if name not in self._engines:
            self._engines[name] = engine = await EngineProcess.start(name, self.directory)
            self.stack.push_async_callback(engine.stop)
        return self._engines[name]

    async def renew(self, name: str) -> None:
        """Let the next drain have a new process, and a JVM that knows nothing."""
        if (engine := self._engines.pop(name, None)) is not None:
            await engine.stop()

    async def warm_up(
        self,
        engine: str,
        source: str,
        passes: int,
        batches: Sequence[int | None] = (None,),
        *,
        master: str | None = None,
    ) -> None:
        """Drain a source without measuring."""
        for number in range(passes):
            await self._drain(engine, source, batch=batches[number % len(batches)], master=master)

    async def measure(
        self,
        what: str,
        engine: str,
        source: str,
        stock: Stock,
        oracle: Oracle,
        *,
        batch: int | None = None,
        python_map: bool = False,
        queries: int = 1,
        master: str | None = None,
    ) -> Measured:
        """Drain a source and hold every row of the result against the oracle; what several queries read is added up."""
        with psycopg.connect(self.server.url, autocommit=True) as conn:
            conn.execute("CHECKPOINT")
        server_before = self.server.cpu_seconds()
        drained, cpu = await self._drain(
            engine, source, batch=batch, python_map=python_map, queries=queries, master=master
        )
        events = stock.events * queries
        millions = events / 1e6
        measured = Measured(
            events,
            drained.seconds,
            drained.batches,
            cpu / millions,
            (self.server.cpu_seconds() - server_before) / millions,
        )
        self.drains.setdefault(what, []).append(measured)
        measured.say(what)
        for result in drained.results:
            await self.verify(what, result, oracle)
        return measured

    def rate(self, what: str) -> int:
        """The median of the measurements."""
        return round(median([measured.per_second for measured in self.drains[what]]))

    async def _drain(
        self,
        engine: str,
        source: str,
        *,
        batch: int | None = None,
        python_map: bool = False,
        queries: int = 1,
        master: str | None = None,
    ) -> tuple[Drained, float]:
        job = Drain(f"drain_{next(_numbers)}", self.server.url, source, batch, python_map, queries, master)
        return await (await self.engine(engine)).drain(job)

    async def verify(self, what: str, result: Result, oracle: Oracle) -> None:
        """Compare every row of a result and of its sink with the oracle."""
        rows = self.directory / "result.csv"
        await asyncio.to_thread(copy_out, self.server.url, result.select, rows)
        problems = await asyncio.to_thread(oracle.problems, rows)
        self.checks.expect_none(f"{what}: live rows and closed windows are DuckDB's, to the cent", problems)
        if result.sink is not None:
            await sink.read(self.q, result.sink, rows)
            problems = await asyncio.to_thread(oracle.problems, rows, only_closed=True)
            self.checks.expect_none(f"{what}: the closed windows are in the sink queue, each once", problems)


def copy_out(url: str, select: str, path: Path) -> None:
    """Write the rows of a question into a file of CSV."""
    statement = f"COPY ({select}) TO STDOUT (FORMAT csv)".encode()
    with psycopg.connect(url) as conn, conn.cursor().copy(statement) as copy, path.open("wb") as file:
        for block in copy:
            file.write(block)
