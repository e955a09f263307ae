"""All errors that Penstock raises.

::

    PenstockError
    │
    │   Configuration and infrastructure
    ├── ConfigurationError        a setting is wrong or missing
    ├── DatabaseError             PostgreSQL reported an error
    │   ├── DatabaseUnavailable   PostgreSQL cannot be reached (retry later)
    │   ├── DatabaseVersionError  this version of PostgreSQL is not supported
    │   └── SchemaError           the schema is missing, or older or newer than this package
    ├── ServerError               a Penstock server reported an error (``status``)
    │   ├── ServerUnavailable     the server cannot be reached or is overloaded (retry later)
    │   ├── RateLimited           the server limits this client (``retry_after`` seconds)
    │   └── AccessDenied          authentication or authorization failed
    │
    │   Requests
    ├── InvalidRequest            the request is wrong, whatever the state of the database
    │   ├── InvalidName           name of a queue, group or key
    │   ├── InvalidOption         option that is unknown, of the wrong type or out of range (``option``)
    │   ├── UnknownField          field that no recent event has (``field``, ``suggestions``)
    │   ├── InvalidSql            statement of streaming SQL (``line``, ``column``)
    │   └── InvalidEvent          one event of a push (``index``, ``field``)
    ├── NotFound                  the queue, group or dead letter does not exist
    ├── Conflict                  the request contradicts the stored state
    │   ├── IdempotencyConflict   the idempotency key was used for other events
    │   ├── GroupBusy             the group belongs to a running query
    │   ├── QueryChanged          another stream was started under this name
    │   ├── QueryReplaced         another version of the query was started, or it was deleted
    │   ├── LockNotHeld           the lock is held by another owner, or its time has ended
    │   └── TransactionRefused    an ack of a transaction was refused, so the transaction was rolled back
    │       └── PreconditionFailed  a required entry has another version (``index``, ``result``)
    │
    │   Capacity
    ├── QueueFull                 the queue is at its maximum depth (``retry_after`` seconds)
    ├── EventShed                 the queue is full and drops events (``overflow = 'shed'``)
    ├── BufferFull                a client buffer is full
    ├── PushFailed                buffered events could not be stored (``count``, ``failures``)
    │
    │   Queries
    ├── QueryError                a running query failed
    │   ├── RepeatedFailure       one event after another failed with the same error
    │   ├── LeaseLost             another driver runs the query, or its positions moved (no event is lost)
    │   ├── PlanningFailed        the next cycle could not be planned
    │   ├── SparkFailure          Spark ended the query
    │   ├── StateLimitReached     the state of a view would exceed its max_state_bytes
    │   └── WindowKeyFailed       the key function of closed windows raised
    │
    │   Sinks: raised by a sink's ``write``
    ├── SinkError                 the sink did not write the batch
    │   ├── SinkBusy              retry later (``retry_after``); does not count as a failed attempt
    │   ├── SinkClosed            the target is gone; the sink stops
    │   └── SinkRejected          the events are invalid (``events``); they become dead letters
    │
    │   Storage
    └── CorruptChunk              stored bytes do not match their checksum

The message of an error says what happened, to what, and what to do next. Its attributes hold the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def short_repr(value: object) -> str:
    """Return the repr of a value for a message: at most 100 characters, and never an error."""
    try:
        text = repr(value)
    except Exception:  # an int with thousands of digits, or a broken __repr__
        return f"that {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


class PenstockError(Exception):
    """Base class of all errors that Penstock raises."""


class ConfigurationError(PenstockError):
    """A setting is wrong or missing."""


class DatabaseError(PenstockError):
    """PostgreSQL reported an error."""


class DatabaseUnavailable(DatabaseError):
    """PostgreSQL cannot be reached. A later retry may succeed."""


class DatabaseVersionError(DatabaseError):
    """Penstock does not support this version of PostgreSQL."""


class SchemaError(DatabaseError):
    """The schema of the database is missing, or older or newer than this package."""


class ServerError(PenstockError):
    """A Penstock server reported an error. ``status`` is the HTTP status, or None if there was no response."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerUnavailable(ServerError):
    """The server cannot be reached or is overloaded. A later retry may succeed."""


