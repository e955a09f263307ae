"""The log: queues, pushes, consumer groups, pops, acks and dead letters, behind one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import msgspec

from penstock.core.errors import InvalidRequest, short_repr
from penstock.core.names import check_name, check_text
from penstock.db.user_connection import UserConnection
from penstock.log.coordination.kv import KvOperation, KvResult, check_operations
from penstock.log.coordination.locks import LockHolder, Permit
from penstock.log.coordination.timers import TOPIC, TimerOperation, TimerResult
from penstock.log.coordination.transaction_step import CoordinationStep
from penstock.log.database_errors import translate_errors
from penstock.log.dead_letters.dead_letter import (
    DeadLetter,
    DeadLetterEdit,
    DeadLetterFilter,
    DeadLetterKind,
    Edit,
    Redrive,
)
from penstock.log.dead_letters.dead_letter_store import DeadLetterPage
from penstock.log.dead_letters.redrive import REDRIVE_LIMIT
from penstock.log.event import Event
from penstock.log.groups import PartitionPosition
from penstock.log.log_parts import LogParts
from penstock.log.queue import Queue
from penstock.log.queue_info import GroupInfo, QueueInfo
from penstock.log.queue_options import MAX_COUNT, check_integer, check_lease_seconds
from penstock.log.read.ack import AckResult, EventStatus, PartitionAck
from penstock.log.read.ack_request import Ack, AckReply, TransactionAck, apply_leased
from penstock.log.read.pop import MemoryReservation
from penstock.log.read.pop_request import PopRequest
from penstock.log.read.position_store import PositionKey
from penstock.log.start_position import StartPosition
from penstock.log.storage.partitions import Partition, PartitionStatus, list_partitions, read_partition_page
from penstock.log.transaction import TransactionResult, TransactionStep
from penstock.log.upkeep import Upkeep
from penstock.log.write.backpressure import QueueCapacity
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.encode.piece import Piece
from penstock.log.write.push_result import PushResult, RejectedInput
from penstock.log.write.upload import Upload


@translate_errors
class Log(LogParts):
    """Durable, partitioned queues in one database. The parameters and the attributes are those of :class:`LogParts`."""

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
        given: object = options
        if given is not None and not isinstance(given, Mapping):
            raise InvalidRequest(f"options must be a mapping such as {{'lease_seconds': 60}}, not {short_repr(given)}")
        return await self.catalog.configure(
            name, options or {}, partitioning=partitioning, partitions=partitions, only_new=only_new
        )

    async def queue(self, name: str) -> Queue:
        """Return a queue, or raise NotFound. The result may be a second old."""
        return await self.catalog.get(name)

    async def queues(self) -> list[Queue]:
        queues = [await self.catalog.find(name) for name in await self.catalog.names()]
        return [queue for queue in queues if queue is not None]

    async def describe(self, name: str) -> QueueInfo:
        """Return a queue with its size, its groups and its number of dead letters."""
        queue = await self.catalog.refresh(name)
        dead_letters = await self.dead_letter_store.count(DeadLetterFilter(queue=name))
        return QueueInfo(queue, await self._stats.size(queue), await self._stats.groups(queue), dead_letters)

    async def delete_queue(self, name: str) -> bool:
        """Delete a queue with its events, groups and dead letters. Return False if there is no such queue."""
        return await self.catalog.delete(name)

    async def repartition(self, name: str, partitioning: str, partitions: int | None = None) -> Queue:
        """Change the partitioning of a queue for new events. Order per key and the positions of groups are kept."""
        queue = await self.catalog.refresh(name)
        changed = await self.segments.repartition(queue, partitioning, partitions)
        self.notifier.notify(queue.id)
        return changed

    async def partitions(self, queue: str, limit: int | None = None) -> list[Partition]:
        """Return the partitions of a queue, the largest first."""
        return await list_partitions(self.database.pool, self.catalog, await self.catalog.refresh(queue), limit)

    async def partition_page(
        self, queue: str, *, search: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[PartitionStatus]:
        """Return a page of a queue's partitions, ordered by name, with the state of their groups."""
        refreshed = await self.catalog.refresh(queue)
        return await read_partition_page(self.database.pool, self.clock, refreshed, search, limit, offset)

    # Pushing

    async def push(
        self,
        batches: Sequence[Batch],
        *,
        idempotency_key: str | None = None,
        partial: bool = False,
        rejected: Sequence[RejectedInput] = (),
    ) -> list[PushResult]:
        """Store all batches in one transaction. They are durable when this returns.

        With ``partial``, invalid events become dead letters in the same transaction and the others are stored.
        ``rejected`` is input of the first batch that was rejected before.
        """
        if idempotency_key is None and not partial and not rejected:
            return await self._pusher.push(batches)
        return await self._pusher.push_with(
            batches, idempotency_key=idempotency_key, partial=partial, rejected=rejected
        )

    def capacity(self, queue: Queue) -> QueueCapacity | None:
        """Return the free capacity of the queue as last measured, or None if the queue has no limit."""
        return self._backpressure.capacity(queue)

    async def check_capacity(self, queue: Queue, idempotency_key: str | None = None) -> None:
        """Raise QueueFull if the queue refuses pushes now, unless the key shows that the push is a repetition."""
        await self._pusher.check_capacity(queue, idempotency_key)

    async def admit(self, queue: Queue, events: int, idempotency_key: str | None = None) -> bool:
        """Return True if so many events are admitted, False if they are shed. Raise QueueFull if they are refused."""
        return await self._pusher.admit(queue, events, idempotency_key)

    async def upload(self, queue: str) -> Upload:
        """Start an upload of more events than fit in memory. They become visible when it is published."""
        check_name(queue, "queue")
        return await self._uploads.begin(await self.catalog.get(queue))

    async def encode(self, batch: Batch) -> list[Piece]:
        return await self._pusher.encode(batch)

    async def encode_valid(self, batch: Batch) -> tuple[list[Piece], list[RejectedInput]]:
        return await self._pusher.encode_valid(batch)

    # Consuming

    async def pop(self, request: PopRequest, memory: MemoryReservation | None = None) -> list[Event]:
        """Lease partitions with unread events and return the events."""
        return await self._popper.pop(request, memory)

    async def ack(
        self,
        events: Sequence[Event],
        status: object = True,
        *,
        error: str = "",
        stage: str = "consumer",
        traceback: str | None = None,
    ) -> Sequence[AckResult]:
        """Acknowledge all events with one status."""
        return await self.acks.ack(events, status, error=error, stage=stage, traceback=traceback)

    async def ack_each(self, statuses: Sequence[EventStatus]) -> Sequence[AckResult]:
        """Acknowledge each event with a status of its own."""
        return await self.acks.ack_each(statuses)

    async def ack_leased(self, queue: str, group: str, acks: Sequence[Ack]) -> list[AckReply]:
        """Acknowledge events of a group by partition, offset and lease."""
        found = await self.consumer_groups.get(await self.catalog.get(queue), check_name(group, "group"))
        if found is None:
            return [AckReply(False, f"unresolved: group {group!r} is gone") for _ in acks]
        return await apply_leased(self.acks, queue, found, acks)

    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        """Extend the lease of these events to ``seconds`` from now. Return its end, or None if it has expired."""
        check_lease_seconds(seconds)
        deliveries = [event.delivery for event in events]
        lease_ids = {delivery.lease_id for delivery in deliveries if delivery.lease_id is not None}
        if len(lease_ids) != 1:
            raise InvalidRequest(f"the events must be of one lease, but they are of {len(lease_ids)}")
        keys = {PositionKey(delivery.group_id, delivery.partition_id) for delivery in deliveries}
        return (await self.leases.extend(lease_ids.pop(), list(keys), seconds)).until

    async def extend_leased(
        self, queue: str, group: str, lease_id: UUID, partition_ids: Sequence[int], seconds: float
    ) -> datetime | None:
        """Extend a lease of a group in some partitions. Return its end, or None if it has expired."""
        check_lease_seconds(seconds)
        found = await self.consumer_groups.get(await self.catalog.get(queue), check_name(group, "group"))
        if found is None:
            return None
        keys = [PositionKey(found.id, partition_id) for partition_id in partition_ids]
        return (await self.leases.extend(lease_id, keys, seconds)).until

    async def postpone(self, event: Event, until: datetime) -> None:
        """End the lease of the event's partition. It and the events after it are delivered again from then on.

        This is not a failed attempt.
        """
        await self.acks.positions.postpone(event.delivery, until)
        self.notifier.notify_later((await self.catalog.get(event.queue)).id)

    async def release(self, queue: str, group: str, lease_id: UUID) -> None:
        """End a lease of a group now, if it exists. Its events are delivered again, without a failed attempt."""
        found = await self.consumer_groups.get(await self.catalog.get(queue), check_name(group, "group"))
        if found is not None:
            await self.leases.release(found, lease_id)

    async def transact(
        self,
        acks: Sequence[EventStatus],
        batches: Sequence[Batch],
        *,
        connection: UserConnection | None = None,
        kv: Sequence[KvOperation] = (),
        timers: Sequence[TimerOperation] = (),
    ) -> TransactionResult:
        """Ack, push, and change entries and timers in one transaction.

        Raise TransactionRefused, and do nothing, if an ack is refused or a required operation is not applied. With a
        ``connection`` that is in a transaction, all becomes part of that and takes effect when it commits.
        """
        step = await self._coordination_step(kv, timers)
        result = await self._transactions.transact(acks, batches, connection, step)
        return self._with_kv(result, step)

    async def transact_leased(
        self,
        acks: Sequence[TransactionAck],
        batches: Sequence[Batch],
        *,
        idempotency_key: str | None = None,
        kv: Sequence[KvOperation] = (),
        timers: Sequence[TimerOperation] = (),
    ) -> TransactionResult:
        """Like :meth:`transact`, with acks by partition, offset and lease."""
        step = await self._coordination_step(kv, timers)
        request = msgspec.msgpack.encode([kv, timers]) if step is not None else b""
        result = await self._transactions.transact_leased(acks, batches, idempotency_key, step, request)
        return self._with_kv(result, step)

    async def _coordination_step(
        self, kv: Sequence[KvOperation], timers: Sequence[TimerOperation]
    ) -> CoordinationStep | None:
        check_operations(kv, in_transaction=True)
        await self.timers.check_operations(timers)
        return CoordinationStep(self.kv, self.timers, kv, timers) if kv or timers else None

    def _with_kv(self, result: TransactionResult, step: CoordinationStep | None) -> TransactionResult:
        if step is None:
            return result
        if step.timer_operations:
            self.notifier.wake_local(TOPIC)
        return replace(result, kv=step.kv_results)

    async def transact_offsets(
        self,
        acks: Sequence[PartitionAck],
        batches: Sequence[Batch],
        *,
        also: TransactionStep | None = None,
        bounded: bool = True,
    ) -> TransactionResult:
        """Like :meth:`transact`, with acks by offset. ``also`` runs in the same transaction.

        Without ``bounded``, the pushes ignore the maximum depth of their queues.
        """
        return await self._transactions.transact_offsets(acks, batches, also, bounded=bounded)

    # Entries, locks and timers

    async def apply_kv(self, operations: Sequence[KvOperation]) -> list[KvResult]:
        """Execute operations on entries in order, in one transaction."""
        return await self.kv.apply(operations)

    async def apply_timers(self, operations: Sequence[TimerOperation]) -> list[TimerResult]:
        """Schedule and cancel timers in one transaction."""
        return await self.timers.apply(operations)

    async def acquire_lock(self, name: str, owner: str, seconds: float, limit: int = 1) -> Permit | None:
        """Take a permit of a lock; None if others hold it."""
        return await self.locks.acquire(name, owner, seconds, limit)

    async def renew_lock(
        self, name: str, token: int, seconds: float, *, slot: int = 0, owner: str | None = None
    ) -> Permit | None:
        """Extend a permit; None if it is lost."""
        return await self.locks.renew(name, token, seconds, slot=slot, owner=owner)

    async def release_lock(self, name: str, token: int, *, slot: int = 0) -> bool:
        """Give a permit back. False if it is lost."""
        return await self.locks.release(name, token, slot=slot)

    async def lock_holders(self, name: str) -> list[LockHolder]:
        return await self.locks.holders(name)

    # Groups

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Return all groups, or those of one queue, with their lags."""
        queues = await self.queues() if queue is None else [await self.catalog.refresh(queue)]
        return [group for described in queues for group in await self._stats.groups(described)]

    async def subscribe(self, queue: str, group: str, start: StartPosition = "beginning") -> None:
        """Create a group at a start position, unless it exists."""
        check_name(queue, "queue")
        await self.consumer_groups.subscribe(await self.catalog.get(queue), group, start)

    async def group_positions(self, queue: str, group: str) -> list[PartitionPosition]:
        """Return the position of a group in each partition."""
        refreshed = await self.catalog.refresh(queue)
        return await self.consumer_groups.positions(refreshed, await self.consumer_groups.require(refreshed, group))

    async def positions_behind(self, queue: str, group: str, limit: int = 50) -> list[PartitionPosition]:
        """Return the positions of a group with the greatest lag."""
        refreshed = await self.catalog.refresh(queue)
        found = await self.consumer_groups.require(refreshed, group)
        return await self.consumer_groups.positions_behind(refreshed, found, limit)

    async def seek(self, queue: str, group: str, position: StartPosition, *, partition: str | None = None) -> int:
        """Move a group to a position. Return in how many partitions it was moved."""
        check_name(group, "group")
        if partition is not None:
            check_text(partition, "the partition")
        refreshed = await self.catalog.refresh(queue)
        moved = await self.consumer_groups.seek(refreshed, group, position, partition=partition)
        self.notifier.notify(refreshed.id)
        return moved

    async def configure_group(self, queue: str, group: str, *, counts: bool) -> None:
        """Set whether the lag of a group counts towards ``max_depth_events`` of the queue."""
        check_name(group, "group")
        await self.consumer_groups.set_counts(await self.catalog.refresh(queue), group, counts=counts)

    async def delete_group(self, queue: str, group: str) -> bool:
        """Delete a group. Return False if there is no such group."""
        return await self.consumer_groups.delete(await self.catalog.refresh(queue), group)

    # Dead letters

    async def dead_letters(self, which: DeadLetterFilter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """Return dead letters, newest failure first."""
        check_integer("limit", limit, 1, MAX_COUNT)
        check_integer("offset", offset, 0, MAX_COUNT)
        return (await self.dead_letter_store.page(which, limit, offset)).letters

    async def dead_letter_page(
        self, which: DeadLetterFilter, limit: int, offset: int, max_bytes: int, *, oldest_first: bool = False
    ) -> DeadLetterPage:
        """Return dead letters up to a number of bytes, but at least one."""
        return await self.dead_letter_store.page(which, limit, offset, max_bytes=max_bytes, oldest_first=oldest_first)

    async def dead_letter_queues(self, which: DeadLetterFilter) -> set[str]:
        return await self.dead_letter_store.queues(which)

    async def dead_letter(self, id: int) -> DeadLetter:
        return await self.dead_letter_store.get(id)

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        return await self.dead_letter_store.count(which)

    async def dead_letter_kinds(self, queue: str | None = None) -> list[DeadLetterKind]:
        """Count dead letters by queue, group and kind of error. The latest failure comes first."""
        return await self.dead_letter_store.kinds(queue)

    async def dead_letter_ids(self, which: DeadLetterFilter, limit: int = 100_000) -> list[int]:
        """Return the ids of dead letters, the oldest first."""
        check_integer("limit", limit, 1, MAX_COUNT)
        return await self.dead_letter_store.ids(which, limit)

    async def redrive(
        self, which: DeadLetterFilter, *, limit: int | None = REDRIVE_LIMIT, edit: Edit | None = None
    ) -> Redrive:
        """Send the oldest dead letters back to the group that failed on them, with the data that ``edit`` returns.

        The history of a dead letter keeps the old data. One that cannot be edited stays and is reported.
        """
        if limit is not None:
            check_integer("limit", limit, 1, MAX_COUNT)
        return await self._redriver.redrive(which, limit=limit, edit=edit)

    async def preview_redrive(
        self, which: DeadLetterFilter, edit: Edit, *, limit: int = REDRIVE_LIMIT, max_bytes: int = MAX_COUNT
    ) -> list[DeadLetterEdit]:
        """Return what a redrive with ``edit`` would send, for the oldest dead letters."""
        check_integer("limit", limit, 1, MAX_COUNT)
        return await self._redriver.preview(which, edit, limit=limit, max_bytes=max_bytes)

    async def redrive_edited(self, id: int, data: bytes) -> Redrive:
        """Send a dead letter back with other data, given as JSON text. Its history keeps the old data."""
        letter = await self.dead_letter_store.get(id)
        (piece,) = await self.encode(Batch(letter.queue, JsonEvents([data], [letter.key])))
        return await self._redriver.redrive(DeadLetterFilter(ids=[id]), limit=1, edit=lambda _: piece.columns.data)

    async def purge(self, which: DeadLetterFilter) -> int:
        return await self.dead_letter_store.purge(which)

    # Browsing

    async def latest(self, queue: str, limit: int = 100) -> list[Event]:
        """Return the newest events of a queue, newest first. The cost does not depend on the number of partitions."""
        return await self._browser.latest(await self.catalog.refresh(queue), limit)

    async def fetch(self, queue: str, partition: str, offset: int = 0, limit: int = 100) -> list[Event]:
        """Return events of a partition from an offset on, without consuming them."""
        return await self._browser.fetch(await self.catalog.refresh(queue), partition, offset, limit)

    async def read(self, queue: str, partition_id: int, offset: int = 0, limit: int = 100) -> list[Event]:
        """Return events of a partition, given by its id, from an offset on."""
        return await self._browser.read(await self.catalog.refresh(queue), partition_id, offset, limit)

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
        """Return the newest events that match, newest first, without consuming them."""
        return await self._browser.browse(
            await self.catalog.refresh(queue),
            partition=partition,
            key=key,
            since=since,
            until=until,
            matching=matching,
            limit=limit,
        )

    async def find(
        self, queue: str, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        """Return the newest event with an id, or None."""
        return await self._browser.find(await self.catalog.refresh(queue), event_id, since=since, until=until)

    async def upkeep(self) -> Upkeep:
        """Run a round of upkeep now."""
        return await self._upkeep.run_once()
