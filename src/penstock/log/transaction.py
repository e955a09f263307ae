"""Acks and pushes that happen together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import DatabaseUnavailable, TransactionRefused
from penstock.db.patience import LOST
from penstock.log.append import moved_on
from penstock.log.flush import Request

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from penstock.log.ack import Acks, LaneAck
    from penstock.log.append import Appender
    from penstock.log.prepare import Piece
    from penstock.log.pushed import PushResult


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What a transaction stored: one result for each push it held, in order."""

    pushes: list[PushResult]
    acked: int


class Transactions:
    """Runs transactions."""

    def __init__(self, pool: AsyncConnectionPool[Any], acks: Acks, appender: Appender) -> None:
        self._pool = pool
        self._acks = acks
        self._appender = appender

    async def run(self, acks: Sequence[LaneAck], pushes: list[list[Piece]]) -> TransactionResult:
        """Settle the acks under their leases and append the pushes, or raise TransactionRefused and do neither."""
        request = Request(pushes)
        if not acks:
            # A push, and nothing else: it knows how to survive a lost answer.
            await self._appender.append([request])
            return TransactionResult(request.results, 0)
        while True:
            try:
                await self._once(acks, request)
                break
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            except psycopg.ProgrammingError as error:
                if not moved_on(error):
                    raise
                await self._appender.look_again([request])
            except LOST as error:
                # Whether it got through is written in the positions: asking again is refused if it did.
                raise DatabaseUnavailable(
                    f"the connection was lost in a transaction, which may or may not have happened: {error}; "
                    "pop again, and what it had completed will not come"
                ) from error
        self._appender.announce([request])
        await self._acks.announce(acks)
        return TransactionResult(request.results, sum(len(ack.signals) for ack in acks))

    async def _once(self, acks: Sequence[LaneAck], request: Request) -> None:
        lanes = await self._appender.lanes([request])
        async with self._pool.connection() as conn, conn.transaction():
            verdicts = await self._acks.settle_on(conn, acks) if acks else {}
            for ack in acks:
                for verdict in verdicts[ack.group_id, ack.partition_id]:
                    if verdict.problem or verdict.noop:
                        why = verdict.problem or "committed already, by somebody else or before"
                        raise TransactionRefused(
                            f"the ack of offset {verdict.offset} in partition {ack.partition_id} of queue "
                            f"{ack.queue!r} was refused ({why}), so the transaction was rolled back"
                        )
            await self._appender.append_on(conn, [request], lanes)
