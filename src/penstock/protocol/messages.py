"""Request and response types of the HTTP API under ``/v1``, shared by the server and the client.

This package lies below both, because the server and the client must not import each other. Types of the log that are
suitable as JSON (:class:`~penstock.log.queue_info.QueueSize`, ...) are used directly.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Raw, Struct, field

from penstock.core.errors import InvalidRequest
from penstock.log.coordination.kv import KvOperation, KvResult
from penstock.log.coordination.timers import TimerOperation
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit, DeadLetterFilter
from penstock.log.groups import PartitionPosition
from penstock.log.queue import Queue
from penstock.log.queue_info import GroupInfo, QueueSize
from penstock.log.queue_options import DEFAULTS
from penstock.log.read.ack_request import Ack, AckReply, NonNegativeInt, TransactionAck
from penstock.log.storage.partitions import Partition
from penstock.log.write.push_result import AppendedEvents, PushResult

#: The most events in one pop, read or ack.
MAX_EVENTS = 10_000
#: The longest time that one request waits for events.
MAX_WAIT_SECONDS = 60.0


# Queues


class QueueDocument(Struct, frozen=True):
    """A queue: its partitioning and its options."""

    id: int
    name: str
    partitioning: Literal["key", "hash"]
    partition_count: int | None
    epoch: int
    segment: int
    created_at: datetime
    partitions_warned_at: datetime | None
    options: dict[str, Any]

    @classmethod
    def of(cls, queue: Queue) -> QueueDocument:
        """Convert a queue of the log."""
        values = {name: getattr(queue, name) for name in cls.__struct_fields__ if name != "options"}
        return cls(**values, options={name: getattr(queue, name) for name in OPTIONS})

    def queue(self) -> Queue:
        """Convert to a queue of the log. An option that the server does not know gets its default."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__ if name != "options"}
        values |= {"id_segments": [], **DEFAULTS, **self.options}
        return Queue(**{queue_field.name: values[queue_field.name] for queue_field in fields(Queue)})


#: The names of all queue options.
OPTIONS = (*DEFAULTS, "dedup_window_seconds")


class QueueList(Struct, frozen=True):
    """The queues that the caller may read, ordered by name."""

    queues: list[QueueDocument]


class QueueStatus(Struct, frozen=True):
    """A queue, its size, its consumer groups and its number of dead letters."""

    queue: QueueDocument
    size: QueueSize
    groups: list[GroupInfo]
    dead_letters: int


class QueueUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """Options to change. Options that are left out keep their value; null resets an option to its default."""

    options: dict[str, Any] = {}


class QueueConfiguration(QueueUpdate, frozen=True, forbid_unknown_fields=True):
    """The options and partitioning of a queue. With ``only_new`` the request fails if the queue exists."""

    partitioning: Literal["key", "hash"] | None = None
    partitions: int | None = None
    only_new: bool = False


class RepartitionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A new partitioning for a queue."""

    partitioning: Literal["key", "hash"]
    partitions: int | None = None


class PartitionList(Struct, frozen=True):
    """Partitions of a queue, the largest first."""

    partitions: list[Partition]


# Pushing


class PushBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Events for one queue. ``key`` applies to events without a key of their own.

    Each event is an object with ``data`` and optionally ``key``, ``id``, ``time`` and ``headers``. The events stay JSON
    text until the log encodes them.
    """

    queue: str
    # A factory, because a Raw default cannot be part of the OpenAPI schema.
    events: Raw = field(default_factory=lambda: Raw(b"[]"))
    key: str | None = None
    #: Instead of ``events``: NDJSON, and the names of the fields that hold key, id and time.
    ndjson: str | None = None
    key_field: str | None = None
    id_field: str | None = None
    time_field: str | None = None


class PushRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Events for several queues, stored in one transaction."""

    batches: list[PushBatch]


class BatchResult(Struct, frozen=True, omit_defaults=True):
    """The result of one batch: how many events were stored, and where."""

    accepted: int
    duplicates: int
    placed: list[AppendedEvents]
    replayed: bool = False
    #: Events that were dropped because the queue was full and its ``overflow`` is ``shed``.
    shed: int = 0

    @classmethod
    def of(cls, result: PushResult) -> BatchResult:
        """Convert a push result of the log."""
        placed = [appended.plain() for appended in result.placed()]
        return cls(result.accepted, result.duplicates, placed, result.replayed, result.shed)

    def result(self) -> PushResult:
        """Convert to the push result that the log itself returns."""
        return PushResult(self.placed, replayed=self.replayed, shed=self.shed)


class PushResponse(Struct, frozen=True):
    """One result for each batch, in order."""

    results: list[BatchResult]


# Consuming


class PopOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a pop.

    A consumer may choose the ``lease_id`` so that it can repeat the pop if the response is lost. The repeated pop names
    that lease as ``instead_of``, and its events are released at once instead of when the lease expires. Both may have
    the same value.
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


class AckRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Acks for events of one group."""

    acks: Annotated[list[Ack], Meta(max_length=MAX_EVENTS)]


