"""Scaling curves of the engine: events, keys, queries, executors. Every row is compared with DuckDB's."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.drain import load
from benchmarks.drain.bench import Bench
from benchmarks.drain.dataset import Dataset
from benchmarks.drain.events import Workload
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.plan import PARTITIONS
from benchmarks.scaling.plan import Plan

Point = dict[str, float]
_ENGINE = "penstock"
#: Larger drains are measured once.
_SINGLE_RUN_EVENTS = 10_000_000


@dataclass(frozen=True, slots=True)
class _Filled:
    """A filled queue, its dataset and the oracle."""

    bench: Bench
    plan: Plan
    name: str
    dataset: Dataset
    oracle: Oracle

    async def warm_up(self, passes: int, *, master: str | None = None) -> None:
        await self.bench.warm_up(_ENGINE, self.name, passes, master=master)

    async def point(self, curve: str, x: int, *, queries: int = 1, master: str | None = None) -> Point:
        single = self.dataset.events * queries > _SINGLE_RUN_EVENTS
        rounds = [
            await self.bench.measure(
                f"{curve} {x:,}", _ENGINE, self.name, self.dataset, self.oracle, queries=queries, master=master
            )
            for _ in range(1 if single else self.plan.rounds)
        ]
        return {
            "x": x,
            "events_per_s": round(median(drain.per_second for drain in rounds)),
            "cpu_s_per_million": round(median(drain.engine_cpu + drain.server_cpu for drain in rounds), 2),
            "postgresql_cpu_s_per_million": round(median(drain.server_cpu for drain in rounds), 2),
        }


async def events(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """Extend one queue."""
    dataset = Dataset(Workload(plan.keys, plan.per_second), bench.directory / "events")
    await load.create(bench.q, "events", partitions=PARTITIONS)
    for number, size in enumerate(plan.points["events"]):
        filled = _Filled(bench, plan, "events", dataset, await bench.extend(dataset, "events", size))
        if number == 0:
            await filled.warm_up(plan.warm_ups)
        yield await filled.point("events", size)
        filled.oracle.close()


async def keys(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """Drain one queue per number of keys."""
    for number, keys in enumerate(plan.points["keys"]):
        async with _filled(bench, plan, f"keys_{keys}", keys) as filled:
            await filled.warm_up(min(1, plan.warm_ups) if number else plan.warm_ups)
            yield await filled.point("keys", keys)


async def queries(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """Run several queries over one queue."""
    async with _filled(bench, plan, "queries", plan.keys) as filled:
        await filled.warm_up(plan.warm_ups)
        for number in plan.points["queries"]:
            yield await filled.point("queries", number, queries=number)


async def executors(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """Run a cluster of each size, with the same warm-up."""
    async with _filled(bench, plan, "executors", plan.keys) as filled:
        for number in plan.points["executors"]:
            master = f"local-cluster[{number},1,1024]"
            await bench.stop_engine(_ENGINE)
            await filled.warm_up(plan.warm_ups, master=master)
            yield await filled.point("executors", number, master=master)


@asynccontextmanager
async def _filled(bench: Bench, plan: Plan, name: str, keys: int) -> AsyncIterator[_Filled]:
    dataset = Dataset(Workload(keys, plan.per_second), bench.directory / name)
    await load.create(bench.q, name, partitions=PARTITIONS)
    oracle = await bench.extend(dataset, name, plan.events)
    try:
        yield _Filled(bench, plan, name, dataset, oracle)
    finally:
        oracle.close()
        shutil.rmtree(dataset.directory)
