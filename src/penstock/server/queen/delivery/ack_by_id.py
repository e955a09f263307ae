"""Acks by event id, for clients that know the id and the partition of an event but not its offset.

A lease covers a few consecutive events, so an id is searched among those, whichever process delivered them. An id
outside of the lease was completed before or never delivered; the ids that a queue keeps for deduplication tell which.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from penstock.core.errors import TransactionRefused
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.queue_options import check_lease_seconds
from penstock.log.read.ack import PartitionAck
from penstock.log.read.ack_rules import AckEffect, EventAck, Status
from penstock.log.read.lease import LeaseExtension
from penstock.log.read.position_store import PositionKey
from penstock.log.transaction import TransactionStep
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from penstock.server.queen.delivery.event_lookup import EventLookup, LeasedRange, PartitionRef, parse_generated_id
from penstock.server.queen.delivery.recent_deliveries import OffsetsById, RecentDeliveries

UNRESOLVED = "unresolved: no event of this partition has that id, or it is too long ago to be known"
NEVER_READ = "unresolved: the group has never read from this partition"
NOT_DELIVERED = "not delivered: the event was never under a lease of this group, so it cannot be acknowledged"

#: In a queue without deduplication, the search covers this many events before and after the lease.
_SEARCH_MARGIN = 1000


class AckById(msgspec.Struct, frozen=True):
    """An acknowledgement of an event that is identified by its id."""

    group: str
    partition_id: int
    id: str
    status: Status = "completed"
    error: str = ""
    #: The lease under which it was delivered; None if the client names none.
    lease_id: UUID | None = None
    by_operator: bool = False


class AckByIdResult(msgspec.Struct, frozen=True):
    """The result of one ack; ``problem`` is empty if it was accepted."""

    problem: str = ""
    noop: bool = False
    dead: bool = False
    released: bool = False
    partition: PartitionRef | None = None


@dataclass(frozen=True, slots=True)
class _ResolvedAcks:
    """The acks of one group in one partition under one lease, by offset."""

    partition: PartitionRef
    ack: PartitionAck
    #: For each offset, the index of its ack in the request.
    indices: list[int]


class AcksById:
    """Resolves acks by id to acks by offset and applies them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.lookup = EventLookup(log)
        self._deliveries = RecentDeliveries()

    def remember(self, events: Sequence[Event]) -> None:
        """Cache the ids of delivered events. The ids of others are read from the log."""
        self._deliveries.add(events)

    async def ack(self, acks: Sequence[AckById]) -> list[AckByIdResult]:
        """Apply acks, each partition in a transaction of its own; the results are in the order of the acks.

        A failure without retries left ends the lease like any other: clients from 1.0 on skip the rest of the batch.
        """
        resolved, results = await self._resolve(acks, last_failure_releases=True)
        applied = await asyncio.gather(*(self._log.acks.apply(partition_acks.ack) for partition_acks in resolved))
        for partition_acks, outcomes in zip(resolved, applied, strict=True):
            for index, outcome in zip(partition_acks.indices, outcomes, strict=True):
                results[index] = AckByIdResult(
                    outcome.problem, outcome.noop, outcome.dead, outcome.released, partition_acks.partition
                )
        return [results[index] for index in range(len(acks))]

    async def transact(
        self,
        acks: Sequence[AckById],
        batches: Sequence[Batch],
        *,
        leases: Sequence[UUID] = (),
        also: TransactionStep | None = None,
        bounded: bool = True,
    ) -> tuple[list[PushResult], list[AckEffect]]:
        """Ack and push in one transaction, or raise TransactionRefused and do neither.

        Return the result of each batch, and that of each ack in the order of the request. An ack that names no lease
        must hold one of ``leases``, if there are any. ``also`` runs in the transaction. Without ``bounded``, the pushes
        ignore the maximum depth of their queues.
        """
        claimed = [await self._claim_lease(ack, leases) for ack in acks] if leases else acks
        resolved, refused = await self._resolve(claimed)
        for index in sorted(refused):
            raise TransactionRefused(
                f"the ack of {acks[index].id!r} was refused ({refused[index].problem}), so all was rolled back"
            )
        if len({partition_acks.ack.key for partition_acks in resolved}) < len(resolved):
            raise TransactionRefused(
                "one group has acks of one partition under several leases, of which at most one is valid "
                "(lease), so all was rolled back"
            )
        done = await self._log.transact_offsets(
            [partition_acks.ack for partition_acks in resolved], batches, also=also, bounded=bounded
        )
        indices = [index for partition_acks in resolved for index in partition_acks.indices]
        outcomes = dict(zip(indices, done.outcomes, strict=True))
        return done.pushes, [outcomes[index] for index in range(len(acks))]

    async def queues_of_lease(self, lease_id: UUID) -> set[str]:
        """Return the names of the queues that a lease has partitions of."""
        keys = await self._partitions_of_lease(lease_id)
        partitions = [await self.lookup.find_partition(key.partition_id) for key in keys]
        return {partition.queue for partition in partitions if partition is not None}

    async def extend_lease(self, lease_id: UUID, seconds: float) -> LeaseExtension:
        """Extend a lease to ``seconds`` from now in all its partitions."""
        check_lease_seconds(seconds)
        keys = await self._partitions_of_lease(lease_id)
        return await self._log.leases.extend(lease_id, keys, seconds) if keys else LeaseExtension(0, None)

    async def _partitions_of_lease(self, lease_id: UUID) -> Sequence[PositionKey]:
        return self._deliveries.partitions_of(lease_id) or await self._log.leases.leased_partitions(lease_id)

    async def _claim_lease(self, ack: AckById, leases: Sequence[UUID]) -> AckById:
        """Return the ack under that of the leases which the group holds in the partition, or under the first one."""
        if ack.lease_id is not None:
            return ack
        partition = await self.lookup.find_partition(ack.partition_id)
        position = None if partition is None else await self._find_position(partition, ack.group)
        held = None if position is None else position.lease_id
        return msgspec.structs.replace(ack, lease_id=held if held in leases else leases[0])

    async def _find_position(self, partition: PartitionRef, group_name: str) -> LeasedRange | None:
        group = await self._log.consumer_groups.get(await self._log.catalog.get(partition.queue), group_name)
        return None if group is None else await self.lookup.find_position(group.id, partition.partition_id)

    async def _resolve(
        self, acks: Sequence[AckById], *, last_failure_releases: bool = False
    ) -> tuple[list[_ResolvedAcks], dict[int, AckByIdResult]]:
        """Return the acks by offset, and by its index the result of each ack that is refused."""
        resolved: list[_ResolvedAcks] = []
        refused: dict[int, AckByIdResult] = {}
        grouped: dict[tuple[str, int, UUID | None, bool], list[int]] = defaultdict(list)
        for index, ack in enumerate(acks):
            grouped[ack.group, ack.partition_id, ack.lease_id, ack.by_operator].append(index)
        for (group, partition_id, lease_id, by_operator), indices in grouped.items():
            partition = await self.lookup.find_partition(partition_id)
            if partition is None:
                refused.update((index, AckByIdResult(UNRESOLVED)) for index in indices)
                continue
            group_id, offsets = await self._find_offsets(partition, group, lease_id, [acks[i].id for i in indices])
            accepted: list[int] = []
            event_acks: list[EventAck] = []
            for index, offset in zip(indices, offsets, strict=True):
                if isinstance(offset, str):
                    refused[index] = AckByIdResult(offset, partition=partition)
                else:
                    accepted.append(index)
                    event_acks.append(EventAck(offset, acks[index].status, acks[index].error))
            if accepted:
                ack_of_partition = PartitionAck(
                    partition.queue,
                    group,
                    group_id,
                    partition_id,
                    lease_id,
                    tuple(event_acks),
                    by_operator,
                    last_failure_releases,
                )
                resolved.append(_ResolvedAcks(partition, ack_of_partition, accepted))
        return resolved, refused

    async def _find_offsets(
        self, partition: PartitionRef, group: str, lease_id: UUID | None, event_ids: Sequence[str]
    ) -> tuple[int, Sequence[int | str]]:
        """Return the group's id, and for each event its offset or why it has none."""
        delivered = None if lease_id is None else self._deliveries.get(lease_id, partition.partition_id)
        if delivered is not None:
            offsets = OffsetsById(delivered.offsets)
            cached = [offset for event_id in event_ids if (offset := offsets.take(event_id)) is not None]
            if len(cached) == len(event_ids):
                return delivered.group_id, cached
        return await self._search_offsets(partition, group, lease_id, event_ids)

    async def _search_offsets(
        self, partition: PartitionRef, group_name: str, lease_id: UUID | None, event_ids: Sequence[str]
    ) -> tuple[int, list[int | str]]:
        queue = await self._log.catalog.get(partition.queue)
        group = await self._log.consumer_groups.get(queue, group_name)
        position = None if group is None else await self.lookup.find_position(group.id, partition.partition_id)
        if group is None or position is None:
            return 0, [NEVER_READ] * len(event_ids)
        if owned := group.owner_problem():
            return 0, [owned] * len(event_ids)
        wanted = set(event_ids)
        deduplicates = queue.dedup_window_seconds > 0 and queue.partitioning == "key"
        margin = 0 if deduplicates else _SEARCH_MARGIN
        start, end = max(position.next_offset - margin, 0), position.lease_end + margin
        offsets = OffsetsById(
            await self.lookup.find_in_range(queue, partition.partition_id, group.id, start, end, wanted)
        )
        missing = [event_id for event_id in wanted if event_id not in offsets]
        for event_id, offset in (await self.lookup.find_deduplicated(queue, partition, missing)).items():
            offsets.add(event_id, offset)
        results: list[int | str] = []
        for event_id in event_ids:
            resolved = offsets.take(event_id)
            if resolved is None:
                resolved = parse_generated_id(partition, event_id)
            if resolved is None:
                results.append(UNRESOLVED)
            elif lease_id is None and resolved >= position.lease_end:
                # With a lease, the log itself refuses an offset outside of it.
                results.append(NOT_DELIVERED)
            else:
                results.append(resolved)
        return group.id, results
