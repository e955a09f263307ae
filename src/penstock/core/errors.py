"""Every error Penstock raises on purpose.

::

    PenstockError
    ├── ConfigurationError        a setting is wrong or missing
    ├── DatabaseError             PostgreSQL could not do its part
    │   ├── DatabaseUnavailable   it cannot be reached (worth a retry)
    │   ├── DatabaseVersionError  its version is not one Penstock runs on
    │   └── SchemaError           Penstock's schema is missing, older or newer than this package
    ├── ServerError               a Penstock server could not do its part (``status``)
    │   ├── ServerUnavailable     it cannot be reached, or has too much to do (worth a retry)
    │   ├── RateLimited           it takes no more from this caller for now (``retry_after`` seconds)
    │   └── AccessDenied          it does not know who asks, or that one may not do this
    ├── InvalidRequest            what was asked cannot be right
    │   ├── InvalidName           a queue, group or key name
    │   ├── InvalidOption         an option: unknown, wrong type, out of range
    │   ├── InvalidSql            a statement of streaming SQL (``line`` and ``column`` say where)
    │   └── InvalidEvent          one event of a push (``index`` and ``field`` say which)
    ├── NotFound                  a queue, group or dead letter that does not exist
    ├── Conflict                  the request contradicts what is stored
    │   ├── IdempotencyConflict   an idempotency key that was used for other events
    │   ├── GroupBusy             the group belongs to a running query
    │   ├── QueryChanged          a stream that is not the one that was started under this id before
    │   └── TransactionRefused    an ack of a transaction was refused, so nothing of it happened
    ├── QueryError                a query that ran could not go on
    │   ├── HopelessQuery         one event after the other was given up, all for the same reason
    │   ├── Refused               another driver has it, or its positions have moved (nothing is lost)
    │   ├── SparkFailure          Spark ended it
    │   └── WindowKeyFailed       the function that gives closed windows their key raised
    ├── QueueFull                 the queue is at its maximum depth (``retry_after`` seconds)
    ├── EventShed                 the queue was full and dropped the event, as it was told to (``overflow``)
    ├── BufferFull                a buffer holds as many events as it may
    ├── PushFailed                events of a buffer could not be stored (``failures`` says which, and why)
    ├── SinkError                 what a sink says of what it was given
    │   ├── SinkBusy              not now (``retry_after`` seconds): nobody's fault, and it does not count
    │   ├── SinkClosed            never again: what it wrote to is gone for good
    │   └── SinkRejected          never: these events are wrong (``events``, or all of them)
    └── CorruptChunk              stored bytes do not match their checksum

Each carries the facts as attributes, and its message says what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def shown(value: object) -> str:
    """What was given, as a message quotes it: never too long, and whatever it is."""
    try:
        text = repr(value)
    except Exception:  # a whole number of thousands of digits, an object that cannot be printed
        return f"that {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose."""


class ConfigurationError(PenstockError):
    """A setting is wrong or missing."""


class DatabaseError(PenstockError):
    """PostgreSQL could not do its part."""


class DatabaseUnavailable(DatabaseError):
    """PostgreSQL cannot be reached; trying again later can help."""


class DatabaseVersionError(DatabaseError):
    """The server's version is not one that Penstock runs on."""


class SchemaError(DatabaseError):
    """Penstock's schema is missing, or older or newer than this package."""


class ServerError(PenstockError):
    """A Penstock server could not do its part; ``status`` is that of its answer, or None if there was none."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerUnavailable(ServerError):
    """The server cannot be reached, or has too much to do; trying again later can help."""


class RateLimited(ServerError):
    """The server takes no more from this caller for now; ask again after ``retry_after`` seconds."""

    def __init__(self, message: str, *, retry_after: float, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class AccessDenied(ServerError):
    """The server does not know who asks (401), or that one may not do this (403)."""


class InvalidRequest(PenstockError):
    """What was asked cannot be right, whatever the state of the database."""


class InvalidName(InvalidRequest):
    """A queue, group or key name that is empty, too long or not text."""


class InvalidOption(InvalidRequest):
    """An option that is unknown, of the wrong type or out of range."""

    def __init__(self, message: str, *, option: str) -> None:
        super().__init__(message)
        self.option = option


class InvalidSql(InvalidRequest):
    """A statement that cannot be read, or cannot be made a stream; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class InvalidEvent(InvalidRequest):
    """One event of a push cannot be stored; none of its request was.

    ``index`` is its place in the request, ``field`` what is wrong with it.
    """

    def __init__(self, reason: str, *, index: int, field: str) -> None:
        super().__init__(f"event {index}: {field}: {reason}")
        self.reason = reason
        self.index = index
        self.field = field


