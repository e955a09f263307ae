"""Ingestion without viewers of the console and with five browsers, in turns."""

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
from benchmarks.ingest.bench import check_log, drive, http_server
from benchmarks.ingest.plan import PARTITIONS
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock

_PATIENCE_SECONDS = 90.0


@dataclass
class Side:
    """The results of one side over all turns."""

    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    events: int = 0
    seconds: float = 0.0
    cpu: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def cpu_of_penstock(self) -> float:
        """Return the CPU time of the system, without browsers and producers."""
        return sum(self.cpu[who] for who in ("server", "postgresql", "console"))

    def summary(self) -> dict[str, Any]:
        return {
            "events_per_s": round(median(self.rates)),
            "p50_ms": round(percentile(self.latencies, 0.5) * 1000, 2),
            "p99_ms": round(percentile(self.latencies, 0.99) * 1000, 2),
            "cores": {who: round(spent / self.seconds, 3) for who, spent in self.cpu.items()},
            "cpu_s_per_million": {who: round(spent / self.events * 1e6, 2) for who, spent in self.cpu.items()},
            "turns": [round(rate) for rate in self.rates],
        }


@contextmanager
def console(database_url: str) -> Iterator[tuple[str, psutil.Process]]:
    """``penstock console``: the process that ``penstock serve --console`` starts as well."""
    command = [sys.executable, "-m", "penstock", "console", "--port", "0"]
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline() if process.stdout is not None else ""
        if not said.startswith("Console on "):
            raise RuntimeError(f"the console ended with {process.wait()}")
        yield said.removeprefix("Console on ").strip(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


class Query:
    """The query that follows the events, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, database_url: str) -> Self:
        """Start it; answers when it has live rows."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.console.query", database_url),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        query = cls(process)
        try:
            async with (
                asyncio.timeout(_PATIENCE_SECONDS),
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
        """Stop it, if it runs."""
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
class Rig:
    """All that runs while it is measured."""

    plan: Plan
    postgresql: Server
    server_url: str
    server: psutil.Process
    console: psutil.Process
    browsers: Browsers
    checks: Checks
    #: By load, how often each body of the generator was accepted.
    sent: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    async def warm_up(self, load: Load) -> None:
        """Let some events come that do not count."""
        await self._push(load, self.plan.warm_up_seconds)

    async def measure(self, load: Load, q: Penstock) -> dict[str, Any]:
        """Measure a load, on a queue of its own."""
        sides = {name: Side() for name in SIDES}
        for turn in range(self.plan.turns):
            # Now one goes first, now another.
            for place in range(len(SIDES)):
                name = SIDES[(turn + place) % len(SIDES)]
                await self._turn(load, name, sides[name])
        await check_log(q, load.name, load.batch, self.sent[load.name], self.checks)
        return {name: side.summary() for name, side in sides.items()} | _compare(sides)

    async def _turn(self, load: Load, name: str, side: Side) -> None:
        """Let events come for a while, with the browsers of this side open."""
        if name == NOBODY:
            await self._part(load, side)
            return
        browsers = self.browsers
        await browsers.open()
        before = await browsers.moved()
        with browsers.standing_back() if name == IDLE else nullcontext():
            await self._part(load, side)
        after = await browsers.moved()
        still = [path for path in PAGES if after[path] <= before[path]]
        self.checks.expect(f"{load.name}, {name}: every page moved in every turn", not still, ", ".join(still))
        await browsers.close()

    async def _part(self, load: Load, side: Side) -> None:
        before: dict[str, float] = {}
        said = await self._push(load, self.plan.seconds, lambda: before.update(self._spent()))
        for who, spent in self._spent().items():
            side.cpu[who] += spent - before[who]
        side.cpu["generator"] += said["cpu"]
        events = sum(said["accepted"]) * load.batch
        side.events += events
        side.seconds += said["seconds"]
        side.rates.append(events / said["seconds"])
        side.latencies += said["latencies"]
        fine = not said["refused"] and not said["lost"]
        told = f"{said['refused']}, {said['lost']}"
        self.checks.expect(f"{load.name}: every request is accepted", fine, told)

    async def _push(self, load: Load, seconds: float, begins: Callable[[], None] = lambda: None) -> dict[str, Any]:
        sent = self.sent[load.name]
        return await drive(self.server_url, load.name, load.batch, seconds, sent, load.per_second, begins)

    def _spent(self) -> dict[str, float]:
        return {
            "server": cpu_seconds(self.server),
            "postgresql": self.postgresql.cpu_seconds(),
            "console": cpu_seconds(self.console),
            "browsers": self.browsers.cpu_seconds(),
        }


async def measure(loads: Sequence[Load], plan: Plan, running: Server, checks: Checks, found: dict[str, Any]) -> None:
    """Measure some loads, one after the other, and put down what each came to."""
    async with AsyncExitStack() as stack:
        q = await stack.enter_async_context(Penstock(running.url))
        for load in LOADS:
            queue = q.queue(load.name).config(dedup_window_seconds=0, max_depth_events=None)
            await queue.create(partitions=PARTITIONS)
        server_url, server = stack.enter_context(http_server(running.url, 1))
        console_url, shown = stack.enter_context(console(running.url))
        browsers = await stack.enter_async_context(await Browsers.start(console_url))
        failing = asyncio.create_task(_fail_one_a_second(q))
        stack.callback(failing.cancel)
        rig = Rig(plan, running, server_url, server, shown, browsers, checks)
        for load in LOADS:
            await rig.warm_up(load)
        query = await Query.start(running.url)
        stack.push_async_callback(query.stop)
        for load in loads:
            if not load.is_followed:
                await query.stop()
            found[load.name] = await rig.measure(load, q)
            print(f"{load.name}: {found[load.name]}", flush=True)
        if failing.done():
            await failing


async def _fail_one_a_second(q: Penstock) -> None:
    """So that there are dead letters, and more of them all the time."""
    queue = q.queue(FAILING)
    await queue.create()
    for number in itertools.count():
        await queue.push({"data": {"order": number}})
        for event in await queue.group("work").pop():
            await q.ack(event, "dead_letter", error=f"order {number} has no customer")
        await asyncio.sleep(1)


def _compare(sides: dict[str, Side]) -> dict[str, Any]:
    """Each side with browsers over the one without, turn by turn; the median counts."""
    nobody = sides[NOBODY]
    of_nobody = nobody.cpu_of_penstock / nobody.events
    return {
        "ratio": {
            name: round(median(with_ / without for with_, without in zip(side.rates, nobody.rates, strict=True)), 3)
            for name, side in sides.items()
            if side is not nobody
        },
        "cpu_ratio": {
            name: round(side.cpu_of_penstock / side.events / of_nobody, 3)
            for name, side in sides.items()
            if side is not nobody
        },
    }
