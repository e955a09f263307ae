"""Acks and pushes that happen together or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.client.arguments import (
    AckStatus,
    EventsToPush,
    PoppedEvents,
    read_error,
    read_events,
    read_ndjson,
    read_popped,
)
from penstock.core.errors import InvalidRequest
from penstock.core.names import check_key, check_name
from penstock.db.user_connection import UserConnection
from penstock.log.log import Batch, Said
from penstock.log.read.ack import check_status
from penstock.log.transaction import TransactionResult

if TYPE_CHECKING:
    from penstock.client.session import Session


class Transaction:
    """Gathers acks and pushes, and does them in one go, alone or as part of a transaction of your own.

    As a block, which commits at its end and does nothing if it is left by an exception::

        async with q.transaction() as tx:
            tx.ack(events)
            tx.queue("shipments").partition("berlin").push([{"data": order} for order in orders])

    or as a chain::

        await q.transaction().ack(events).queue("shipments").push({"data": 1}).commit()

    An ack is refused when its lease has ended: then nothing is pushed either and
    :class:`~penstock.core.errors.TransactionRefused` is raised, so what a consumer makes of an event is stored
    exactly once.
    """

    def __init__(self, session: Session, connection: UserConnection | None = None) -> None:
        self._session = session
        self._connection = connection
        self._acks: list[Said] = []
        self._batches: list[Batch] = []
        self._sent = False
        self._result: TransactionResult | None = None

    @property
    def result(self) -> TransactionResult | None:
        """What it stored, once it is committed."""
        return self._result

    def ack(
        self, events: PoppedEvents, status: AckStatus = "completed", error: str | BaseException | None = None
    ) -> Transaction:
        """Acknowledge events that were popped: completed, failed, retry or dead_letter."""
        self._check_unsent()
        said, (text, trace) = check_status(status), read_error(error)
        self._acks += [(event, said, text, trace) for event in read_popped(events, "ack")]
        return self

    def queue(self, name: str) -> TransactionQueue:
        """A queue to push to."""
        self._check_unsent()
        return TransactionQueue(self, check_name(name, "queue"))

    async def commit(self) -> TransactionResult:
        """Do it all, or raise and do nothing."""
        self._check_unsent()
        transport = self._session.transport
        self._sent = True
        if self._acks or self._batches:
            self._result = await transport.transact(self._acks, self._batches, connection=self._connection)
        else:
            self._result = TransactionResult([], 0)
        return self._result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._sent:
            await self.commit()

    def _add(self, batch: Batch) -> Transaction:
        self._check_unsent()
        self._batches.append(batch)
        return self

    def _check_unsent(self) -> None:
        if self._sent:
            raise InvalidRequest("this transaction was committed or refused already; begin another: q.transaction()")


@dataclass(frozen=True, slots=True)
class TransactionQueue:
    """A queue that a transaction pushes to."""

    _transaction: Transaction
    name: str
    """The queue's name."""
    _key: str | None = None

    def partition(self, name: str) -> TransactionQueue:
        """The lane, or the key, of the events that follow and bring none of their own."""
        return replace(self, _key=check_key(name))

    def key(self, key: str) -> TransactionQueue:
        """The same as :meth:`partition`."""
        return self.partition(key)

    def push(self, events: EventsToPush) -> Transaction:
        """Push an event or a list of them; goes on with the transaction."""
        return self._transaction._add(Batch(self.name, list(read_events(events)), self._key))

    def push_ndjson(
        self, data: bytes, *, key_field: str | None = None, id_field: str | None = None, time_field: str | None = None
    ) -> Transaction:
        """Push events that are encoded already, a JSON value a line; goes on with the transaction."""
        return self._transaction._add(Batch(self.name, read_ndjson(data), self._key, key_field, id_field, time_field))
