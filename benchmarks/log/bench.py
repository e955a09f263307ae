"""The parts that all measurements share: the server, the client, and the queues to load and check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import msgspec

from benchmarks.load import drive
from benchmarks.load.events import USERS, Generator, Made
from benchmarks.load.ledger import Ledger, Reading
from benchmarks.load.meter import Meter, Rate
from benchmarks.log.checks import Checks
from benchmarks.log.plan import Plan
from benchmarks.log.server import Server
from penstock import Penstock, PushResult
from penstock.client.queue import QueueHandle


class _Told(msgspec.Struct):
    ts: int
    amount: int


_encoder = msgspec.json.Encoder()
_told = msgspec.json.Decoder(_Told)
_numbers = count(1)
_WAIT_MILLIS = 50
_DEDUP_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of queue: by hash with a number of partitions, or by key with a lane per user."""

    name: str
    partitions: int | None = 8
    users: int = USERS
    dedup: bool = False

    @property
    def lanes(self) -> int:
        return self.users if self.partitions is None else self.partitions


@dataclass(slots=True)
class Outcome:
    """A measured cell: the rate, and the CPU seconds of client and server per million events."""

    rate: Rate
    client_cpu: float
    server_cpu: float


@dataclass(slots=True)
class LoadedQueue:
    """A queue with everything that was pushed to it."""

    name: str
    kind: Kind
    ledger: Ledger


def envelopes(made: Made) -> list[dict[str, object]]:
    """Events as a producer pushes them: data, a key that orders them, an id."""
    return [{"id": id_, "key": data["user"], "data": data} for data, id_ in zip(made.data, made.ids, strict=True)]


def ndjson(made: Made) -> bytes:
    """Events as lines of JSON."""
    return _encoder.encode_lines(made.data)


@dataclass(slots=True)
class Bench:
    """A run."""

    server: Server
    url: str
    q: Penstock
    plan: Plan
    checks: Checks = field(default_factory=Checks)

    async def new_queue(self, kind: Kind, batch: int, *, each_once: bool = False) -> LoadedQueue:
        name = f"{kind.name}-{next(_numbers)}"
        handle = self.q.queue(name).config(
            dedup_window_seconds=_DEDUP_SECONDS if kind.dedup else 0, max_depth_events=None
        )
        await handle.create("key" if kind.partitions is None else "hash", kind.partitions)
        return LoadedQueue(name, kind, Ledger(Generator(kind.users, each_once=each_once), batch))

    async def push(self, queue: LoadedQueue, *, tasks: int, seconds: float, meter: Meter | None = None) -> Rate:
        """Push dicts at full speed."""
        return await drive.push(queue.ledger, self._sender(queue), envelopes, tasks=tasks, seconds=seconds, meter=meter)

    async def push_ndjson(
        self, queue: LoadedQueue, *, key_field: str | None, tasks: int, seconds: float, meter: Meter | None = None
    ) -> Rate:
        """Push bytes at full speed."""
        handle = self.q.queue(queue.name)

        async def send(_: int, lines: bytes) -> None:
            all_accepted(await handle.push_ndjson(lines, key_field), queue.ledger.batch)

        return await drive.push(queue.ledger, send, ndjson, tasks=tasks, seconds=seconds, meter=meter)

    async def fill(self, queue: LoadedQueue, events: int, *, tasks: int) -> Rate:
        """Push a number of events as dicts."""
        return await drive.push_all(queue.ledger, self._sender(queue), envelopes, tasks=tasks, events=events)

    async def pop(
        self,
        queue: LoadedQueue,
        group: str,
        *,
        batch: int,
        tasks: int,
        seconds: float,
        most: int,
        partitions: int = 1,
        meter: Meter | None = None,
    ) -> tuple[Rate, list[int]]:
        """Pop, decode and acknowledge at full speed."""
        handle = self._reader(queue, group, batch, partitions)

        async def take(_: int, stamps: list[int]) -> int:
            events = await handle.pop()
            if not events:
                return 0
            stamps += [event.data["ts"] for event in events]
            await self.q.ack(events)
            return len(events)

        return await drive.pop(take, tasks=tasks, seconds=seconds, most=most, meter=meter)

    async def verify(self, check: str, queue: LoadedQueue, *, ids: bool = True, in_order: bool = True) -> None:
        """Read the whole queue and hold it against the ledger."""
        reading = Reading(queue.ledger, in_order=in_order)
        handle = self._reader(queue, "oracle", 4000, queue.kind.lanes)
        while events := await handle.pop():
            said = _told.decode_lines(b"\n".join([event.raw for event in events]))
            reading.add(
                [each.ts for each in said],
                [each.amount for each in said],
                [event.id for event in events] if ids else None,
            )
            await self.q.ack(events)
        self.checks.expect_none(check, reading.finish() + await self.not_completed(queue, "oracle", reading.events))

    async def not_completed(self, queue: LoadedQueue, group: str, acknowledged: int) -> list[str]:
        """Return a problem if a group that started at the beginning has not completed all acknowledged events."""
        completed = len(queue.ledger) - await self.q.queue(queue.name).group(group).lag()
        if completed == acknowledged:
            return []
        return [f"{acknowledged} events were acknowledged and the group completed {completed}"]

    def _sender(self, queue: LoadedQueue) -> Callable[[int, list[dict[str, object]]], Awaitable[None]]:
        handle = self.q.queue(queue.name)

        async def send(_: int, events: list[dict[str, object]]) -> None:
            all_accepted(await handle.push(events), len(events))

        return send

    def _reader(self, queue: LoadedQueue, group: str, batch: int, partitions: int) -> QueueHandle:
        handle = self.q.queue(queue.name).group(group).batch(batch).partitions(partitions)
        return handle.wait().timeout_millis(_WAIT_MILLIS)


def all_accepted(result: PushResult, pushed: int) -> None:
    """Raise if a push did not store all its events anew."""
    if result.accepted != pushed:
        raise RuntimeError(f"{pushed} events were pushed and {result.accepted} accepted")
