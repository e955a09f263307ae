"""State that all drains share: server, client and engines. Measures and checks a drain."""

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
from benchmarks.drain.dataset import Dataset
from benchmarks.drain.oracle import Oracle
from benchmarks.engines.jobs import Drain, Drained, Result
from benchmarks.engines.process import EngineProcess
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The result of a drain, with the CPU seconds of engine and PostgreSQL per million events."""

    events: int
    seconds: float
    batches: int
    engine_cpu: float
    server_cpu: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    def print_summary(self, name: str) -> None:
        print(
            f"  {name:<24} {self.per_second:>9,.0f} events/s  {self.batches:>3} batches  "
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
    """The server, client, engines and results of a run."""

    server: Server
    q: Penstock
    directory: Path
    stack: AsyncExitStack
    checks: Checks = field(default_factory=Checks)
    #: The measured drains by name.
    drains: dict[str, list[DrainResult]] = field(default_factory=dict)
    _engines: dict[str, EngineProcess] = field(default_factory=dict)

    async def extend(self, dataset: Dataset, queue: str, events: int) -> Oracle:
        """Extend a dataset and its queue to a number of events. Return the oracle."""
        files = await asyncio.to_thread(dataset.extend, events)
        print(f"  {events:,} events in {queue}", flush=True)
        await load.load(self.q, queue, files)
        return await asyncio.to_thread(Oracle, dataset)

    async def engine(self, name: str) -> EngineProcess:
        if name not in self._engines:
            self._engines[name] = engine = await EngineProcess.start(name, self.directory)
            self.stack.push_async_callback(engine.stop)
        return self._engines[name]

    async def stop_engine(self, name: str) -> None:
        """Stop an engine, so that the next drain starts a new process with a cold JVM."""
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
        """Drain a source repeatedly without measuring."""
        for number in range(passes):
            await self._drain(engine, source, batch=batches[number % len(batches)], master=master)

    async def measure(
        self,
        name: str,
        engine: str,
        source: str,
        dataset: Dataset,
        oracle: Oracle,
        *,
        batch: int | None = None,
        python_map: bool = False,
        queries: int = 1,
        master: str | None = None,
    ) -> DrainResult:
        """Drain a source and compare every row of the result with the oracle. The events of several queries add up."""
        with psycopg.connect(self.server.url, autocommit=True) as conn:
            conn.execute("CHECKPOINT")
        server_before = self.server.cpu_seconds()
        drained, cpu = await self._drain(
            engine, source, batch=batch, python_map=python_map, queries=queries, master=master
        )
        events = dataset.events * queries
        millions = events / 1e6
        result = DrainResult(
            events,
            drained.seconds,
            drained.batches,
            cpu / millions,
            (self.server.cpu_seconds() - server_before) / millions,
        )
        self.drains.setdefault(name, []).append(result)
        result.print_summary(name)
        for location in drained.results:
            await self.verify(name, location, oracle)
        return result

    def rate(self, name: str) -> int:
        """Return the median rate of a drain."""
        return round(median([drain.per_second for drain in self.drains[name]]))

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

    async def verify(self, name: str, result: Result, oracle: Oracle) -> None:
        """Compare every row of a result and of its sink with the oracle."""
        rows = self.directory / "result.csv"
        await asyncio.to_thread(copy_out, self.server.url, result.select, rows)
        problems = await asyncio.to_thread(oracle.problems, rows)
        self.checks.expect_none(f"{name}: live rows and closed windows are DuckDB's, to the cent", problems)
        if result.sink is not None:
            await sink.read(self.q, result.sink, rows)
            problems = await asyncio.to_thread(oracle.problems, rows, only_closed=True)
            self.checks.expect_none(f"{name}: the closed windows are in the sink queue, each once", problems)


def copy_out(url: str, select: str, path: Path) -> None:
    """Write the rows of a SELECT to a CSV file."""
    statement = f"COPY ({select}) TO STDOUT (FORMAT csv)".encode()
    with psycopg.connect(url) as conn, conn.cursor().copy(statement) as copy, path.open("wb") as file:
        for block in copy:
            file.write(block)
