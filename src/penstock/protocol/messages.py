"""What the server and the client say to each other under ``/v1``: the types of the JSON in both directions.

They are here, below both, because neither may know the other. What the log's own types say well enough as JSON
(:class:`~penstock.log.storage.depth.QueueSize`, :class:`~penstock.log.log.GroupInfo`, ...) is used as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Raw, Struct, field

from penstock.core.timestamps import to_micros
from penstock.log import options
from penstock.log.dead_letters import DeadLetter, Filter
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.groups import GroupLane
from penstock.log.queue import Queue
from penstock.log.read.ack_request import Ack as Ack
from penstock.log.read.ack_request import Acked as Acked
from penstock.log.read.ack_request import Number as Number
from penstock.log.read.ack_request import TransactionAck as TransactionAck
from penstock.log.storage import chunk
from penstock.log.storage.depth import GroupLag, QueueSize
from penstock.log.storage.partitions import Partition
from penstock.log.write.result import Placed, PushResult

#: The header that makes a push, or a transaction, safe to repeat.
IDEMPOTENCY_KEY = "Idempotency-Key"
#: Most events of one pop, one look or one ack; who wants more asks again.
MOST_EVENTS = 10_000
#: Longest that one request waits for events; who wants to wait longer asks again.
MOST_WAIT_SECONDS = 60.0


# Queues


class QueueDocument(Struct, frozen=True):
    """A queue: how it is partitioned and what it was told."""

    id: int
    name: str
    partitioning: Literal["key", "hash"]
    partition_count: int | None
    epoch: int
    segment: int
    created_at: datetime
    lanes_warned_at: datetime | None
    options: dict[str, Any]

    @classmethod
    def of(cls, queue: Queue) -> QueueDocument:
        """A queue as it is told to others."""
        told = {name: getattr(queue, name) for name in cls.__struct_fields__ if name != "options"}
        return cls(**told, options={name: getattr(queue, name) for name in OPTIONS})

    def queue(self) -> Queue:
        """The queue, as far as it was told; an option that the server does not know has its default."""
        told: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__ if name != "options"}
        told |= {"id_segments": [], **options.DEFAULTS, **self.options}
        return Queue(**{each.name: told[each.name] for each in fields(Queue)})


#: The options of a queue.
OPTIONS = (*options.DEFAULTS, "dedup_window_seconds")


class Queues(Struct, frozen=True):
    """All queues that the caller may see, by name."""

    queues: list[QueueDocument]


class QueueStatus(Struct, frozen=True):
    """A queue, how much it holds, and who reads it."""

    queue: QueueDocument
    size: QueueSize
    groups: list[GroupLag]
    dead_letters: int


class QueueChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Options to change; those that are not named stay as they are, null is the default."""

    options: dict[str, Any] = {}


class QueueConfiguration(QueueChange, frozen=True, forbid_unknown_fields=True):
    """What a queue is to be; with ``only_new`` it must not exist yet."""

    partitioning: Literal["key", "hash"] | None = None
    partitions: int | None = None
    only_new: bool = False


class Repartition(Struct, frozen=True, forbid_unknown_fields=True):
    """How a queue is to be partitioned from now on."""

    partitioning: Literal["key", "hash"]
    partitions: int | None = None


class Partitions(Struct, frozen=True):
    """Partitions of a queue, the fullest first."""

    partitions: list[Partition]


# Events


class EventDocument(Struct, frozen=True, omit_defaults=True):
    """An event; ``lease_id``, ``partition_id`` and ``offset`` are what an ack needs. What is null is left out."""

    partition: str
    partition_id: int
    offset: int
    id: str
    appended_at: datetime
    data: Raw
    key: str | None = None
    event_time: datetime | None = None
    headers: dict[str, str] = {}
    redriven: bool = False
    attempts: int = 0
    lease_id: UUID | None = None
    lease_until: datetime | None = None

    @classmethod
    def of(cls, event: Event) -> EventDocument:
        """An event as it is told to others."""
        delivery = event.delivery
        return cls(
            delivery.partition,
            delivery.partition_id,
            event.offset,
            event.id,
            event.appended_at,
            Raw(event.raw),
            event.key,
            event.event_time,
            event.headers,
            event.is_redriven,
            delivery.attempts,
            delivery.lease_id,
            delivery.lease_until,
        )


