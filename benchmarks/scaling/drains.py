"""The curves of the engine: events, keys, queries, executors; every row of every point is held against DuckDB's."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.drain import load
from benchmarks.drain.bench import Bench
from benchmarks.drain.events import Work
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.plan import PARTITIONS
from benchmarks.drain.stock import Stock
from benchmarks.scaling.plan import Plan

Point = dict[str, float]
_ENGINE = "penstock"
#: So long a drain is measured once.
_MANY_EVENTS = 10_000_000


@dataclass(frozen=True, slots=True)
class _Filled:
    """A queue, its input files, and the expected results."""

    bench: Bench
    plan: Plan
    name: str
    stock: Stock
    oracle: Oracle

    async def warm_up(self, passes: int, *, master: str | None = None) -> None:
        await self.bench.warm_up(_ENGINE, self.name, passes, master=master)

    async def point(self, curve: str, x: int, *, queries: int = 1, master: str | None = None) -> Point:
        many = self.stock.events * queries > _MANY_EVENTS
        rounds = [
            await self.bench.measure(
                f"{curve} {x:,}", _ENGINE, self.name, self.stock, self.oracle, queries=queries, master=master
            )
            for _ in range(1 if many else self.plan.rounds)
        ]
        return {
            "x": x,
            "events_per_s": round(median(one.per_second for one in rounds)),
            "cpu_s_per_million": round(median(one.engine_cpu + one.server_cpu for one in rounds), 2),
            "postgresql_cpu_s_per_million": round(median(one.server_cpu for one in rounds), 2),
        }


async def events(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """One queue that grows."""
    stock = Stock(Work(plan.keys, plan.per_second), bench.directory / "events")
    await load.create(bench.q, "events", partitions=PARTITIONS)
    for number, size in enumerate(plan.points["events"]):
        filled = _Filled(bench, plan, "events", stock, await bench.grow(stock, "events", size))
        if number == 0:
            await filled.warm_up(plan.warm_ups)
        yield await filled.point("events", size)
        filled.oracle.close()


async def keys(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """A queue for each number of keys."""
    for number, keys in enumerate(plan.points["keys"]):
        async with _filled(bench, plan, f"keys_{keys}", keys) as filled:
            await filled.warm_up(min(1, plan.warm_ups) if number else plan.warm_ups)
            yield await filled.point("keys", keys)


async def queries(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """More and more queries over one queue."""
    async with _filled(bench, plan, "queries", plan.keys) as filled:
        await filled.warm_up(plan.warm_ups)
        for number in plan.points["queries"]:
            yield await filled.point("queries", number, queries=number)


async def executors(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """A cluster of each size, whose JVMs are warmed up alike."""
    async with _filled(bench, plan, "executors", plan.keys) as filled:
        for number in plan.points["executors"]:
            master = f"local-cluster[{number},1,1024]"
            await bench.renew(_ENGINE)
            await filled.warm_up(plan.warm_ups, master=master)
            yield await filled.point("executors", number, master=master)


@asynccontextmanager
async def _filled(bench: Bench, plan: Plan, name: str, keys: int) -> AsyncIterator[_Filled]:
    stock = Stock(Work(keys, plan.per_second), bench.directory / name)
    await load.create(bench.q, name, partitions=PARTITIONS)
    oracle = await bench.grow(stock, name, plan.events)
    try:
        yield _Filled(bench, plan, name, stock, oracle)
    finally:
        oracle.close()
        shutil.rmtree(stock.directory)
