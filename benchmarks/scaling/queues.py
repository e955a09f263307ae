"""Scaling curves of the log: key partitions and groups. All read events are compared with the pushed ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from benchmarks.load.ledger import Reading
from benchmarks.load.meter import Meter, Rate
from benchmarks.log.bench import Bench, Kind, LoadedQueue
from benchmarks.log.plan import PARTITIONS_PER_POP, TASKS
from benchmarks.log.prefilled_queues import HASH
from benchmarks.scaling.plan import Plan

Point = dict[str, float]
_BATCH = 1000
_TIMEOUT_SECONDS = 600.0
#: The share of a queue that is read in the measured time. At its end, some pops would be empty.
_TIMED_SHARE = 0.9


async def key_partitions(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """Fill and read one queue per number of key partitions."""
    for number in plan.points["partitions"]:
        queue = await bench.new_queue(Kind("partitions", partitions=None, users=number), _BATCH)
        before = bench.server.cpu_seconds()
        pushed = await bench.fill(queue, plan.queue_events, tasks=TASKS)
        push_cpu = (pushed.cpu + bench.server.cpu_seconds() - before) / pushed.events * 1e6
        popped, pop_cpu = await _read(bench, queue, 1, f"key partitions {number:,}", partitions=PARTITIONS_PER_POP)
        yield {
            "x": number,
            "push_events_per_s": round(pushed.per_second),
            "pop_ack_events_per_s": round(popped.per_second),
            "cpu_s_per_million": round(push_cpu + pop_cpu, 2),
        }
        await bench.q.queue(queue.name).delete()


async def groups(bench: Bench, plan: Plan) -> AsyncIterator[Point]:
    """Read one queue with several groups at once."""
    for number in plan.points["groups"]:
        queue = await bench.new_queue(HASH, _BATCH)
        await bench.fill(queue, plan.queue_events, tasks=TASKS)
        popped, cpu = await _read(bench, queue, number, f"groups {number}")
        yield {
            "x": number,
            "events_per_s": round(popped.per_second),
            "events_per_s_of_each": round(popped.per_second / number),
            "cpu_s_per_million": round(cpu, 2),
        }
        await bench.q.queue(queue.name).delete()


async def _read(
    bench: Bench, queue: LoadedQueue, groups: int, label: str, *, partitions: int = 1
) -> tuple[Rate, float]:
    """Read a whole queue with several groups at once. Return their total rate, and CPU seconds per million events."""
    names = [f"group-{number}" for number in range(groups)]
    readings = [Reading(queue.ledger) for _ in names]
    tasks = max(TASKS // groups, 1)

    async def read(name: str, reading: Reading, limit: int) -> None:
        _, stamps = await bench.pop(
            queue, name, batch=_BATCH, tasks=tasks, seconds=_TIMEOUT_SECONDS, limit=limit, partitions=partitions
        )
        reading.add(stamps)

    meter, before = Meter(), bench.server.cpu_seconds()
    limit = int(len(queue.ledger) * _TIMED_SHARE)
    with meter:
        await asyncio.gather(*[read(name, reading, limit) for name, reading in zip(names, readings, strict=True)])
    rate = Rate(sum(reading.events for reading in readings), meter.seconds, meter.cpu)
    cpu = (rate.cpu + bench.server.cpu_seconds() - before) / rate.events * 1e6
    print(f"  {label:<24} {rate.per_second:>10,.0f} events/s  {cpu:.2f} CPU s per million", flush=True)
    for name, reading in zip(names, readings, strict=True):
        await read(name, reading, len(queue.ledger) - reading.events)
        problems = reading.finish() + await bench.not_completed(queue, name, reading.events)
        bench.checks.expect_none(f"{label}: each event read once by each group, in order per key", problems)
    return rate, cpu