class Events(Struct, frozen=True):
    """Events. ``more``: there may be others, which did not fit."""

    events: list[EventDocument]
    more: bool = False

    def read(self, queue: str, group: str | None = None) -> list[Event]:
        """The events, as the log itself would give them."""
        found: list[Event] = []
        for _, lane in groupby(self.events, key=lambda event: (event.partition_id, event.lease_id)):
            some = list(lane)
            first = some[0]
            delivery = Delivery(
                queue,
                first.partition,
                first.partition_id,
                # Its key is told, and not to be guessed from the partition's name.
                is_lane=False,
                group=group,
                lease_id=first.lease_id,
                lease_until=first.lease_until,
                lease_end=max(event.offset for event in some) + 1 if first.lease_id is not None else 0,
                attempts=first.attempts,
            )
            for run in _runs(some):
                source = _source(run)
                found += [Event(delivery, source, event.offset) for event in run]
        return found


def _runs(events: Sequence[EventDocument]) -> Iterator[list[EventDocument]]:
    """Events whose offsets go up or down without a gap, stored at the same time: what one chunk can hold."""
    run: list[EventDocument] = []
    step = 0
    for event in events:
        if run:
            move = event.offset - run[-1].offset
            same = event.appended_at == run[-1].appended_at and event.redriven == run[-1].redriven
            if not same or abs(move) != 1 or step not in (0, move):
                yield run
                run, step = [], 0
            else:
                step = move
        run.append(event)
    if run:
        yield run


def _source(run: list[EventDocument]) -> StoredChunk:
    events = run if run[0].offset <= run[-1].offset else run[::-1]
    made_up = [f"{event.partition_id}-{event.offset}" for event in events]
    columns = chunk.Columns(
        b"",
        len(events),
        _column([event.key for event in events]),
        _column([None if event.id == name else event.id for event, name in zip(events, made_up, strict=True)]),
        _column([None if event.event_time is None else to_micros(event.event_time) for event in events]),
        _column([event.headers or None for event in events]),
    )
    return StoredChunk.of(
        columns,
        [bytes(event.data) for event in events],
        events[0].offset,
        events[0].appended_at,
        0 if events[0].redriven else None,
    )


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None


# Pushing


class PushBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Events for one queue; ``key`` is for those that bring none of their own.

    Each event is an object with ``data`` and, if it likes, ``key``, ``id``, ``time`` and ``headers``. They stay JSON
    text until the log looks at them.
    """

    queue: str
    # Made when it is needed: the document of the routes cannot hold it as it is.
    events: Raw = field(default_factory=lambda: Raw(b"[]"))
    key: str | None = None
    #: In place of events: NDJSON, a value a line, and the fields that hold key, id and time.
    ndjson: str | None = None
    key_field: str | None = None
    id_field: str | None = None
    time_field: str | None = None


class Push(Struct, frozen=True, forbid_unknown_fields=True):
    """Events for several queues, which are stored all or not at all."""

    batches: list[PushBatch]


class PushOutcome(Struct, frozen=True, omit_defaults=True):
    """What became of a batch: how many events were stored, and where."""

    accepted: int
    duplicates: int
    placed: list[Placed]
    replayed: bool = False
    #: Events that were dropped, and counted, because the queue was full and sheds.
    shed: int = 0

    @classmethod
    def of(cls, result: PushResult) -> PushOutcome:
        """A result as it is told to others."""
        placed = [each.plain() for each in result.placed()]
        return cls(result.accepted, result.duplicates, placed, result.replayed, result.shed)

    def result(self) -> PushResult:
        """The result, as the log itself would give it."""
        return PushResult(self.placed, replayed=self.replayed, shed=self.shed)


class Pushes(Struct, frozen=True):
    """One outcome for each batch, in order."""

    results: list[PushOutcome]


# Consuming


class Pop(Struct, frozen=True, forbid_unknown_fields=True):
    """What a consumer asks for.

    ``lease_id`` is chosen by a consumer that wants to ask again if the answer is lost: it then names that lease as
    ``instead_of`` (it may be the same), and what was leased under it is free at once and not when the lease ends.
    """

    batch: Annotated[int, Meta(ge=1, le=100_000)] = 1
    partitions: Annotated[int, Meta(ge=1, le=100_000)] = 1
    partition: str | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe_from: str = "beginning"
    lease_id: UUID | None = None
    instead_of: UUID | None = None


class Acks(Struct, frozen=True, forbid_unknown_fields=True):
    """Acks of one group."""

    acks: Annotated[list[Ack], Meta(max_length=MOST_EVENTS)]


class AckResults(Struct, frozen=True):
    """One result for each ack, in order."""

    results: list[Acked]


class Extension(Struct, frozen=True, forbid_unknown_fields=True):
    """A lease that is to last longer, in these partitions."""

    lease_id: UUID
    partition_ids: Annotated[list[Number], Meta(min_length=1, max_length=MOST_EVENTS)]
    seconds: float = 60.0


class Release(Struct, frozen=True, forbid_unknown_fields=True):
    """A lease that is to end now."""

    lease_id: UUID


class Extended(Struct, frozen=True):
    """Until when a lease lasts; null if it has ended."""

    lease_until: datetime | None


class Transaction(Struct, frozen=True, forbid_unknown_fields=True):
    """Acks and pushes that happen together or not at all."""

    acks: Annotated[list[TransactionAck], Meta(max_length=MOST_EVENTS)] = []
    pushes: list[PushBatch] = []


class TransactionOutcome(Struct, frozen=True):
    """What a transaction did."""

    acked: int
    results: list[PushOutcome]


# Groups


class GroupLanes(Struct, frozen=True):
    """Where a group stands in each partition."""

    partitions: list[GroupLane]


class GroupChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a group counts for the depth that a queue's pushes are held against."""

    counts: bool


