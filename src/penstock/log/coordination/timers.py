"""Timers: events that are pushed at a time, once. They are scheduled, cancelled and listed here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec
import psycopg
from msgspec import Raw
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.encryption import decrypt_text, encrypt_text
from penstock.core.errors import InvalidRequest, NotFound
from penstock.core.names import check_key, check_name
from penstock.core.option_checks import check_number
from penstock.db.retry import in_transaction
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.coordination.kv import MAX_OPERATIONS, MAX_SECONDS, NULL
from penstock.log.database_errors import translate_errors
from penstock.log.notify import Notifier
from penstock.log.transaction import Transactions
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.flush import AppendRequest

_sql = Statements("penstock.log.coordination", "timers.sql")

#: The notification that a timer was scheduled.
TOPIC = "timers"
MAX_PAGE = 1000


class TimerOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Schedule an event of a queue under a key, or cancel it.

    Attributes:
        data: The data of the event, as JSON text.
        seconds: The delay. A negative one is due now.
        event_key: The key of the event.
    """

    op: Literal["schedule", "cancel"]
    queue: str
    key: str
    data: Raw = msgspec.field(default_factory=lambda: NULL)
    seconds: float = 0.0
    event_key: str | None = None
    event_id: str | None = None
    headers: Mapping[str, str] | None = None


class TimerResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an operation: scheduled, rescheduled, cancelled, or absent if there is no timer to cancel."""

    status: Literal["scheduled", "rescheduled", "cancelled", "absent"]
    event_id: str | None = None
    due_at: datetime | None = None


class Timer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scheduled event. ``data`` is JSON text, and None in a list."""

    key: str
    due_at: datetime
    event_id: str
    event_key: str | None
    data: str | None
    headers: dict[str, str] | None
    scheduled_at: datetime


#: Stored headers. Those of an encrypted timer are a string with their encrypted JSON, and so is its data.
StoredHeaders: TypeAlias = dict[str, str] | str | None


def _encode(text: bytes, *, encrypted: bool) -> str:
    """Return JSON text as it is stored: unchanged, or as a string that holds it encrypted."""
    return f'"{encrypt_text(text)}"' if encrypted else text.decode()


def decode_headers(headers: StoredHeaders) -> dict[str, str] | None:
    if not isinstance(headers, str):
        return headers
    decoded: dict[str, str] | None = msgspec.json.decode(decrypt_text(headers), type=dict[str, str] | None)
    return decoded


def decode_data(data: str, headers: StoredHeaders) -> bytes:
    return decrypt_text(data[1:-1]) if isinstance(headers, str) else data.encode()


def _decode_timer(timer: Timer) -> Timer:
    data = None if timer.data is None else decode_data(timer.data, timer.headers).decode()
    return msgspec.structs.replace(timer, data=data, headers=decode_headers(timer.headers))


@translate_errors
@dataclass(slots=True, eq=False)
class Timers:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    transactions: Transactions
    notifier: Notifier
    clock: Clock

    async def apply(
        self, operations: Sequence[TimerOperation], *, idempotency_key: str | None = None
    ) -> list[TimerResult]:
        """Schedule and cancel timers in one transaction.

        A repetition with the same idempotency key returns the results of the first call and changes nothing.
        """
        await self.check_operations(operations)
        if idempotency_key is None:
            results = await in_transaction(self.pool, lambda conn: self.apply_on(conn, operations))
        else:
            key = check_name(idempotency_key, "request")
            results = await in_transaction(self.pool, lambda conn: self._apply_once(conn, operations, key))
        self.notifier.wake_local(TOPIC)
        return results

    async def _apply_once(
        self, conn: AsyncConnection[Any], operations: Sequence[TimerOperation], key: str
    ) -> list[TimerResult]:
        digest = blake2b(msgspec.msgpack.encode(operations), digest_size=16).digest()
        keys = self.transactions.idempotency_keys
        stored = await keys.claim(conn, AppendRequest([], idempotency_key=key, fingerprint=digest))
        if stored is not None:
            return msgspec.msgpack.decode(stored, type=list[TimerResult])
        results = await self.apply_on(conn, operations)
        await keys.store(conn, {key: msgspec.msgpack.encode(results)})
        return results

    async def check_operations(self, operations: Sequence[TimerOperation]) -> None:
        """Raise an error if an operation is invalid or an event could not be pushed."""
        if len(operations) > MAX_OPERATIONS:
            raise InvalidRequest(f"one call may have up to {MAX_OPERATIONS} timers; this one has {len(operations)}")
        if len({(operation.queue, operation.key) for operation in operations}) < len(operations):
            raise InvalidRequest("one call may have one operation for each timer; this one has two for the same key")
        for operation in operations:
            check_name(operation.queue, "queue")
            check_key(operation.key)
            if operation.op == "schedule":
                check_number("the delay", operation.seconds, -MAX_SECONDS, MAX_SECONDS)
                events = JsonEvents(
                    [bytes(operation.data)],
                    [operation.event_key],
                    [operation.event_id],
                    headers=[operation.headers],
                )
                # Validates the event as a push does.
                await self.transactions.pusher.encode(Batch(operation.queue, events))

    async def apply_on(self, conn: AsyncConnection[Any], operations: Sequence[TimerOperation]) -> list[TimerResult]:
        """Execute checked operations in the transaction of a connection. Rows are locked in one order."""
        order = sorted(range(len(operations)), key=lambda index: (operations[index].queue, operations[index].key))
        results = {index: await self._execute(conn, operations[index]) for index in order}
        return [results[index] for index in range(len(operations))]

    async def _execute(self, conn: AsyncConnection[Any], operation: TimerOperation) -> TimerResult:
        if operation.op == "cancel":
            params: dict[str, Any] = {"queue": operation.queue, "key": operation.key}
            cancelled = await (await conn.execute(_sql["cancel"], params)).fetchone()
            return (
                TimerResult("absent", operation.event_id) if cancelled is None else TimerResult("cancelled", *cancelled)
            )
        encrypted = (await self.catalog.get_on(conn, operation.queue)).encrypted
        headers = None if operation.headers is None else msgspec.json.encode(operation.headers)
        params = {
            "queue": operation.queue,
            "key": operation.key,
            "data": _encode(bytes(operation.data), encrypted=encrypted),
            "seconds": operation.seconds,
            "event_key": operation.event_key,
            "event_id": operation.event_id or str(uuid.uuid4()),
            "headers": _encode(headers or b"null", encrypted=encrypted) if headers or encrypted else None,
            "skew": self.clock.skew,
        }
        try:
            rows = await (await conn.execute(_sql["schedule"], params)).fetchall()
        except psycopg.errors.UndefinedObject:
            raise NotFound(f"there is no queue {operation.queue!r}", queue=operation.queue) from None
        ((due_at, event_id, replaced),) = rows
        return TimerResult("rescheduled" if replaced else "scheduled", event_id, due_at)

    async def find(self, queue: str, key: str) -> Timer | None:
        """Return a timer with its data, or None."""
        timers = await self._read("find", {"queue": check_name(queue, "queue"), "key": check_key(key)})
        return timers[0] if timers else None

    async def page(self, queue: str, *, after: str = "", limit: int = MAX_PAGE) -> list[Timer]:
        """Return the timers of a queue after a key, ordered by key, without their data."""
        return await self._read("list", {"queue": check_name(queue, "queue"), "after": after, "limit": limit})

    async def _read(self, statement: str, params: dict[str, Any]) -> list[Timer]:
        async with self.pool.connection() as conn:
            rows = await (await conn.execute(_sql[statement], params)).fetchall()
        return [_decode_timer(Timer(*row)) for row in rows]
