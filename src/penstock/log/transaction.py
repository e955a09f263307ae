"""Acks and pushes that happen together or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

from penstock.core.errors import Conflict, DatabaseUnavailable, InvalidRequest, TransactionRefused
from penstock.db.retry import LOST
from penstock.db.statements import Statements
from penstock.log.notify import CHANNEL
from penstock.log.write.append import MOST_LOOKS, moved_on

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.log.catalog import Catalog
    from penstock.log.read.ack import Acks, LaneAck
    from penstock.log.read.position import Verdict
    from penstock.log.write.append import Appender
    from penstock.log.write.flush import Request
    from penstock.log.write.result import PushResult

#: What else is to happen in a transaction, on its connection.
Also: TypeAlias = Callable[["AsyncConnection[Any]"], Awaitable[None]]

_sql = Statements("penstock.log", "transaction.sql")


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What a transaction stored: one result for each push it held, in order."""

    pushes: list[PushResult]
    acked: int
    #: What became of each ack, partition by partition.
    verdicts: Sequence[Verdict] = ()


class Transactions:
    """Runs transactions."""

    def __init__(self, pool: AsyncConnectionPool[Any], catalog: Catalog, acks: Acks, appender: Appender) -> None:
        self._pool = pool
        self._catalog = catalog
        self._acks = acks
        self._appender = appender

    async def run(
        self,
        acks: Sequence[LaneAck],
        request: Request,
        claim: Request | None = None,
        also: Also | None = None,
    ) -> TransactionResult:
        """Settle the acks under their leases and append the request, or raise TransactionRefused and do neither.

        A ``claim`` has the idempotency key under which it happens once: the answer is kept, and given again. What is
        to happen ``also`` is done in between: after cursors are locked and before partitions are.
        """
        if not acks and also is None:
            # A push, and nothing else: it knows how to survive a lost answer.
            request = claim or request
            await self._appender.append([request])
            return TransactionResult(request.results, 0)
        while True:
            try:
                verdicts = await self._once(acks, request, claim, also)
                break
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            except psycopg.ProgrammingError as error:
                if not moved_on(error):
                    raise
                await self._appender.look_again([request])
            except LOST as error:
                if claim is not None:
                    raise DatabaseUnavailable(
                        f"the connection was lost in a transaction: {error}; repeat it under the same key"
                    ) from error
                # Whether it got through is written in the positions: asking again is refused if it did.
                raise DatabaseUnavailable(
                    f"the connection was lost in a transaction, which may or may not have happened: {error}; "
                    "pop again, and what it had completed will not come"
                ) from error
        self._appender.announce([request])
        await self._acks.announce(acks)
        return TransactionResult(request.results, sum(len(ack.signals) for ack in acks), verdicts)

    async def run_on(self, conn: AsyncConnection[Any], acks: Sequence[LaneAck], request: Request) -> TransactionResult:
        """The same inside the transaction of a borrowed connection: it happens when that commits, if it does."""
        for looks in count():
            lanes = await self._appender.lanes([request])
            try:
                async with conn.transaction():
                    await self._check_database(conn, request)
                    await self._act(conn, acks, request, lanes)
                    await self._notify(conn, acks, request)
                break
            except psycopg.errors.SerializationFailure:
                continue  # a position has moved meanwhile
            except psycopg.errors.DeadlockDetected as error:
                raise Conflict(
                    "the transaction and another one wait for each other's locks; roll it back and repeat the whole. "
                    "One that pushes once, at its end, to all queues together, does not come to that"
                ) from error
            except psycopg.ProgrammingError as error:
                if not moved_on(error) or looks > MOST_LOOKS:
                    raise
            await self._appender.look_again([request])
        return TransactionResult(request.results, sum(len(ack.signals) for ack in acks))

    async def _check_database(self, conn: AsyncConnection[Any], request: Request) -> None:
        """A queue of that number in another database is another queue."""
        there = await (await conn.execute("SELECT to_regclass('penstock.queues') IS NOT NULL")).fetchone()
        for queue in {piece.queue.id: piece.queue for piece in request.pieces()}.values():
            if there is not None and there[0]:
                row = await (await conn.execute(_sql["creation"], {"queue": queue.id})).fetchone()
                if row is None or row[0] == queue.created_at:
                    continue
            raise InvalidRequest(
                f"the connection is to a database that does not hold queue {queue.name!r}: events can be part of a "
                "transaction in their own database only"
            )

    async def _notify(self, conn: AsyncConnection[Any], acks: Sequence[LaneAck], request: Request) -> None:
        """Wake those who wait, when it is committed: nobody but PostgreSQL will know when that is."""
        queues = {piece.queue.id for piece in request.pieces()}
        for name in {ack.queue for ack in acks}:
            queues.add((await self._catalog.get_on(conn, name)).id)
        await conn.execute(_sql["notify"], {"channel": CHANNEL, "queues": sorted(queues)})

    async def _once(
        self, acks: Sequence[LaneAck], request: Request, claim: Request | None, also: Also | None
    ) -> list[Verdict]:
        lanes = await self._appender.lanes([request])
        async with self._pool.connection() as conn, conn.transaction():
            if claim is not None and await self._appender.answered_before(conn, claim):
                request.results = claim.results
                return []
            verdicts = await self._act(conn, acks, request, lanes, also)
            if claim is not None and claim.idempotency_key is not None:
                await self._appender.remember(conn, claim.idempotency_key, request.results)
            return verdicts

    async def _act(
        self,
        conn: AsyncConnection[Any],
        acks: Sequence[LaneAck],
        request: Request,
        lanes: dict[tuple[int, str], int],
        also: Also | None = None,
    ) -> list[Verdict]:
        verdicts = await self._acks.settle_on(conn, acks) if acks else {}
        for ack in acks:
            for verdict in verdicts[ack.group_id, ack.partition_id]:
                if verdict.problem or verdict.noop:
                    why = verdict.problem or "committed already, by somebody else or before"
                    raise TransactionRefused(
                        f"the ack of offset {verdict.offset} in partition {ack.partition_id} of queue "
                        f"{ack.queue!r} was refused ({why}), so the transaction was rolled back"
                    )
        if also is not None:
            await also(conn)
        await self._appender.append_on(conn, [request], lanes)
        return [verdict for ack in acks for verdict in verdicts[ack.group_id, ack.partition_id]]
