"""Ingestion with no browser and with five browsers at the console, alternating."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

import psutil
from psycopg import AsyncConnection

from benchmarks.console.browsers import Browsers
from benchmarks.console.plan import FAILING, IDLE, LOADS, NOBODY, PAGES, QUERY, SIDES, Load, Plan
from benchmarks.engines.cpu import cpu_seconds
from benchmarks.freshness.latency import percentile
from benchmarks.ingest.bench import check_log, http_server, run_generator
from benchmarks.ingest.plan import PARTITIONS
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock

_TIMEOUT_SECONDS = 90.0


@dataclass
class Side:
    """The results of one side over all rounds."""

    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    events: int = 0
    seconds: float = 0.0
    cpu: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def cpu_of_penstock(self) -> float:
        """Return the CPU time of the system, without browsers and producers."""
        return sum(self.cpu[process] for process in ("server", "postgresql", "console"))

    def summary(self) -> dict[str, Any]:
        return {
            "events_per_s": round(median(self.rates)),
            "p50_ms": round(percentile(self.latencies, 0.5) * 1000, 2),
            "p99_ms": round(percentile(self.latencies, 0.99) * 1000, 2),
            "cores": {process: round(spent / self.seconds, 3) for process, spent in self.cpu.items()},
            "cpu_s_per_million": {process: round(spent / self.events * 1e6, 2) for process, spent in self.cpu.items()},
            "turns": [round(rate) for rate in self.rates],
        }


@contextmanager
def console(database_url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run ``penstock console``. Yield its URL and process."""
    command = [sys.executable, "-m", "penstock", "console", "--port", "0"]
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line.startswith("Console on "):
            raise RuntimeError(f"the console ended with {process.wait()}")
        yield line.removeprefix("Console on ").strip(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


class LiveQuery:
    """The continuous query, in its own process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, database_url: str) -> Self:
        """Start the query. Returns when it has live rows."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.console.live_query", database_url),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        query = cls(process)
        try:
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),
                await AsyncConnection.connect(database_url, autocommit=True) as conn,
            ):
                while not await _has_rows(conn):
                    if process.returncode is not None:
                        raise RuntimeError(f"the query ended with {process.returncode}")
                    await asyncio.sleep(0.2)
        except BaseException:
            await query.stop()
            raise
        return query

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()


async def _has_rows(conn: AsyncConnection) -> bool:
    view = f"penstock_live.{QUERY}"
    row = await (await conn.execute("SELECT to_regclass(%s) IS NOT NULL", (view,))).fetchone()
    if row is None or not row[0]:
        return False
    return await (await conn.execute(f"SELECT FROM {view} LIMIT 1".encode())).fetchone() is not None


