"""``Penstock.transaction``: acks, pushes, entries and timers that are committed together."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from penstock.client.arguments import (
    AckStatus,
    EventsToPush,
    PoppedEvents,
    read_error,
    read_events,
    read_ndjson,
    read_popped,
)
from penstock.client.client_session import ClientSession
from penstock.client.coordination import LockHandle, put_operation, schedule_operation, to_change
from penstock.core.errors import InvalidRequest
from penstock.core.names import check_key, check_name
from penstock.db.user_connection import UserConnection
from penstock.log.coordination.kv import NULL, KvOperation, check_namespace
from penstock.log.coordination.timers import TimerOperation
from penstock.log.read.ack import EventStatus, check_status
from penstock.log.transaction import TransactionResult
from penstock.log.write.encode.batch import Batch

if TYPE_CHECKING:
    from penstock.client._sync import SyncLockHandle


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
        self._kv: list[KvOperation] = []
        self._timers: list[TimerOperation] = []
        self._locks: list[LockHandle] = []
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

    def kv(self, namespace: str) -> TransactionKv:
        """Return a namespace of the key-value store, to change its entries."""
        self._check_unsent()
        return TransactionKv(self, check_namespace(namespace))

    def timer(self, queue: str, key: str) -> TransactionTimer:
        """Return a timer, to schedule or cancel it."""
        self._check_unsent()
        return TransactionTimer(self, check_name(queue, "queue"), check_key(key))

    def guard(self, lock: LockHandle | SyncLockHandle) -> Transaction:
        """Commit only while the lock is held. Otherwise the commit raises LockNotHeld or PreconditionFailed."""
        self._check_unsent()
        # A synchronous client gives its own form of the lock.
        self._locks.append(lock if isinstance(lock, LockHandle) else lock._async)
        return self

    async def commit(self) -> TransactionResult:
        """Commit everything, or raise and do nothing."""
        self._check_unsent()
        transport = self._session.transport
        self._sent = True
        async with AsyncExitStack() as stack:
            # Each lock once and in one order: otherwise this waits for itself, or two transactions for each other.
            locks = sorted(set(self._locks), key=id)
            guards = [await stack.enter_async_context(lock._guarding()) for lock in locks]
            kv = [*guards, *self._kv]
            if self._acks or self._batches or kv or self._timers:
                result = await transport.transact(
                    self._acks, self._batches, connection=self._connection, kv=kv, timers=self._timers
                )
                changes = [to_change(each) for each in result.kv[len(guards) :]]
                self._result = replace(result, kv=changes)
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

    def _add_kv(self, operation: KvOperation) -> Transaction:
        self._check_unsent()
        self._kv.append(operation)
        return self

    def _add_timer(self, operation: TimerOperation) -> Transaction:
        self._check_unsent()
        self._timers.append(operation)
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


@dataclass(frozen=True, slots=True)
class TransactionKv:
    """A namespace of the key-value store, whose entries a transaction changes.

    With ``required``, the commit raises :class:`~penstock.core.errors.PreconditionFailed` and does nothing if the
    change is not applied. The results are in :attr:`Transaction.result`.
    """

    _transaction: Transaction
    namespace: str
    """The namespace's name."""

    def put(
        self,
        key: str,
        value: Any,
        *,
        ttl_seconds: float | None = None,
        expect: int | None = None,
        required: bool = False,
    ) -> Transaction:
        """Store a value, as :meth:`KvHandle.put` does."""
        return self._transaction._add_kv(
            put_operation(self.namespace, key, value, ttl_seconds, expect, required=required)
        )

    def increment(
        self,
        key: str,
        delta: float = 1,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        ttl_seconds: float | None = None,
        required: bool = False,
    ) -> Transaction:
        """Add to a number, as :meth:`KvHandle.increment` does."""
        return self._transaction._add_kv(
            KvOperation("increment", self.namespace, key, NULL, ttl_seconds, None, delta, minimum, maximum, required)
        )

    def delete(self, key: str, *, expect: int | None = None, required: bool = False) -> Transaction:
        """Delete an entry, as :meth:`KvHandle.delete` does."""
        return self._transaction._add_kv(KvOperation("delete", self.namespace, key, expect=expect, required=required))

    def check(self, key: str, *, expect: int) -> Transaction:
        """Commit only if the entry has this version; 0: only if there is none."""
        return self._transaction._add_kv(KvOperation("check", self.namespace, key, expect=expect, required=True))


@dataclass(frozen=True, slots=True)
class TransactionTimer:
    """A timer that a transaction schedules or cancels."""

    _transaction: Transaction
    queue: str
    """The queue's name."""
    key: str
    """The timer's key."""

    def schedule(
        self, data: Any, *, delay_seconds: float, key: str | None = None, id: str | None = None
    ) -> Transaction:
        """Push an event after a delay, as :meth:`TimerHandle.schedule` does."""
        return self._transaction._add_timer(schedule_operation(self.queue, self.key, data, delay_seconds, key, id))

    def cancel(self) -> Transaction:
        """Cancel the timer if its event was not pushed yet."""
        return self._transaction._add_timer(TimerOperation("cancel", self.queue, self.key))
