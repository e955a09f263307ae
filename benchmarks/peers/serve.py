"""Process of a peer queue: runs requests from standard input, one line of JSON each, and writes responses.

It runs in the environment of the peer and imports only the standard library and the load generator.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Protocol

from benchmarks.load import generator
from benchmarks.load.events import Data, EventBatch, Generator
from benchmarks.load.ledger import Ledger, Reading
from benchmarks.load.meter import Meter, Rate

_FILL_BATCH = 1000
_MIN_PREFILL = 5_000


class Peer(Protocol):
    """Another queue system, with one connection per task."""

    async def open(self, url: str, tasks: int) -> dict[str, str]:
        """Install it, connect, and return the versions of its packages."""
        ...

    async def clear(self) -> None:
        """Empty the queue."""
        ...

    async def settle(self) -> None:
        """Update the table statistics after a large fill."""
        ...

    async def size(self) -> tuple[int, int]:
        """Return its number of events and the bytes of its tables, TOAST and indexes."""
        ...

    async def push(self, task: int, events: list[Data]) -> None: ...

    async def pop_ack(self, task: int, batch: int, stamps: list[int]) -> int:
        """Pop, decode, append the ``ts`` of the events to ``stamps``, acknowledge, and return their number."""
        ...


def serve(peer: Peer) -> None:
    """Run requests until standard input ends."""
    asyncio.run(_serve(peer))


async def _serve(peer: Peer) -> None:
    tasks = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        request: dict[str, Any] = json.loads(line)
        response: dict[str, Any]
        try:
            match request["do"]:
                case "open":
                    tasks = request["tasks"]
                    response = {"versions": await peer.open(request["url"], tasks)}
                case "push":
                    response = await _push(peer, tasks, request["batch"], request["seconds"])
                case "pop_ack":
                    response = await _pop_ack(peer, tasks, request["batch"], request["seconds"])
                case unknown:
                    response = {"error": f"unknown request: {unknown}"}
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(response), flush=True)


async def _push(peer: Peer, tasks: int, batch: int, seconds: float) -> dict[str, Any]:
    await peer.clear()
    ledger = Ledger(Generator(), batch)
    rate = await generator.push(ledger, peer.push, _data, tasks=tasks, seconds=seconds)
    events, stored = await peer.size()
    problems = [] if events == len(ledger) else [f"{len(ledger)} events were pushed and {events} stored"]
    return _response(rate, problems) | {
        "stored": events,
        "bytes_per_event": stored / max(events, 1),
        "amount": sum(ledger.amounts),
    }


async def _pop_ack(peer: Peer, tasks: int, batch: int, seconds: float) -> dict[str, Any]:
    """Fill the queue and pop most of it, repeatedly, until the time is up. Check for duplicates and losses."""
    await peer.clear()
    ledger = Ledger(Generator(), _FILL_BATCH)
    reading = Reading(ledger, in_order=False)
    rate, meter = Rate(), Meter()

    async def take(task: int, stamps: list[int]) -> int:
        return await peer.pop_ack(task, batch, stamps)

    prefill = max(_MIN_PREFILL, 2 * tasks * batch)
    while rate.seconds < seconds:
        left = len(ledger) - reading.events
        await generator.push_all(ledger, peer.push, _data, tasks=tasks, events=max(prefill - left, _FILL_BATCH))
        await peer.settle()
        limit = int((len(ledger) - reading.events) * 0.9)
        more, stamps = await generator.pop(take, tasks=tasks, seconds=seconds - rate.seconds, limit=limit, meter=meter)
        reading.add(stamps)
        rate.events += more.events
        rate.seconds, rate.cpu = meter.seconds, meter.cpu
        prefill = max(prefill, int(rate.per_second * (seconds - rate.seconds) * 1.2))
    events, _ = await peer.size()
    if events != len(ledger) - reading.events:
        reading.problems.append(f"{len(ledger)} events were pushed, {reading.events} popped, and {events} remain")
    return _response(rate, reading.problems)


def _data(batch: EventBatch) -> list[Data]:
    return batch.data


def _response(rate: Rate, problems: list[str]) -> dict[str, Any]:
    return {"events": rate.events, "seconds": rate.seconds, "cpu": rate.cpu, "problems": problems}