class RateLimited(ServerError):
    """The server limits the rate of this client. Retry after ``retry_after`` seconds."""

    def __init__(self, message: str, *, retry_after: float, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class AccessDenied(ServerError):
    """Authentication (401) or authorization (403) failed."""


class InvalidRequest(PenstockError):
    """The request is wrong, whatever the state of the database."""


class InvalidName(InvalidRequest):
    """The name of a queue, group or key is empty, too long or not text."""


class InvalidOption(InvalidRequest):
    """The option ``option`` is unknown, of the wrong type or out of range."""

    def __init__(self, message: str, *, option: str) -> None:
        super().__init__(message)
        self.option = option


class UnknownField(InvalidRequest):
    """A stream uses a field that no recent event has. ``suggestions`` are fields with similar names."""

    def __init__(self, message: str, *, field: str, suggestions: Sequence[str]) -> None:
        super().__init__(message)
        self.field = field
        self.suggestions = suggestions


class InvalidSql(InvalidRequest):
    """A statement of streaming SQL is wrong at ``line`` and ``column``, which count from 1."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class InvalidEvent(InvalidRequest):
    """One event of a push is invalid, so no event of the request was stored.

    ``index`` is its position in the request, ``field`` the invalid field and ``reason`` the problem.
    """

    def __init__(self, reason: str, *, index: int, field: str) -> None:
        super().__init__(f"event {index}: {field}: {reason}")
        self.reason = reason
        self.index = index
        self.field = field


class NotFound(PenstockError):
    """The queue, group or dead letter does not exist. If it is a queue, ``queue`` is its name."""

    def __init__(self, message: str, *, queue: str | None = None) -> None:
        super().__init__(message)
        self.queue = queue


class Conflict(PenstockError):
    """The request contradicts the stored state."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used for other events."""


class GroupBusy(Conflict):
    """The group belongs to a running query, which would process events twice if its positions moved."""


class QueryChanged(Conflict):
    """Another stream was started under this name. ``changes`` lists the differences, a line each."""

    def __init__(self, name: str, changes: str, advice: str, *, is_view: bool = False) -> None:
        wrong = "rows" if is_view else "open windows"
        super().__init__(
            f"query {name!r} was started before as another stream, and its {wrong} would be wrong:\n{changes}\n{advice}"
        )
        self.name = name
        self.changes = changes
        self.is_view = is_view


class QueryReplaced(Conflict):
    """The query that this driver ran was replaced by another version, or deleted."""


class TransactionRefused(Conflict):
    """An ack of the transaction was refused, so the transaction was rolled back.

    Attributes:
        problem: Why the ack was refused; empty if it was something else.
    """

    def __init__(self, message: str, problem: str = "") -> None:
        super().__init__(message)
        self.problem = problem


class PreconditionFailed(TransactionRefused):
    """A required operation of the key-value store was not applied, so all was rolled back.

    Attributes:
        index: The number of the operation, from 0.
        result: The result of the operation.
    """

    def __init__(self, message: str, index: int = 0, result: Any = None) -> None:
        super().__init__(message)
        self.index = index
        self.result = result


class LockNotHeld(Conflict):
    """The lock is held by another owner, or its time has ended."""


class QueryError(PenstockError):
    """A running query failed."""


class RepeatedFailure(QueryError):
    """One event after another failed with the same error, so the cause is hardly the events."""


class LeaseLost(QueryError):
    """The commit was refused: another driver runs the query, or its positions have moved."""


class PlanningFailed(QueryError):
    """PostgreSQL refused a statement that plans the next cycle."""


class SparkFailure(QueryError):
    """Spark ended the query. The message contains Spark's error."""


class StateLimitReached(QueryError):
    """The state of a materialized view would be larger than its ``max_state_bytes``."""


class WindowKeyFailed(QueryError):
    """The key function of closed windows raised."""


class QueueFull(PenstockError):
    """The queue is at its maximum depth. Push again after ``retry_after`` seconds. ``group`` is the slowest group."""

    def __init__(
        self, message: str, *, queue: str, depth: int, limit: int, retry_after: float, group: str | None = None
    ) -> None:
        super().__init__(message)
        self.queue = queue
        self.depth = depth
        self.limit = limit
        self.retry_after = retry_after
        self.group = group


class EventShed(PenstockError):
    """The queue was full and dropped the event, as its option ``overflow`` says. The queue counts dropped events."""

    def __init__(self, message: str, *, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class SinkError(PenstockError):
    """The sink did not write the batch."""


class SinkBusy(SinkError):
    """The sink cannot write now. The events are valid, and the attempt does not count as failed.

    ``retry_after`` is the pause before the next attempt in seconds; None uses the backoff of the sink. ``is_sent`` is
    False if the events certainly did not reach their target, so that they do not count for a rate limit.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, is_sent: bool = True) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.is_sent = is_sent


class SinkClosed(SinkError):
    """The target of the sink is gone for good. The sink stops, and its events stay in the queue."""


class SinkRejected(SinkError):
    """The sink will never accept these events. They become dead letters, and the rest of the batch is written.

    ``events`` are the indexes of the invalid events in the batch; None if the sink cannot identify them.
    """

    def __init__(self, message: str, *, events: frozenset[int] | None = None) -> None:
        super().__init__(message)
        self.events = events


class BufferFull(PenstockError):
    """A client buffer is full, because events arrive faster than they are stored."""


class PushFailed(PenstockError):
    """Buffered events could not be stored.

    ``count`` is their number, ``failures`` the first thousand of them, each with its error.
    """

    def __init__(
        self, message: str, *, count: int, failures: Sequence[tuple[Mapping[str, Any], Exception]] = ()
    ) -> None:
        super().__init__(message)
        self.count = count
        self.failures = failures


class CorruptChunk(PenstockError):
    """Stored bytes do not match their checksum.

    If known, the attributes locate the chunk: ``partition_id``, the offsets from ``start`` to before ``end``, the time
    of the append, and the only group that may read it. ``is_newer`` means that the chunk may be intact, in the format
    of a newer version.
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
