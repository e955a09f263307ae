"""What the client asks of whoever keeps the queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from penstock.db.user_connection import UserConnection
from penstock.engine.gates.admin import GateChange, GateInfo
from penstock.log.dead_letters import DeadLetter, Filter, Redrive
from penstock.log.event import Event
from penstock.log.groups import GroupLane, Place
from penstock.log.log import Batch, GroupInfo, QueueInfo, Said
from penstock.log.queue import Queue
from penstock.log.read.ack import AckResult
from penstock.log.read.lease import PopRequest
from penstock.log.storage.partitions import Partition
from penstock.log.storage.segments import Upkeep
from penstock.log.transaction import TransactionResult
from penstock.log.write.result import PushResult


class Transport(Protocol):
    """The queues, wherever they are.

    A client opens its transport once, calls it from one event loop, as many calls at a time as it likes, and
    closes it. What goes in has been read by the client; whether it can be done is for the transport to say, with
    the errors of :mod:`penstock.core.errors`. A call that is cancelled leaves nothing leased behind.
    """

    async def open(self) -> object:
        """Get ready to be called."""

    async def close(self) -> None:
        """Finish what is under way and let go."""

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
        """Make a queue or change the options that are named."""

    async def queue(self, name: str) -> Queue:
        """A queue as it was a moment ago: asked often, so it should be cheap."""

    async def queues(self) -> list[Queue]:
        """All queues, by name."""

    async def describe(self, name: str) -> QueueInfo:
        """A queue with its size, its groups and its dead letters."""

    async def partitions(self, queue: str, limit: int | None = None) -> list[Partition]:
        """The partitions of a queue, the fullest first."""

    async def delete_queue(self, name: str) -> bool:
        """Delete a queue; False if there was none."""

    async def repartition(self, name: str, partitioning: str, partitions: int | None = None) -> Queue:
        """Partition a queue differently from now on."""

    # Events

    async def push(self, batches: Sequence[Batch], *, idempotency_key: str | None = None) -> list[PushResult]:
        """Store all batches or none, durably; one result for each."""

    async def pop(self, request: PopRequest) -> list[Event]:
        """Lease and deliver events; none if none came in time."""

    async def ack(
        self,
        events: Sequence[Event],
        status: object = True,
        *,
        error: str = "",
        stage: str = "consumer",
        traceback: str | None = None,
    ) -> Sequence[AckResult]:
        """Say of every event the same; one result for each."""

    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        """Make the lease of these events, all of one, last longer; None if it has ended."""

    async def transact(
        self, acks: Sequence[Said], batches: Sequence[Batch], *, connection: UserConnection | None = None
    ) -> TransactionResult:
        """Ack and push together, or raise and do neither; as part of the connection's transaction, if there is one."""

    async def fetch(self, queue: str, partition: str, offset: int = 0, limit: int = 100) -> list[Event]:
        """Events of a partition from an offset on."""

    async def read(self, queue: str, partition_id: int, offset: int = 0, limit: int = 100) -> list[Event]:
        """The same by the partition's number."""

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
        """The newest events that match, newest first."""

    async def find(
        self, queue: str, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        """The newest event with that id."""

    # Groups

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Every group, or every one of a queue."""

    async def group_lanes(self, queue: str, group: str) -> list[GroupLane]:
        """Where a group stands in each partition."""

    async def seek(self, queue: str, group: str, place: Place, *, partition: str | None = None) -> int:
        """Move a group; answers in how many partitions."""

    async def configure_group(self, queue: str, group: str, *, counts: bool) -> None:
        """Say whether a group counts for the depth of its queue."""

    async def delete_group(self, queue: str, group: str) -> bool:
        """Forget a group; False if there was none."""

    # Dead letters

    async def dead_letters(self, which: Filter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """Dead letters that match, newest failure first."""

    async def count_dead_letters(self, which: Filter) -> int:
        """How many match."""

    async def redrive(self, which: Filter, *, limit: int | None = 100) -> Redrive:
        """Send the oldest that match back, at most ``limit`` (None: all)."""

    async def purge(self, which: Filter) -> int:
        """Delete those that match; answers how many."""

    async def upkeep(self) -> Upkeep:
        """Roll, drop and park what is due, now."""


class ClientTransport(Transport, Protocol):
    """What a client needs beside the queues: the gates of queries."""

    # Gates

    async def gates(self, query: str | None, key: str | None = None) -> Sequence[GateInfo]:
        """Gates, lane by lane, those that hold something back first."""

    async def change_gate(self, query: str, change: GateChange) -> None:
        """Change the limits of a query's gates."""

    async def hold_gate(self, query: str, key: str | None, seconds: float) -> None:
        """Let a gate pass nothing for so long."""
