"""State that all measurements of the log share: server, client, and queues that are loaded and checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import msgspec

from benchmarks.load import generator
from benchmarks.load.events import USERS, EventBatch, Generator
from benchmarks.load.ledger import Ledger, Reading
from benchmarks.load.meter import Meter, Rate
from benchmarks.log.checks import Checks
from benchmarks.log.plan import Plan
from benchmarks.log.server import Server
from penstock import Penstock, PushResult
from penstock.client.queue import QueueHandle


class _EventData(msgspec.Struct):
    ts: int
    amount: int


_encoder = msgspec.json.Encoder()
_event_data_decoder = msgspec.json.Decoder(_EventData)
_numbers = count(1)
_WAIT_MILLIS = 50
_DEDUP_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of queue: hash-partitioned, or with one key partition per user."""

    name: str
    partitions: int | None = 8
    users: int = USERS
    dedup: bool = False

    @property
    def partition_count(self) -> int:
        return self.users if self.partitions is None else self.partitions


@dataclass(slots=True)
class CellResult:
    """The result of a cell: the rate, and the CPU seconds of client and server per million events."""

    rate: Rate
    client_cpu: float
    server_cpu: float


@dataclass(slots=True)
class LoadedQueue:
    """A queue and the ledger of the events pushed to it."""

    name: str
    kind: Kind
    ledger: Ledger


def envelopes(batch: EventBatch) -> list[dict[str, object]]:
    """Return events as a producer pushes them: data, key and id."""
    return [{"id": id_, "key": data["user"], "data": data} for data, id_ in zip(batch.data, batch.ids, strict=True)]


def ndjson(batch: EventBatch) -> bytes:
    """Return events as NDJSON."""
    return _encoder.encode_lines(batch.data)


@dataclass(slots=True)
class Bench:
    """The server, client, plan and checks of a run."""

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
        """Push dicts at full speed for a time."""
        return await generator.push(
            queue.ledger, self._sender(queue), envelopes, tasks=tasks, seconds=seconds, meter=meter
        )

    async def push_ndjson(
        self, queue: LoadedQueue, *, key_field: str | None, tasks: int, seconds: float, meter: Meter | None = None
    ) -> Rate:
        """Push NDJSON at full speed for a time."""
        handle = self.q.queue(queue.name)

        async def send(_: int, lines: bytes) -> None:
            all_accepted(await handle.push_ndjson(lines, key_field), queue.ledger.batch)

        return await generator.push(queue.ledger, send, ndjson, tasks=tasks, seconds=seconds, meter=meter)

    async def fill(self, queue: LoadedQueue, events: int, *, tasks: int) -> Rate:
        """Push a number of events as dicts."""
        return await generator.push_all(queue.ledger, self._sender(queue), envelopes, tasks=tasks, events=events)

    async def pop(
        self,
        queue: LoadedQueue,
        group: str,
        *,
        batch: int,
        tasks: int,
        seconds: float,
        limit: int,
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

        return await generator.pop(take, tasks=tasks, seconds=seconds, limit=limit, meter=meter)

    async def verify(self, check: str, queue: LoadedQueue, *, ids: bool = True, in_order: bool = True) -> None:
        """Read the whole queue and compare it with the ledger."""
        reading = Reading(queue.ledger, in_order=in_order)
        handle = self._reader(queue, "oracle", 4000, queue.kind.partition_count)
        while events := await handle.pop():
            decoded = _event_data_decoder.decode_lines(b"\n".join([event.raw for event in events]))
            reading.add(
                [data.ts for data in decoded],
                [data.amount for data in decoded],
                [event.id for event in events] if ids else None,
            )
            await self.q.ack(events)
        self.checks.expect_none(check, reading.finish() + await self.not_completed(queue, "oracle", reading.events))

    async def not_completed(self, queue: LoadedQueue, group: str, acknowledged: int) -> list[str]:
        """Return a problem if the group did not complete exactly the acknowledged events."""
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
    """Raise if a push did not store all its events."""
    if result.accepted != pushed:
        raise RuntimeError(f"{pushed} events were pushed and {result.accepted} accepted")
