"""The inner side of a peer: takes orders as lines of JSON, runs cells, answers each with a line of JSON.

Runs in the peer's own environment, so only the standard library and the shared load are imported here.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Protocol

from benchmarks.load import drive
from benchmarks.load.events import Data, Generator, Made
from benchmarks.load.ledger import Ledger, Reading
from benchmarks.load.meter import Meter, Rate

_FILL_BATCH = 1000
_LEAST_STOCK = 5_000


class Peer(Protocol):
    """A queue of another make, with as many connections as there are tasks."""

    async def open(self, url: str, tasks: int) -> dict[str, str]:
        """Install it, connect, and answer what versions are at work."""
        ...

    async def clear(self) -> None:
        """Begin with an empty queue."""
        ...

    async def settle(self) -> None:
        """Bring its statistics up to date, after a large fill."""
        ...

    async def size(self) -> tuple[int, int]:
        """Return its number of events and the bytes of its tables, TOAST and indexes."""
        ...

    async def push(self, task: int, events: list[Data]) -> None: ...

    async def pop_ack(self, task: int, batch: int, stamps: list[int]) -> int:
        """Take, decode, note the events' ``ts``, acknowledge, and answer how many there were."""
        ...


def serve(peer: Peer) -> None:
    """Follow orders until standard input ends."""
    asyncio.run(_serve(peer))


async def _serve(peer: Peer) -> None:
    tasks = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        order: dict[str, Any] = json.loads(line)
        answer: dict[str, Any]
        try:
            match order["do"]:
                case "open":
                    tasks = order["tasks"]
                    answer = {"versions": await peer.open(order["url"], tasks)}
                case "push":
                    answer = await _push(peer, tasks, order["batch"], order["seconds"])
                case "pop_ack":
                    answer = await _pop_ack(peer, tasks, order["batch"], order["seconds"])
                case unknown:
                    answer = {"error": f"no such order: {unknown}"}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


async def _push(peer: Peer, tasks: int, batch: int, seconds: float) -> dict[str, Any]:
    await peer.clear()
    ledger = Ledger(Generator(), batch)
    rate = await drive.push(ledger, peer.push, _data, tasks=tasks, seconds=seconds)
    events, stored = await peer.size()
    problems = [] if events == len(ledger) else [f"{len(ledger)} events were pushed and {events} stored"]
    return _answer(rate, problems) | {"stored": events, "bytes_per_event": stored / max(events, 1)}


async def _pop_ack(peer: Peer, tasks: int, batch: int, seconds: float) -> dict[str, Any]:
    """Fill, pop most of it, and again until the time is up; nothing may come twice or be missing from what is left."""
    await peer.clear()
    ledger = Ledger(Generator(), _FILL_BATCH)
    reading = Reading(ledger, in_order=False)
    rate, meter = Rate(), Meter()

    async def take(task: int, stamps: list[int]) -> int:
        return await peer.pop_ack(task, batch, stamps)

    stock = max(_LEAST_STOCK, 2 * tasks * batch)
    while rate.seconds < seconds:
        left = len(ledger) - reading.events
        await drive.push_all(ledger, peer.push, _data, tasks=tasks, events=max(stock - left, _FILL_BATCH))
        await peer.settle()
        most = int((len(ledger) - reading.events) * 0.9)
        more, stamps = await drive.pop(take, tasks=tasks, seconds=seconds - rate.seconds, most=most, meter=meter)
        reading.add(stamps)
        rate.events += more.events
        rate.seconds, rate.cpu = meter.seconds, meter.cpu
        stock = max(stock, int(rate.per_second * (seconds - rate.seconds) * 1.2))
    events, _ = await peer.size()
    if events != len(ledger) - reading.events:
        reading.problems.append(f"{len(ledger)} were pushed, {reading.events} popped, and {events} are left")
    return _answer(rate, reading.problems)


def _data(made: Made) -> list[Data]:
    return made.data


def _answer(rate: Rate, problems: list[str]) -> dict[str, Any]:
    return {"events": rate.events, "seconds": rate.seconds, "cpu": rate.cpu, "problems": problems}