@dataclass(frozen=True)
class Testbed:
    """The processes of a run."""

    plan: Plan
    postgresql: Server
    server_url: str
    server: psutil.Process
    console: psutil.Process
    browsers: Browsers
    checks: Checks
    #: Accepted requests of each body, by load.
    sent: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    async def warm_up(self, load: Load) -> None:
        """Push events without measuring."""
        await self._push(load, self.plan.warm_up_seconds)

    async def measure(self, load: Load, q: Penstock) -> dict[str, Any]:
        """Measure a load on its own queue."""
        sides = {name: Side() for name in SIDES}
        for number in range(self.plan.rounds):
            # The side that goes first rotates.
            for offset in range(len(SIDES)):
                name = SIDES[(number + offset) % len(SIDES)]
                await self._measure_side(load, name, sides[name])
        await check_log(q, load.name, load.batch, self.sent[load.name], self.checks)
        return {name: side.summary() for name, side in sides.items()} | _compare(sides)

    async def _measure_side(self, load: Load, name: str, side: Side) -> None:
        """Run the load once, with the browsers of this side open."""
        if name == NOBODY:
            await self._run_load(load, side)
            return
        browsers = self.browsers
        await browsers.open()
        before = await browsers.updates()
        with browsers.idle_priority() if name == IDLE else nullcontext():
            await self._run_load(load, side)
        after = await browsers.updates()
        unchanged = [path for path in PAGES if after[path] <= before[path]]
        self.checks.expect(
            f"{load.name}, {name}: every page updated in every round", not unchanged, ", ".join(unchanged)
        )
        await browsers.close()

    async def _run_load(self, load: Load, side: Side) -> None:
        before: dict[str, float] = {}
        report = await self._push(load, self.plan.seconds, lambda: before.update(self._spent()))
        for process, spent in self._spent().items():
            side.cpu[process] += spent - before[process]
        side.cpu["generator"] += report["cpu"]
        events = sum(report["accepted"]) * load.batch
        side.events += events
        side.seconds += report["seconds"]
        side.rates.append(events / report["seconds"])
        side.latencies += report["latencies"]
        accepted = not report["refused"] and not report["lost"]
        detail = f"{report['refused']}, {report['lost']}"
        self.checks.expect(f"{load.name}: every request is accepted", accepted, detail)

    async def _push(self, load: Load, seconds: float, on_start: Callable[[], None] = lambda: None) -> dict[str, Any]:
        sent = self.sent[load.name]
        return await run_generator(self.server_url, load.name, load.batch, seconds, sent, load.per_second, on_start)

    def _spent(self) -> dict[str, float]:
        return {
            "server": cpu_seconds(self.server),
            "postgresql": self.postgresql.cpu_seconds(),
            "console": cpu_seconds(self.console),
            "browsers": self.browsers.cpu_seconds(),
        }


async def measure(loads: Sequence[Load], plan: Plan, running: Server, checks: Checks, results: dict[str, Any]) -> None:
    """Measure the loads and add their results to ``results``."""
    async with AsyncExitStack() as stack:
        q = await stack.enter_async_context(Penstock(running.url))
        for load in LOADS:
            queue = q.queue(load.name).config(dedup_window_seconds=0, max_depth_events=None)
            await queue.create(partitions=PARTITIONS)
        server_url, server = stack.enter_context(http_server(running.url, 1))
        console_url, console_process = stack.enter_context(console(running.url))
        browsers = await stack.enter_async_context(await Browsers.start(console_url))
        failing = asyncio.create_task(_fail_one_a_second(q))
        stack.callback(failing.cancel)
        testbed = Testbed(plan, running, server_url, server, console_process, browsers, checks)
        for load in LOADS:
            await testbed.warm_up(load)
        query = await LiveQuery.start(running.url)
        stack.push_async_callback(query.stop)
        for load in loads:
            if not load.is_followed:
                await query.stop()
            results[load.name] = await testbed.measure(load, q)
            print(f"{load.name}: {results[load.name]}", flush=True)
        if failing.done():
            await failing


async def _fail_one_a_second(q: Penstock) -> None:
    """Add a dead letter every second, so that the dead-letter page changes."""
    queue = q.queue(FAILING)
    await queue.create()
    for number in itertools.count():
        await queue.push({"data": {"order": number}})
        for event in await queue.group("work").pop():
            await q.ack(event, "dead_letter", error=f"order {number} has no customer")
        await asyncio.sleep(1)


def _compare(sides: dict[str, Side]) -> dict[str, Any]:
    """Return the ratios of each side with browsers to the side without: the median of the rounds."""
    nobody = sides[NOBODY]
    baseline = nobody.cpu_of_penstock / nobody.events
    return {
        "ratio": {
            name: round(median(with_ / without for with_, without in zip(side.rates, nobody.rates, strict=True)), 3)
            for name, side in sides.items()
            if side is not nobody
        },
        "cpu_ratio": {
            name: round(side.cpu_of_penstock / side.events / baseline, 3)
            for name, side in sides.items()
            if side is not nobody
        },
    }