class Seek(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a group is to go: ``beginning``, ``end``, a time, or in one partition an offset."""

    to: str | Number
    partition: str | None = None


class Moved(Struct, frozen=True):
    """In how many partitions a group was moved."""

    partitions: int


# Dead letters


class DeadLetterDocument(Struct, frozen=True):
    """An event that could not be processed, with where and why."""

    id: int
    queue: str
    partition: str | None
    partition_id: int
    offset: int
    group: str
    key: str | None
    event_id: str | None
    event_time: datetime | None
    appended_at: datetime
    headers: dict[str, str]
    data: Raw
    stage: str
    error: str
    traceback: str | None
    attempts: int
    failed_at: datetime
    first_failed_at: datetime
    redrives: int
    redriven_at: datetime | None
    history: list[dict[str, Any]]

    @classmethod
    def of(cls, letter: DeadLetter) -> DeadLetterDocument:
        """A dead letter as it is told to others."""
        told: dict[str, Any] = {name: getattr(letter, name) for name in cls.__struct_fields__ if name != "data"}
        return cls(**told, data=Raw(letter.raw))

    def letter(self) -> DeadLetter:
        """The dead letter, as the log itself would give it."""
        told = {name: getattr(self, name) for name in self.__struct_fields__ if name != "data"}
        return DeadLetter(**told, raw=bytes(self.data))


class DeadLetters(Struct, frozen=True):
    """Dead letters, newest failure first. ``more``: there are others in the page, which did not fit."""

    dead_letters: list[DeadLetterDocument]
    more: bool = False


class Count(Struct, frozen=True):
    """How many there are, or were."""

    count: int


class Which(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which dead letters: all conditions that are given must hold."""

    ids: Annotated[list[Number], Meta(max_length=100_000)] | None = None
    queue: str | None = None
    group: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, which: Filter) -> Which:
        """A filter as it is told to others."""
        told = {name: getattr(which, name) for name in cls.__struct_fields__}
        return cls(**{**told, "ids": None if which.ids is None else list(which.ids)})

    def filter(self) -> Filter:
        """The filter, checked."""
        return Filter(self.ids, self.queue, self.group, self.key, self.error, self.since, self.until)


class RedriveRequest(Which, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which dead letters to send back: the oldest ``limit`` that match, or ``all`` of them."""

    limit: Annotated[int, Meta(ge=1, le=100_000)] = 100
    all: bool = False


class PurgeRequest(Which, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which dead letters to delete; ``all`` has to be said where no condition is."""

    all: bool = False