class AckResponse(Struct, frozen=True):
    """One result for each ack, in order."""

    results: list[AckReply]


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to extend a lease in some partitions."""

    lease_id: UUID
    partition_ids: Annotated[list[NonNegativeInt], Meta(min_length=1, max_length=MAX_EVENTS)]
    seconds: float = 60.0


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to end a lease now."""

    lease_id: UUID


class ExtendResponse(Struct, frozen=True):
    """The new end of the lease, or null if it has expired."""

    lease_until: datetime | None


class TransactionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Acks and pushes that are committed in one transaction."""

    acks: Annotated[list[TransactionAck], Meta(max_length=MAX_EVENTS)] = []
    pushes: list[PushBatch] = []
    kv: list[KvOperation] = []
    timers: list[TimerOperation] = []


class TransactionResponse(Struct, frozen=True):
    """The result of a transaction: the number of acks, and one result for each push."""

    acked: int
    results: list[BatchResult]
    kv: list[KvResult] = []


# Groups


class PartitionPositionList(Struct, frozen=True):
    """The position of a group in each partition."""

    partitions: list[PartitionPosition]


class GroupUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the lag of a group counts towards ``max_depth_events`` of the queue."""

    counts: bool


class SeekRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The new position of a group: ``beginning``, ``end``, a time, or an offset in one partition."""

    to: str | NonNegativeInt
    partition: str | None = None


class SeekResponse(Struct, frozen=True):
    """The number of partitions in which the group was moved."""

    partitions: int


# Dead letters


class DeadLetterList(Struct, frozen=True):
    """Dead letters, newest failure first. ``more`` is true if the page was cut short by the response's size limit."""

    dead_letters: list[DeadLetter]
    more: bool = False


class CountResponse(Struct, frozen=True):
    """A number of objects."""

    count: int


class DeadLetterConditions(Struct, frozen=True):
    """Conditions of dead letters. All that are given must hold."""

    queue: str | None = None
    group: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    partition: str | None = None
    kind: str | None = None
    stage: str | None = None
    after: NonNegativeInt | None = None

    def to_filter(self, ids: list[int] | None) -> DeadLetterFilter:
        """Convert to a filter of the log, which validates the conditions."""
        conditions = {name: getattr(self, name) for name in DeadLetterConditions.__struct_fields__}
        return DeadLetterFilter(ids, **{**conditions, "after": self.after or None})


class DeadLetterSelector(DeadLetterConditions, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects dead letters. All conditions that are given must hold."""

    ids: Annotated[list[NonNegativeInt], Meta(max_length=100_000)] | None = None

    def filter(self) -> DeadLetterFilter:
        return self.to_filter(self.ids)


class RedriveRequest(DeadLetterSelector, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects the dead letters to redrive: the oldest ``limit`` that match, or ``all`` of them.

    ``mapping`` is a select list in SQL that makes the new data of each. ``edits`` is the new data by id instead, and
    selects these ids.
    """

    limit: Annotated[int, Meta(ge=1, le=100_000)] = 100
    all: bool = False
    mapping: str | None = None
    edits: Annotated[dict[NonNegativeInt, Raw], Meta(max_length=MAX_EVENTS)] | None = None

    def filter(self) -> DeadLetterFilter:
        if self.edits is None:
            return DeadLetterSelector.filter(self)
        if self.mapping is not None or self.ids is not None:
            raise InvalidRequest("edits name the dead letters and their data: leave mapping and ids out")
        return replace(DeadLetterSelector.filter(self), ids=list(self.edits))


class PreviewRequest(DeadLetterSelector, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Selects the dead letters of a preview: the oldest ``limit`` that match, with a select list in SQL."""

    mapping: str
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class RedrivePreview(Struct, frozen=True):
    """The data of dead letters before and after a mapping. ``matching`` is the number of all that match."""

    edits: list[DeadLetterEdit]
    matching: int


class PurgeRequest(DeadLetterSelector, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects the dead letters to delete. ``all`` is required if there is no condition."""

    all: bool = False
