"""The pusher: events at a fixed rate, whatever becomes of them, until standard input ends.

Its own process, so that neither the engine nor the poller makes it wait. It answers with one line of JSON: how many
events it pushed, and of each event of a probe its number, its key and when its push was called, on the machine's
monotonic clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random

import msgspec

from benchmarks.freshness.plan import FILE_MS, KEYS, PROBES, PUSH_MS
from penstock import Penstock

_SEED = 20_260_131


class Order(msgspec.Struct, frozen=True):
    """The load of a pusher: events for a queue, or without a URL files in a directory."""

    target: str
    rate: int
    url: str | None = None


class Event(msgspec.Struct, frozen=True):
    """An event: its key, its number, and its time in milliseconds."""

    key: str
    seq: int
    ts: int


class Pushed(msgspec.Struct):
    """The events pushed."""

    events: int = 0
    #: Number, key and time of push, of each event of a probe.
    probes: list[tuple[int, str, float]] = msgspec.field(default_factory=list)
    #: How late each push was called, in ms: the generator's own fault.
    late_ms: list[float] = msgspec.field(default_factory=list)


async def push(order: Order, until: asyncio.Event) -> Pushed:
    """Push until told to stop; a push does not wait for the one before it."""
    if order.url is None:
        return await _pace(order.rate, FILE_MS / 1000, _file_writer(Path(order.target)), until)
    async with Penstock(order.url) as q:
        handle = q.queue(order.target)

        async def send(events: list[Event]) -> None:
            await handle.push([{"key": event.key, "data": {"seq": event.seq, "ts": event.ts}} for event in events])

        return await _pace(order.rate, PUSH_MS / 1000, send, until)


async def _pace(
    rate: int, every: float, send: Callable[[list[Event]], Awaitable[None]], until: asyncio.Event
) -> Pushed:
    random, probes, pushed = Random(_SEED), frozenset(PROBES), Pushed()
    under_way: set[asyncio.Task[None]] = set()
    began = time.monotonic()
    for tick in count(1):
        due = began + tick * every
        await asyncio.sleep(max(due - time.monotonic(), 0))
        if until.is_set():
            break
        first, last = pushed.events, int(tick * every * rate)
        stamp = time.time_ns() // 1_000_000
        events = [Event(f"k{random.randrange(KEYS)}", seq, stamp) for seq in range(first, last)]
        now = time.monotonic()
        pushed.probes += [(event.seq, event.key, now) for event in events if event.key in probes]
        pushed.late_ms.append((now - due) * 1000)
        pushed.events = last
        task = asyncio.ensure_future(send(events))
        under_way.add(task)
        for done in [task for task in under_way if task.done()]:
            done.result()
            under_way.discard(done)
    await asyncio.gather(*under_way)
    return pushed


def _file_writer(directory: Path) -> Callable[[list[Event]], Awaitable[None]]:
    numbers, encoder = count(1), msgspec.json.Encoder()

    async def write(events: list[Event]) -> None:
        number = next(numbers)
        # Spark leaves out names that begin with a dot, and so sees only whole files.
        hidden = directory / f".{number:08d}.json"
        hidden.write_bytes(encoder.encode_lines(events))
        hidden.rename(directory / f"{number:08d}.json")

    return write


async def main() -> None:
    """Push as the argument says."""
    until = asyncio.Event()
    pushing = asyncio.create_task(push(msgspec.json.decode(sys.argv[1], type=Order), until))
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait((pushing, reading), return_when=asyncio.FIRST_COMPLETED)
    until.set()
    sys.stdout.buffer.write(msgspec.json.encode(await pushing) + b"\n")


if __name__ == "__main__":
    asyncio.run(main())
