"""Measures whether a queue slows down as its history grows."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.load.events import Generator
from benchmarks.log.bench import Bench, LoadedQueue, ndjson
from benchmarks.log.paired_runs import GROUP, Side, compare, run_alternating
from benchmarks.log.plan import TASKS
from benchmarks.log.prefilled_queues import HASH

_BATCH = 100
_FILL_BATCH = 2000


async def history_ratio(bench: Bench) -> dict[str, Any]:
    """Return the ratio of the throughput with a long history to that with a short one.

    The group starts at the end of the history.
    """
    plan = bench.plan
    print(
        f"history_ratio: push, and pop and ack, {_BATCH} at a time, {TASKS} tasks, with {plan.history_large:,} events "
        f"of history and with {plan.history_small:,}, alternating",
        flush=True,
    )
    lines = [ndjson(Generator(seed=seed).generate(_FILL_BATCH)) for seed in range(50)]
    large = await _with_history(bench, plan.history_large, lines)
    small = await _with_history(bench, plan.history_small, lines)
    await run_alternating(small, large, plan.history_rounds, plan.round_seconds)
    for side, name in ((large, "large"), (small, "small")):
        check = f"history_ratio: each event read once, in order per key ({name} history)"
        bench.checks.expect_none(check, await side.finish())
        await bench.q.queue(side.queue.name).delete()
    compared = compare(large, small)
    print(f"  push {compared['push']:.2f}, pop and ack {compared['pop_ack']:.2f}", flush=True)
    return compared


async def _with_history(bench: Bench, events: int, lines: list[bytes]) -> Side:
    queue: LoadedQueue = await bench.new_queue(HASH, _BATCH)
    handle = bench.q.queue(queue.name)
    batches = iter(range(events // _FILL_BATCH))
    accepted = 0

    async def work() -> None:
        nonlocal accepted
        for batch in batches:
            result = await handle.push_ndjson(lines[batch % len(lines)])
            accepted += result.accepted

    await asyncio.gather(*[work() for _ in range(TASKS)])
    bench.checks.expect("history_ratio: the history was stored", accepted == events, f"{accepted} of {events} events")
    # The first pop creates the group.
    await handle.group(GROUP).subscription_from("now").pop()
    return Side(bench, queue, _BATCH)
