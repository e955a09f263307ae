"""Transactions: acks, pushes and steps of callers that are committed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.errors import Conflict, DatabaseUnavailable, InvalidRequest, TransactionRefused
from penstock.core.names import check_name
from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.db.user_connection import UserConnection, wrap_user_connection
from penstock.log.catalog import MAX_LAYOUT_RETRIES, Catalog, is_layout_change
from penstock.log.groups import ConsumerGroups
from penstock.log.notify import CHANNEL
from penstock.log.read.ack import Acks, EventStatus, PartitionAck, group_by_lease, partition_ack
from penstock.log.read.ack_request import TransactionAck, group_acks
from penstock.log.read.ack_rules import AckEffect
from penstock.log.write.append import Appender
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.piece import Piece
from penstock.log.write.flush import AppendRequest, PartitionName
from penstock.log.write.idempotency import IdempotencyKeys, fingerprint
from penstock.log.write.push import Pusher
from penstock.log.write.push_result import PushResult

#: A function that runs in a transaction, with its connection.
TransactionStep: TypeAlias = Callable[["AsyncConnection[Any]"], Awaitable[None]]

_sql = Statements("penstock.log", "transaction.sql")


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of a transaction: one result for each push, in order, and the number of acks."""

    pushes: list[PushResult]
    acked: int
    #: The outcome of each ack, partition by partition.
    outcomes: Sequence[AckEffect] = ()
    #: The result of each operation on entries. Empty if the transaction was a repetition.
    kv: Sequence[Any] = ()


