"""Real-time streaming on the PostgreSQL you already run: durable queues, and pipelines on Spark over them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    LockNotHeld,
    NotFound,
    PenstockError,
    PreconditionFailed,
    PushFailed,
    QueryChanged,
    QueryError,
    QueryReplaced,
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

if TYPE_CHECKING:
    from penstock.client._sync import SyncPenstock
    from penstock.client.buffer import Buffer, Receipt
    from penstock.client.consumer import ConsumeResult
    from penstock.client.coordination import Change, Entry, KvHandle, LockHandle, TimerHandle
    from penstock.client.dead_letters import DeadLetterHandle
    from penstock.client.penstock import Penstock
    from penstock.client.queue import QueueHandle
    from penstock.client.transaction import Transaction
    from penstock.engine.query import Query
    from penstock.engine.results.result_reader import QueryRows
    from penstock.engine.stream import Stream
    from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit, Redrive
    from penstock.log.event import Event
    from penstock.log.groups import PartitionPosition
    from penstock.log.queue import Queue
    from penstock.log.queue_info import GroupInfo, QueueInfo, QueueSize
    from penstock.log.read.ack import AckResult
    from penstock.log.transaction import TransactionResult
    from penstock.log.upkeep import Upkeep
    from penstock.log.write.push_result import Pushed, PushResult
    from penstock.stream import aggregates as agg
    from penstock.stream.context import Context
    from penstock.stream.gates import concurrency_gate, sliding_window_gate, token_bucket_gate

    __version__: str

#: The names of each module, which is imported when one is used: the command line would start slowly otherwise.
_MODULES = {
    "penstock.client._sync": ("SyncPenstock",),
    "penstock.client.buffer": ("Buffer", "Receipt"),
    "penstock.client.consumer": ("ConsumeResult",),
    "penstock.client.coordination": ("Change", "Entry", "KvHandle", "LockHandle", "TimerHandle"),
    "penstock.client.dead_letters": ("DeadLetterHandle",),
    "penstock.client.penstock": ("Penstock",),
    "penstock.client.queue": ("QueueHandle",),
    "penstock.client.transaction": ("Transaction",),
    "penstock.engine.query": ("Query",),
    "penstock.engine.results.result_reader": ("QueryRows",),
    "penstock.engine.stream": ("Stream",),
    "penstock.log.dead_letters.dead_letter": ("DeadLetter", "DeadLetterEdit", "Redrive"),
    "penstock.log.event": ("Event",),
    "penstock.log.groups": ("PartitionPosition",),
    "penstock.log.queue": ("Queue",),
    "penstock.log.queue_info": ("GroupInfo", "QueueInfo", "QueueSize"),
    "penstock.log.read.ack": ("AckResult",),
    "penstock.log.transaction": ("TransactionResult",),
    "penstock.log.upkeep": ("Upkeep",),
    "penstock.log.write.push_result": ("PushResult", "Pushed"),
    "penstock.stream.context": ("Context",),
    "penstock.stream.gates": ("concurrency_gate", "sliding_window_gate", "token_bucket_gate"),
}

__all__ = [
    "AccessDenied",
    "AckResult",
    "Buffer",
    "BufferFull",
    "Change",
    "ConfigurationError",
    "Conflict",
    "ConsumeResult",
    "Context",
    "CorruptChunk",
    "DatabaseError",
    "DatabaseUnavailable",
    "DatabaseVersionError",
    "DeadLetter",
    "DeadLetterEdit",
    "DeadLetterHandle",
    "Entry",
    "Event",
    "EventShed",
    "GroupBusy",
    "GroupInfo",
    "IdempotencyConflict",
    "InvalidEvent",
    "InvalidName",
    "InvalidOption",
    "InvalidRequest",
    "InvalidSql",
    "KvHandle",
    "LockHandle",
    "LockNotHeld",
    "NotFound",
    "PartitionPosition",
    "Penstock",
    "PenstockError",
    "PreconditionFailed",
    "PushFailed",
    "PushResult",
    "Pushed",
    "Query",
    "QueryChanged",
    "QueryError",
    "QueryReplaced",
    "QueryRows",
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
    "TimerHandle",
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
        # Read when needed: a package that Spark sends to a worker as a zip file has no metadata.
        return import_module("importlib.metadata").version("penstock")
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
