"""Load generator: concurrent tasks on one event loop, each with one request in flight.

Events are generated in slices before each slice is pushed at full speed. The measured time excludes their generation,
and their memory is bounded.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from benchmarks.load.events import EventBatch
from benchmarks.load.ledger import Ledger
from benchmarks.load.meter import Meter, Rate

Payload = TypeVar("Payload")

_SLICE_SECONDS = 1.0
_SLICE_EVENTS = 250_000
#: Grace period after the planned end of a load.
_TIMEOUT_SECONDS = 60.0


async def push(
    ledger: Ledger,
    send: Callable[[int, Payload], Awaitable[None]],
    wrap: Callable[[EventBatch], Payload],
    *,
    tasks: int,
    seconds: float,
    meter: Meter | None = None,
) -> Rate:
    """Push for a time. ``send`` receives the number of its task.

    A short first slice is not measured: it opens connections and prepares statements.
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
    wrap: Callable[[EventBatch], Payload],
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
    limit: int,
    meter: Meter | None = None,
) -> tuple[Rate, list[int]]:
    """Pop for a time or up to a number of events. Return the rate and the ``ts`` of the events in order.

    ``take`` pops, decodes and acknowledges once. It appends the ``ts`` of the events to the list before it
    acknowledges them, and returns their number.
    """
    meter = meter or Meter()
    stamps: list[int] = []
    events = 0

    async def work(task: int) -> None:
        nonlocal events
        while events < limit and time.perf_counter() < until:
            took = await take(task, stamps)  # not `events += await`, which reads the count before it waits
            events += took

    with _frozen_garbage(), meter:
        until = time.perf_counter() + seconds
        await _run_tasks(work, tasks, seconds + _TIMEOUT_SECONDS)
    return Rate(events, meter.seconds, meter.cpu), stamps


async def _push_slice(
    ledger: Ledger,
    send: Callable[[int, Payload], Awaitable[None]],
    wrap: Callable[[EventBatch], Payload],
    tasks: int,
    batches: int,
    meter: Meter,
) -> int:
    slice_ = [(events.first // ledger.batch, wrap(events)) for events in ledger.generate(batches)]
    started, completed, now = ledger.started, ledger.completed, time.perf_counter
    left = iter(slice_)

    async def work(task: int) -> None:
        for batch, payload in left:
            started[batch] = now()
            await send(task, payload)
            completed[batch] = now()

    with _frozen_garbage(), meter:
        await _run_tasks(work, tasks, _TIMEOUT_SECONDS)
    return batches * ledger.batch


async def _run_tasks(work: Callable[[int], Awaitable[None]], tasks: int, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*[work(task) for task in range(tasks)])
    except TimeoutError:
        raise RuntimeError(f"a request got no response within {timeout:.0f} s") from None


@contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Exclude the generated events from garbage collection. A real producer would not hold them all."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
