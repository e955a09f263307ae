"""Durable, partitioned event queues on the PostgreSQL you already run."""

from importlib.metadata import version

from penstock.client._sync import SyncPenstock
from penstock.client.consumer import Consumed
from penstock.client.penstock import Penstock
from penstock.core.errors import (
    ConfigurationError,
    Conflict,
    CorruptChunk,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseVersionError,
    GroupBusy,
    IdempotencyConflict,
    InvalidEvent,
    InvalidName,
    InvalidOption,
    InvalidRequest,
    NotFound,
    PenstockError,
    QueueFull,
    SchemaError,
    TransactionRefused,
)
from penstock.log.ack import AckResult
from penstock.log.dead import DeadLetter, Redrive
from penstock.log.depth import GroupLag, QueueSize
from penstock.log.event import Event
from penstock.log.groups import GroupLane
from penstock.log.log import GroupInfo, QueueInfo
from penstock.log.pushed import Pushed, PushResult
from penstock.log.queue import Queue
from penstock.log.segments import Upkeep
from penstock.log.transaction import TransactionResult

__version__ = version("penstock")

__all__ = [
    "AckResult",
    "ConfigurationError",
    "Conflict",
    "Consumed",
    "CorruptChunk",
    "DatabaseError",
    "DatabaseUnavailable",
    "DatabaseVersionError",
    "DeadLetter",
    "Event",
    "GroupBusy",
    "GroupInfo",
    "GroupLag",
    "GroupLane",
    "IdempotencyConflict",
    "InvalidEvent",
    "InvalidName",
    "InvalidOption",
    "InvalidRequest",
    "NotFound",
    "Penstock",
    "PenstockError",
    "PushResult",
    "Pushed",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "QueueSize",
    "Redrive",
    "SchemaError",
    "SyncPenstock",
    "TransactionRefused",
    "TransactionResult",
    "Upkeep",
    "__version__",
]
