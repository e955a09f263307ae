"""``Penstock.transaction``: acks and pushes that are committed together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from penstock.client.arguments import (
    AckStatus,
    EventsToPush,
    PoppedEvents,
    read_error,
    read_events,
    read_ndjson,
    read_popped,
)
from penstock.client.session import ClientSession
from penstock.core.errors import InvalidRequest
from penstock.core.names import check_key, check_name
from penstock.db.user_connection import UserConnection
from penstock.log.read.ack import EventStatus, check_status
from penstock.log.transaction import TransactionResult
from penstock.log.write.batch import Batch


class Transaction:
    """Collects acks and pushes and commits them together, alone or in a transaction of your own.

    As a block, which commits at its end and does nothing if it raises::

        async with q.transaction() as tx:
            tx.ack(events)
            tx.queue("shipments").partition("berlin").push([{"data": order} for order in orders])

    or as a chain::

        await q.transaction().ack(events).queue("shipments").push({"data": 1}).commit()

    If the lease of an acked event has ended, the commit raises :class:`~penstock.core.errors.TransactionRefused` and
    pushes nothing. So the results of an event are stored exactly once.
    """

    def __init__(self, session: ClientSession, connection: UserConnection | None = None) -> None:
        self._session = session
        self._connection = connection
        self._acks: list[EventStatus] = []
        self._batches: list[Batch] = []
        self._sent = False
        self._result: TransactionResult | None = None

    @property
    def result(self) -> TransactionResult | None:
        """The result of the commit; None before it."""
        return self._result

    def ack(
        self, events: PoppedEvents, status: AckStatus = "completed", error: str | BaseException | None = None
    ) -> Transaction:
        """Acknowledge popped events: completed, failed, retry or dead_letter."""
        self._check_unsent()
        checked, (text, trace) = check_status(status), read_error(error)
        self._acks += [EventStatus(event, checked, text, trace) for event in read_popped(events, "ack")]
        return self

    def queue(self, name: str) -> TransactionQueue:
        """Return a queue to push to."""
        self._check_unsent()
        return TransactionQueue(self, check_name(name, "queue"))

    async def commit(self) -> TransactionResult:
        """Commit all acks and pushes, or raise and do nothing."""
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

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._sent:
            await self.commit()

    def _add(self, batch: Batch) -> Transaction:
        self._check_unsent()
        self._batches.append(batch)
        return self

    def _check_unsent(self) -> None:
        if self._sent:
            raise InvalidRequest(
                "this transaction was committed or refused already; begin another with q.transaction()"
            )


@dataclass(frozen=True, slots=True)
class TransactionQueue:
    """A queue to which a transaction pushes."""

    _transaction: Transaction
    name: str
    """The queue's name."""
    _key: str | None = None

    def partition(self, name: str) -> TransactionQueue:
        """Set the key of events without a key of their own."""
        return replace(self, _key=check_key(name))

    def key(self, key: str) -> TransactionQueue:
        """Alias of :meth:`partition`."""
        return self.partition(key)

    def push(self, events: EventsToPush) -> Transaction:
        """Push an event or a list of events; return the transaction."""
        return self._transaction._add(Batch(self.name, list(read_events(events)), self._key))

    def push_ndjson(
        self, data: bytes, *, key_field: str | None = None, id_field: str | None = None, time_field: str | None = None
    ) -> Transaction:
        """Push encoded events, one JSON value per line; return the transaction."""
        return self._transaction._add(Batch(self.name, read_ndjson(data), self._key, key_field, id_field, time_field))