class NotFound(PenstockError):
    """A queue, group or dead letter that does not exist; ``queue`` names it, if it is that."""

    def __init__(self, message: str, *, queue: str | None = None) -> None:
        super().__init__(message)
        self.queue = queue


class Conflict(PenstockError):
    """The request contradicts what is stored."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used before, for other events."""


class GroupBusy(Conflict):
    """The group belongs to a running query, which would count twice if it moved."""


class QueryChanged(Conflict):
    """The stream is not the one that was started under this id before."""


class TransactionRefused(Conflict):
    """An ack of a transaction was refused, so nothing of it happened."""


class QueryError(PenstockError):
    """A query that ran could not go on."""


class HopelessQuery(QueryError):
    """One event after the other was given up, all for the same reason, which is hardly theirs."""


class Refused(QueryError):
    """A commit that is not this driver's to make: another one has the query, or the positions have moved."""


class SparkFailure(QueryError):
    """Spark ended the query; its message says why."""


class WindowKeyFailed(QueryError):
    """The function that gives closed windows their key raised."""


class QueueFull(PenstockError):
    """The queue is at its maximum depth; push again after ``retry_after`` seconds."""

    def __init__(self, message: str, *, queue: str, depth: int, limit: int, retry_after: float) -> None:
        super().__init__(message)
        self.queue = queue
        self.depth = depth
        self.limit = limit
        self.retry_after = retry_after


class EventShed(PenstockError):
    """The queue was full and dropped the event, because that is what it was told to do; it is counted there."""

    def __init__(self, message: str, *, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class SinkError(PenstockError):
    """What a sink says of a batch that it did not take."""


class SinkBusy(SinkError):
    """The sink cannot take anything now; nothing is wrong with the events, and the attempt does not count.

    ``retry_after`` is when to come again, in seconds; None leaves it to the one who writes.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SinkClosed(SinkError):
    """What the sink writes to is gone and will not come back: it ends, and its events stay where they are."""


class SinkRejected(SinkError):
    """The sink will never take these events: they go to the dead letters, and the others are written without them.

    ``events`` are the places of the bad ones in the batch; None if the sink cannot tell which they are.
    """

    def __init__(self, message: str, *, events: frozenset[int] | None = None) -> None:
        super().__init__(message)
        self.events = events


class BufferFull(PenstockError):
    """A buffer of events holds as many as it may, because they are not stored as fast as they come."""


class PushFailed(PenstockError):
    """Events that were taken into a buffer could not be stored.

    ``count`` is how many, ``failures`` the first thousand of them, each with its error.
    """

    def __init__(
        self, message: str, *, count: int, failures: Sequence[tuple[Mapping[str, Any], Exception]] = ()
    ) -> None:
        super().__init__(message)
        self.count = count
        self.failures = failures


class CorruptChunk(PenstockError):
    """Stored bytes do not match their checksum.

    Where it is known which they are: ``partition_id``, offsets ``start`` to ``end`` (not included), when they were
    appended, and the only group that they are for. ``is_newer``: they may be whole, and of a form that only a newer
    version knows.
    """

    def __init__(
        self,
        message: str,
        *,
        partition_id: int = 0,
        start: int = 0,
        end: int = 0,
        appended_at: datetime | None = None,
        target_group: int | None = None,
        is_newer: bool = False,
    ) -> None:
        super().__init__(message)
        self.partition_id = partition_id
        self.start = start
        self.end = end
        self.appended_at = appended_at
        self.target_group = target_group
        self.is_newer = is_newer
