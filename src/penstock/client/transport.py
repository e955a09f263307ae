"""The interface between the client and the queues: a database or a server implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from penstock.db.user_connection import UserConnection
from penstock.engine.gates.admin import GateChange, GateInfo
from penstock.log.dead_letters.models import DeadLetter, DeadLetterFilter, Redrive
from penstock.log.event import Event
from penstock.log.groups import PartitionPosition
from penstock.log.queue import Queue
from penstock.log.queue_info import GroupInfo, QueueInfo
from penstock.log.read.ack import EventStatus
from penstock.log.read.consume_loop import EventSource
from penstock.log.start_position import StartPosition
from penstock.log.storage.partitions import Partition
from penstock.log.transaction import TransactionResult
from penstock.log.upkeep import Upkeep
from penstock.log.write.batch import Batch
from penstock.log.write.result import PushResult


class Transport(EventSource, Protocol):
    """The operations on queues.

    A client opens its transport, calls it concurrently from one event loop, and closes it. The client has checked the
    types of the arguments. The transport raises the errors of :mod:`penstock.core.errors`. A call that is cancelled
    leaves no lease behind.
    """

    async def open(self) -> object:
        """Open the transport."""

    async def close(self) -> None:
        """Finish the running calls and close the transport."""

    # Queues

    async def configure(
        self,
        name: str,
        options: Mapping[str, object] | None = None,
        *,
        partitioning: str | None = None,
        partitions: int | None = None,
        only_new: bool = False,
    ) -> Queue:
        """Create a queue, or change the given options of an existing one."""

    async def queues(self) -> list[Queue]:
        """Return all queues, ordered by name."""

    async def describe(self, name: str) -> QueueInfo:
        """Return a queue with its size, its groups and the number of its dead letters."""

    async def partitions(self, queue: str, limit: int | None = None) -> list[Partition]:
        """Return the partitions of a queue, those with the most events first."""

    async def delete_queue(self, name: str) -> bool:
        """Delete a queue; return False if it does not exist."""

    async def repartition(self, name: str, partitioning: str, partitions: int | None = None) -> Queue:
        """Change the partitioning of a queue."""

    # Events

    async def push(self, batches: Sequence[Batch], *, idempotency_key: str | None = None) -> list[PushResult]:
        """Store all batches or none, durably; return one result for each."""

    async def transact(
        self, acks: Sequence[EventStatus], batches: Sequence[Batch], *, connection: UserConnection | None = None
    ) -> TransactionResult:
        """Ack and push together, or raise and do neither; in the transaction of ``connection`` if given."""

    async def fetch(self, queue: str, partition: str, offset: int = 0, limit: int = 100) -> list[Event]:
        """Return events of a partition from an offset on."""

    async def read(self, queue: str, partition_id: int, offset: int = 0, limit: int = 100) -> list[Event]:
        """Return events of a partition, given by its id, from an offset on."""

    async def browse(
        self,
        queue: str,
        *,
        partition: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        matching: Callable[[Event], bool] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return the newest events that match, newest first."""

    async def find(
        self, queue: str, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        """Return the newest event with this id."""

    # Groups

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Return all groups, or those of a queue."""

    async def group_positions(self, queue: str, group: str) -> list[PartitionPosition]:
        """Return the position of a group in each partition."""

    async def seek(self, queue: str, group: str, position: StartPosition, *, partition: str | None = None) -> int:
        """Move a group; return in how many partitions."""

    async def configure_group(self, queue: str, group: str, *, counts: bool) -> None:
        """Set whether the lag of a group counts for ``max_depth_events``."""

    async def delete_group(self, queue: str, group: str) -> bool:
        """Delete a group; return False if it does not exist."""

    # Dead letters

    async def dead_letters(self, which: DeadLetterFilter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """Return dead letters that match, newest failure first."""

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        """Return how many dead letters match."""

    async def redrive(self, which: DeadLetterFilter, *, limit: int | None = 100) -> Redrive:
        """Send matching dead letters back to their groups, oldest first, at most ``limit`` (None for all)."""

    async def purge(self, which: DeadLetterFilter) -> int:
        """Delete matching dead letters; return how many."""

    async def upkeep(self) -> Upkeep:
        """Run the maintenance of segments and partitions now."""


class ClientTransport(Transport, Protocol):
    """The operations of a client: queues, and the gates of queries."""

    # Gates

    async def gates(self, query: str | None, key: str | None = None) -> Sequence[GateInfo]:
        """Return the gates of each key, those with waiting events first."""

    async def change_gate(self, query: str, change: GateChange) -> None:
        """Change the limits of a query's gates."""

    async def hold_gate(self, query: str, key: str | None, seconds: float) -> None:
        """Let a gate pass no events for ``seconds``."""
