"""Real-time streaming on the PostgreSQL you already run: durable queues, and pipelines on Spark over them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client._sync import SyncPenstock
    from penstock.client.buffer import Buffer, Receipt
    from penstock.client.consumer import ConsumeResult
    from penstock.client.dead_letters import DeadLetterHandle
    from penstock.client.penstock import Penstock
    from penstock.client.queue import QueueHandle
    from penstock.client.transaction import Transaction
    from penstock.core.errors import (
        AccessDenied,
        BufferFull,
        ConfigurationError,
        Conflict,
        CorruptChunk,
        DatabaseError,
        DatabaseUnavailable,
        DatabaseVersionError,
        EventShed,
        GroupBusy,
        IdempotencyConflict,
        InvalidEvent,
        InvalidName,
        InvalidOption,
        InvalidRequest,
        InvalidSql,
        NotFound,
        PenstockError,
        PushFailed,
        QueryChanged,
        QueryError,
        QueueFull,
        RateLimited,
        SchemaError,
        ServerError,
        ServerUnavailable,
        SinkBusy,
        SinkClosed,
        SinkError,
        SinkRejected,
        TransactionRefused,
    )
    from penstock.engine.query import Query
    from penstock.engine.stream import Stream
    from penstock.log.dead_letters.models import DeadLetter, Redrive
    from penstock.log.event import Event
    from penstock.log.groups import PartitionPosition
    from penstock.log.queue import Queue
    from penstock.log.queue_info import GroupInfo, QueueInfo
    from penstock.log.read.ack import AckResult
    from penstock.log.storage.queue_stats import GroupLag, QueueSize
    from penstock.log.transaction import TransactionResult
    from penstock.log.upkeep import Upkeep
    from penstock.log.write.result import Pushed, PushResult
    from penstock.stream import aggregates as agg
    from penstock.stream.context import Context
    from penstock.stream.gates import concurrency_gate, sliding_window_gate, token_bucket_gate

    __version__: str

# Where each name comes from. What is not used is not imported, so the command line starts at once.
_HOMES = {
    "AccessDenied": "penstock.core.errors",
    "AckResult": "penstock.log.read.ack",
    "Buffer": "penstock.client.buffer",
    "BufferFull": "penstock.core.errors",
    "ConfigurationError": "penstock.core.errors",
    "Conflict": "penstock.core.errors",
    "ConsumeResult": "penstock.client.consumer",
    "Context": "penstock.stream.context",
    "CorruptChunk": "penstock.core.errors",
    "DatabaseError": "penstock.core.errors",
    "DatabaseUnavailable": "penstock.core.errors",
    "DatabaseVersionError": "penstock.core.errors",
    "DeadLetter": "penstock.log.dead_letters.models",
    "DeadLetterHandle": "penstock.client.dead_letters",
    "Event": "penstock.log.event",
    "EventShed": "penstock.core.errors",
    "GroupBusy": "penstock.core.errors",
    "GroupInfo": "penstock.log.queue_info",
    "GroupLag": "penstock.log.storage.queue_stats",
    "PartitionPosition": "penstock.log.groups",
    "IdempotencyConflict": "penstock.core.errors",
    "InvalidEvent": "penstock.core.errors",
    "InvalidName": "penstock.core.errors",
    "InvalidOption": "penstock.core.errors",
    "InvalidRequest": "penstock.core.errors",
    "InvalidSql": "penstock.core.errors",
    "NotFound": "penstock.core.errors",
    "Penstock": "penstock.client.penstock",
    "PenstockError": "penstock.core.errors",
    "PushFailed": "penstock.core.errors",
    "QueryChanged": "penstock.core.errors",
    "QueryError": "penstock.core.errors",
    "PushResult": "penstock.log.write.result",
    "Pushed": "penstock.log.write.result",
    "Query": "penstock.engine.query",
    "Queue": "penstock.log.queue",
    "QueueFull": "penstock.core.errors",
    "QueueHandle": "penstock.client.queue",
    "QueueInfo": "penstock.log.queue_info",
    "QueueSize": "penstock.log.storage.queue_stats",
    "RateLimited": "penstock.core.errors",
    "Receipt": "penstock.client.buffer",
    "Redrive": "penstock.log.dead_letters.models",
    "SchemaError": "penstock.core.errors",
    "ServerError": "penstock.core.errors",
    "ServerUnavailable": "penstock.core.errors",
    "SinkBusy": "penstock.core.errors",
    "SinkClosed": "penstock.core.errors",
    "SinkError": "penstock.core.errors",
    "SinkRejected": "penstock.core.errors",
    "Stream": "penstock.engine.stream",
    "SyncPenstock": "penstock.client._sync",
    "Transaction": "penstock.client.transaction",
    "TransactionRefused": "penstock.core.errors",
    "TransactionResult": "penstock.log.transaction",
    "Upkeep": "penstock.log.upkeep",
    "concurrency_gate": "penstock.stream.gates",
    "sliding_window_gate": "penstock.stream.gates",
    "token_bucket_gate": "penstock.stream.gates",
}

__all__ = [
    "AccessDenied",
    "AckResult",
    "Buffer",
    "BufferFull",
    "ConfigurationError",
    "Conflict",
    "ConsumeResult",
    "Context",
    "CorruptChunk",
    "DatabaseError",
    "DatabaseUnavailable",
    "DatabaseVersionError",
    "DeadLetter",
    "DeadLetterHandle",
    "Event",
    "EventShed",
    "GroupBusy",
    "GroupInfo",
    "GroupLag",
    "IdempotencyConflict",
    "InvalidEvent",
    "InvalidName",
    "InvalidOption",
    "InvalidRequest",
    "InvalidSql",
    "NotFound",
    "PartitionPosition",
    "Penstock",
    "PenstockError",
    "PushFailed",
    "PushResult",
    "Pushed",
    "Query",
    "QueryChanged",
    "QueryError",
    "Queue",
    "QueueFull",
    "QueueHandle",
    "QueueInfo",
    "QueueSize",
    "RateLimited",
    "Receipt",
    "Redrive",
    "SchemaError",
    "ServerError",
    "ServerUnavailable",
    "SinkBusy",
    "SinkClosed",
    "SinkError",
    "SinkRejected",
    "Stream",
    "SyncPenstock",
    "Transaction",
    "TransactionRefused",
    "TransactionResult",
    "Upkeep",
    "__version__",
    "agg",
    "concurrency_gate",
    "sliding_window_gate",
    "token_bucket_gate",
]


def __getattr__(name: str) -> Any:
    if name == "agg":
        return import_module("penstock.stream.aggregates")
    if name == "__version__":
        # Known of what was installed; a package that came to a worker as a zip does without.
        return import_module("importlib.metadata").version("penstock")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
