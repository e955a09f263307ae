"""Driving: so many tasks on one event loop, each with one request under way at a time.

The events of a run are made in slices, outside the measured time: each slice is then pushed at full speed. So the cost
of making them is nobody's, and the memory they take is bounded.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from benchmarks.load.events import Made
from benchmarks.load.ledger import Ledger
from benchmarks.load.meter import Meter, Rate

Payload = TypeVar("Payload")

_SLICE_SECONDS = 1.0
_SLICE_EVENTS = 250_000
#: A load that has not ended by so much later is one that hangs.
_PATIENCE_SECONDS = 60.0


async def push(
    ledger: Ledger,
    send: Callable[[int, Payload], Awaitable[None]],
    wrap: Callable[[Made], Payload],
    *,
    tasks: int,
    seconds: float,
    meter: Meter | None = None,
) -> Rate:
    """Push for so many seconds; ``send`` is told which task it runs in.

    A first, short slice is not measured: it opens connections and prepares statements.
    """
    meter = meter or Meter()
    warm = Meter()
    pushed = await _push_slice(ledger, send, wrap, tasks, tasks * 2, warm)
    rate = Rate()
    speed = pushed / warm.seconds
    while rate.seconds < seconds:
        aim = min(max(seconds - rate.seconds, 0.05), _SLICE_SECONDS) * speed
        batches = max(int(min(aim, _SLICE_EVENTS)) // ledger.batch, tasks)
        rate.events += await _push_slice(ledger, send, wrap, tasks, batches, meter)
        rate.seconds, rate.cpu = meter.seconds, meter.cpu
        speed = rate.per_second
    return rate


async def push_all(
    ledger: Ledger,
    send: Callable[[int, Payload], Awaitable[None]],
    wrap: Callable[[Made], Payload],
    *,
    tasks: int,
    events: int,
) -> Rate:
    """Push a number of events, in whole batches."""
    meter, rate = Meter(), Rate()
    left = -(-events // ledger.batch)
    while left > 0:
        batches = min(left, max(_SLICE_EVENTS // ledger.batch, 1))
        rate.events += await _push_slice(ledger, send, wrap, tasks, batches, meter)
        left -= batches
    rate.seconds, rate.cpu = meter.seconds, meter.cpu
    return rate


async def pop(
    take: Callable[[int, list[int]], Awaitable[int]],
    *,
    tasks: int,
    seconds: float,
    most: int,
    meter: Meter | None = None,
) -> tuple[Rate, list[int]]:
    """Pop for so many seconds, or until so many events; answers the rate and the events' ``ts`` as they came.

    ``take`` pops, decodes and acknowledges once: it adds the events' ``ts`` to the list before it acknowledges them,
    and answers how many there were.
    """
    meter = meter or Meter()
    stamps: list[int] = []
    events = 0

    async def work(task: int) -> None:
        nonlocal events
        while events < most and time.perf_counter() < until:
            took = await take(task, stamps)  # not `events +=`, which would read the count before it waits
            events += took

    with _quiet_collector(), meter:
        until = time.perf_counter() + seconds
        await _together(work, tasks, seconds + _PATIENCE_SECONDS)
    return Rate(events, meter.seconds, meter.cpu), stamps


async def _push_slice(
    ledger: Ledger,
    send: Callable[[int, Payload], Awaitable[None]],
    wrap: Callable[[Made], Payload],
    tasks: int,
    batches: int,
    meter: Meter,
) -> int:
    slice_ = [(made.first // ledger.batch, wrap(made)) for made in ledger.make(batches)]
    started, answered, now = ledger.started, ledger.answered, time.perf_counter
    left = iter(slice_)

    async def work(task: int) -> None:
        for batch, payload in left:
            started[batch] = now()
            await send(task, payload)
            answered[batch] = now()

    with _quiet_collector(), meter:
        await _together(work, tasks, _PATIENCE_SECONDS)
    return batches * ledger.batch


async def _together(work: Callable[[int], Awaitable[None]], tasks: int, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await asyncio.gather(*[work(task) for task in range(tasks)])
    except TimeoutError:
        raise RuntimeError(f"a request was still not answered after {patience:.0f} s") from None


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Keep the collector off the load that lies ready: only the benchmark has that, not its users."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
