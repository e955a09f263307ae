"""Open-loop load generator: pushes events at a fixed rate until standard input ends.

It is a separate process, so that neither the engine nor the poller delays it. It prints one line of JSON: the number of
events, and number, key and push time of each probe event, on the monotonic clock of the machine.
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


class LoadSpec(msgspec.Struct, frozen=True):
    """The load: events for a queue or, without a URL, files in a directory."""

    target: str
    rate: int
    url: str | None = None


class Event(msgspec.Struct, frozen=True):
    """An event: its key, its number, and its time in milliseconds."""

    key: str
    seq: int
    ts: int


class Pushed(msgspec.Struct):
    """The result of a run."""

    events: int = 0
    #: Number, key and push time of each probe event.
    probes: list[tuple[int, str, float]] = msgspec.field(default_factory=list)
    #: Delay of each push after its scheduled time, in ms.
    late_ms: list[float] = msgspec.field(default_factory=list)


async def push(spec: LoadSpec, until: asyncio.Event) -> Pushed:
    """Push until ``until`` is set. A push does not wait for the previous one."""
    if spec.url is None:
        return await _pace(spec.rate, FILE_MS / 1000, _file_writer(Path(spec.target)), until)
    async with Penstock(spec.url) as q:
        handle = q.queue(spec.target)

        async def send(events: list[Event]) -> None:
            await handle.push([{"key": event.key, "data": {"seq": event.seq, "ts": event.ts}} for event in events])

        return await _pace(spec.rate, PUSH_MS / 1000, send, until)


async def _pace(
    rate: int, every: float, send: Callable[[list[Event]], Awaitable[None]], until: asyncio.Event
) -> Pushed:
    random, probes, pushed = Random(_SEED), frozenset(PROBES), Pushed()
    in_flight: set[asyncio.Task[None]] = set()
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
        in_flight.add(task)
        for done in [task for task in in_flight if task.done()]:
            done.result()
            in_flight.discard(done)
    await asyncio.gather(*in_flight)
    return pushed


def _file_writer(directory: Path) -> Callable[[list[Event]], Awaitable[None]]:
    numbers, encoder = count(1), msgspec.json.Encoder()

    async def write(events: list[Event]) -> None:
        number = next(numbers)
        # Spark ignores names that begin with a dot, so it sees only complete files.
        hidden = directory / f".{number:08d}.json"
        hidden.write_bytes(encoder.encode_lines(events))
        hidden.rename(directory / f"{number:08d}.json")

    return write


async def main() -> None:
    until = asyncio.Event()
    pushing = asyncio.create_task(push(msgspec.json.decode(sys.argv[1], type=LoadSpec), until))
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait((pushing, reading), return_when=asyncio.FIRST_COMPLETED)
    until.set()
    sys.stdout.buffer.write(msgspec.json.encode(await pushing) + b"\n")


if __name__ == "__main__":
    asyncio.run(main())