@dataclass(slots=True, eq=False)
class Transactions:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    groups: ConsumerGroups
    acks: Acks
    pusher: Pusher
    appender: Appender
    idempotency_keys: IdempotencyKeys

    async def transact(
        self,
        statuses: Sequence[EventStatus],
        batches: Sequence[Batch],
        connection: UserConnection | None = None,
        step: TransactionStep | None = None,
    ) -> TransactionResult:
        """Ack events and push batches, in the transaction of a user's connection or in a new one.

        ``step`` runs in the same transaction. Raise TransactionRefused, and do nothing, if an ack is refused.
        """
        event_acks = [status.event_ack() for status in statuses]
        events = [status.event for status in statuses]
        acks = [
            partition_ack(events[indices[0]].delivery, tuple(event_acks[index] for index in indices))
            for indices in group_by_lease(events)
        ]
        parts = [await self.pusher.encode(batch) for batch in batches]
        shed = await self.pusher.admit_parts(parts, Counter(event.queue for event in events))
        request = AppendRequest.without_shed(parts, shed)
        if connection is not None:
            return await self._run_on(await wrap_user_connection(connection), acks, request, step)
        return await self._run(acks, request, step)

    async def transact_leased(
        self,
        acks: Sequence[TransactionAck],
        batches: Sequence[Batch],
        idempotency_key: str | None = None,
        step: TransactionStep | None = None,
        step_request: bytes = b"",
    ) -> TransactionResult:
        """Like :meth:`transact`, with acks by partition, offset and lease.

        A repetition with the same idempotency key, and the same request of the step, returns the result of the first
        transaction and does not run the step.
        """
        by_group: dict[tuple[str, str], list[TransactionAck]] = {}
        for ack in acks:
            by_group.setdefault((ack.queue, ack.group), []).append(ack)
        partition_acks: list[PartitionAck] = []
        for (queue, group_name), group_items in by_group.items():
            group = await self.groups.require(await self.catalog.get(queue), group_name)
            partition_acks += group_acks(queue, group, group_items)
        if idempotency_key is not None:
            check_name(idempotency_key, "request")
        parts = [await self.pusher.encode(batch) for batch in batches]
        acked = Counter(ack.queue for ack in acks)
        shed = await self.pusher.admit_parts(parts, acked, idempotency_key)
        request = AppendRequest.without_shed(parts, shed)
        if idempotency_key is not None:
            request.idempotency_key = idempotency_key
            request.fingerprint = fingerprint(parts, acks=msgspec.msgpack.encode(partition_acks) + step_request)
        return await self._run(partition_acks, request, step)

    async def transact_offsets(
        self,
        acks: Sequence[PartitionAck],
        batches: Sequence[Batch],
        step: TransactionStep | None = None,
        *,
        bounded: bool = True,
    ) -> TransactionResult:
        """Like :meth:`transact`, with acks by offset.

        Without ``bounded``, the pushes ignore the maximum depth of their queues: the outputs of a cycle must not block
        it.
        """
        parts: list[list[Piece]] = [await self.pusher.encode(batch) for batch in batches]
        shed: dict[int, int] = {}
        if bounded:
            shed = await self.pusher.admit_parts(parts, Counter(ack.queue for ack in acks for _ in ack.acks))
        return await self._run(acks, AppendRequest.without_shed(parts, shed), step)

    async def push_valid(self, batch: Batch, step: TransactionStep) -> None:
        """Push a batch in the transaction of a step, whatever the depth of its queue.

        Events that the queue does not accept become dead letters.
        """
        pieces, invalid = await self.pusher.encode_valid(batch)
        queue = await self.catalog.get(batch.queue)
        await self._run([], AppendRequest([pieces], rejected=[(queue, each) for each in invalid]), step)

    async def _run(
        self, acks: Sequence[PartitionAck], request: AppendRequest, step: TransactionStep | None = None
    ) -> TransactionResult:
        if not acks and step is None:
            # Without acks it is a push, which survives lost connections.
            await self.appender.append([request])
            return TransactionResult(request.results, 0)
        while True:
            try:
                outcomes = await self._run_once(acks, request, step)
                break
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error):
                    raise
                await self.appender.follow_layout([request])
            except CONNECTION_ERRORS as error:
                if request.idempotency_key is not None:
                    raise DatabaseUnavailable(
                        f"the connection was lost in a transaction: {error}; repeat it under the same key"
                    ) from error
                # If it was committed, the positions have moved, and a repetition is refused.
                raise DatabaseUnavailable(
                    f"the connection was lost in a transaction, and its result is unknown: {error}; pop again: events "
                    "that it has completed are not delivered"
                ) from error
        self.appender.announce([request])
        await self.acks.announce(acks)
        return TransactionResult(request.results, sum(len(ack.acks) for ack in acks), outcomes)

    async def _run_once(
        self, acks: Sequence[PartitionAck], request: AppendRequest, step: TransactionStep | None
    ) -> list[AckEffect]:
        partition_ids = await self.appender.partition_ids([request])
        async with self.pool.connection() as conn, conn.transaction():
            if await self.idempotency_keys.claim_or_replay(conn, request):
                return []
            outcomes = await self._apply(conn, acks, request, partition_ids, step)
            await self.idempotency_keys.store_results(conn, [request])
            return outcomes

    async def _run_on(
        self,
        conn: AsyncConnection[Any],
        acks: Sequence[PartitionAck],
        request: AppendRequest,
        step: TransactionStep | None = None,
    ) -> TransactionResult:
        """Run in the transaction of a user's connection. It takes effect when the user commits."""
        for attempt in count():
            partition_ids = await self.appender.partition_ids([request])
            try:
                async with conn.transaction():
                    await self._check_database(conn, request)
                    await self._apply(conn, acks, request, partition_ids, step)
                    await self._notify_on_commit(conn, acks, request)
                break
            except psycopg.errors.SerializationFailure:
                continue
            except psycopg.errors.DeadlockDetected as error:
                raise Conflict(
                    "the transaction and another one wait for each other's locks; roll it back and repeat it. To avoid "
                    "this, push to all queues in one call at the end of the transaction"
                ) from error
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error) or attempt > MAX_LAYOUT_RETRIES:
                    raise
            await self.appender.follow_layout([request])
        return TransactionResult(request.results, sum(len(ack.acks) for ack in acks))

    async def _apply(
        self,
        conn: AsyncConnection[Any],
        acks: Sequence[PartitionAck],
        request: AppendRequest,
        partition_ids: dict[PartitionName, int],
        step: TransactionStep | None = None,
    ) -> list[AckEffect]:
        """Apply the acks, run the step, and append. The order of the locks is cursors first, then partitions."""
        outcomes = await self.acks.apply_on(conn, acks) if acks else {}
        for ack in acks:
            for outcome in outcomes[ack.key]:
                if outcome.problem or outcome.noop:
                    reason = outcome.problem or "committed already, by another consumer or before"
                    raise TransactionRefused(
                        f"the ack of offset {outcome.offset} in partition {ack.partition_id} of queue "
                        f"{ack.queue!r} was refused ({reason}), so the transaction was rolled back",
                        outcome.problem,
                    )
        if step is not None:
            await step(conn)
        # The key of the request is claimed in _run_once.
        keyless = AppendRequest(request.parts, rejected=request.rejected, shed=request.shed)
        await self.appender.append_on(conn, [keyless], partition_ids)
        request.results = keyless.results
        return [outcome for ack in acks for outcome in outcomes[ack.key]]

    async def _check_database(self, conn: AsyncConnection[Any], request: AppendRequest) -> None:
        """Raise InvalidRequest if the connection is to another database, where the queue's id is another queue."""
        exists = await fetch_scalar(conn, _sql["has_schema"])
        for queue in {piece.queue.id: piece.queue for piece in request.pieces()}.values():
            if exists:
                created_at = await fetch_scalar(conn, _sql["created_at"], {"queue": queue.id})
                if created_at is None or created_at == queue.created_at:
                    continue
            raise InvalidRequest(
                f"the connection is to a database that does not hold queue {queue.name!r}: events can be part of a "
                "transaction in their own database only"
            )

    async def _notify_on_commit(
        self, conn: AsyncConnection[Any], acks: Sequence[PartitionAck], request: AppendRequest
    ) -> None:
        """Send notifications with the commit, which only the user's connection sees."""
        queue_ids = {piece.queue.id for piece in request.pieces()}
        for name in {ack.queue for ack in acks}:
            queue_ids.add((await self.catalog.get_on(conn, name)).id)
        await conn.execute(_sql["notify"], {"channel": CHANNEL, "queues": sorted(queue_ids)})
