"""Runs of Penstock: a query over all events of the queues, in this process, and the comparison of its rows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from benchmarks.nexmark import queues
from benchmarks.nexmark.answers import Answers
from benchmarks.nexmark.commit_samples import CommitSampler
from benchmarks.nexmark.events import Workload
from benchmarks.nexmark.measurement import Measurement
from benchmarks.nexmark.plan import PENSTOCK, Query, Result
from benchmarks.peers.process import PeerProcess
from penstock import Penstock, Stream
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import fill_placeholders
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.sinks import Sinks
from penstock.sinks.spec import read_sink
from penstock.stream.statements.application import Application
from penstock.stream.statements.statement_parser import parse_application

_numbers = count(1)
_SINK_POLL_SECONDS = 0.02


def parse(query: str | None = None, **values: object) -> Application:
    """Parse the queues and the statement of a query."""
    statement = "" if query is None else fill_placeholders(PENSTOCK[query], **values)
    return parse_application(Stream, f"{PENSTOCK['queues']}\n{statement}", "penstock.sql")


@dataclass(slots=True)
class PenstockRuns:
    """Runs queries and compares their rows."""

    server: Server
    q: Penstock
    workload: Workload
    answers: Answers
    checks: Checks
    directory: Path
    #: The process of a peer, whose CPU time does not count.
    peer: PeerProcess | None = None

    async def warm_up(self, query: Query, cycles: int) -> int:
        """Run a query in several cycles. Compare its rows after some commits and at the end. Return the samples."""
        read = self._events(query)
        name = f"{query.name}_{next(_numbers)}"
        is_view = query.result is Result.VIEW
        columns = list(self.answers.columns(query.name)) if is_view else None
        sampler = CommitSampler(self.server.url, name, read, self.directory, columns, query.name)
        if query.result in (Result.WINDOWS, Result.FILES):
            sampler.stop()
        sampling = asyncio.create_task(asyncio.to_thread(sampler.run))
        try:
            await self._run(query, name, max_events_per_cycle=-(-read // cycles))
        finally:
            sampler.stop()
            await sampling
        await self._verify_end(query, name)
        await asyncio.to_thread(self._verify_samples, query, sampler)
        await self._delete(query, name)
        return len(sampler.samples)

    async def measure(self, query: Query) -> Measurement:
        """Run a query and compare its rows at the end."""
        name = f"{query.name}_{next(_numbers)}"
        with psycopg.connect(self.server.url, autocommit=True) as conn:
            conn.execute("CHECKPOINT")
        before = self._cpu(), self.server.cpu_seconds()
        seconds, cycles = await self._run(query, name)
        engine, server = self._cpu() - before[0], self.server.cpu_seconds() - before[1]
        await self._verify_end(query, name)
        await self._delete(query, name)
        return Measurement(self._events(query), seconds, engine, server, cycles=cycles)

    def _events(self, query: Query) -> int:
        return sum(self.workload.count(table) for table in query.reads)

    def _cpu(self) -> float:
        peer = self.peer.cpu_seconds() if self.peer is not None else 0.0
        return cpu_seconds(psutil.Process()) - peer

    async def _run(self, query: Query, name: str, **options: Any) -> tuple[float, int]:
        """Run a query to the end of the queues. Return its seconds and cycles."""
        application = parse(query.name, directory=self._files(name))
        statement = application.queries[query.name]
        stream: Any = statement.stream
        options = {"available_now": True, "report_seconds": 0, "flush": query.result is Result.WINDOWS, **options}
        options |= statement.options
        if stream.sink is not None:
            await self.q.queue(stream.sink).config(max_depth_events=None).create("hash", 4)
        settings = Settings(database_url=self.server.url)
        began = time.perf_counter()
        running = await asyncio.to_thread(stream.start, name, settings=settings, **options)
        if query.result is Result.FILES:
            await self._write_files(application, query)
        await asyncio.to_thread(running.wait)
        return time.perf_counter() - began, running.status.cycles

    async def _write_files(self, application: Application, query: Query) -> None:
        """Run the sinks of an application until all events are in files."""
        expected = self.answers.count(query.name)
        async with Sinks(self.server.url) as sinks:
            for sink in application.sinks.values():
                sinks.add(sink.queue, read_sink(sink.to), **sink.options)
            running = asyncio.create_task(sinks.run())
            while not running.done() and sum(counter.written for counter in sinks.counters.values()) < expected:
                await asyncio.wait([running], timeout=_SINK_POLL_SECONDS)
            sinks.stop()
            await running

    async def _verify_end(self, query: Query, name: str) -> None:
        self.answers.read_all()
        path = self.directory / f"{name}.rows"
        if query.result is Result.VIEW:
            columns = list(self.answers.columns(query.name))
            await asyncio.to_thread(self._copy_view, name, columns, path)
            problems = await asyncio.to_thread(self.answers.csv_problems, query.name, path)
        elif query.result is Result.FILES:
            problems = await asyncio.to_thread(self.answers.parquet_problems, query.name, self._files(name))
        else:
            await queues.write_events(self.q, query.name, path)
            problems = await asyncio.to_thread(self.answers.json_problems, query.name, path)
        self.checks.expect_none(f"{query.name}: the rows are DuckDB's", problems)
        path.unlink(missing_ok=True)

    def _copy_view(self, name: str, columns: list[str], path: Path) -> None:
        with psycopg.connect(self.server.url) as conn:
            queues.copy_view(conn, name, columns, path)

    def _verify_samples(self, query: Query, sampler: CommitSampler) -> None:
        for sample in sampler.samples:
            self.answers.read_until(sample.positions)
            if sample.rows is not None:
                problems = self.answers.csv_problems(query.name, sample.rows)
                sample.rows.unlink()
            else:
                expected = self.answers.count(query.name)
                problems = [] if sample.count == expected else [f"{sample.count} events, not {expected}"]
            self.checks.expect_none(f"{query.name}: the rows are DuckDB's after sampled commits", problems)
        self.answers.read_all()

    async def _delete(self, query: Query, name: str) -> None:
        """Delete a query with its rows, and its queue."""
        log = await Log(Database(Settings(database_url=self.server.url))).open()
        try:
            await Registry(log).delete(name)
        finally:
            await log.close()
        if query.result is not Result.VIEW:
            await self.q.queue(query.name).delete()

    def _files(self, name: str) -> Path:
        return self.directory / f"{name}-files"
