"""Handles of entries, locks and timers: ``q.kv(namespace)``, ``q.lock(name)`` and ``q.timer(queue, key)``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, Self

from msgspec import Raw

from penstock.client.client_session import ClientSession
from penstock.core import json
from penstock.core.backoff import Backoff
from penstock.core.errors import InvalidRequest, LockNotHeld, PenstockError, short_repr
from penstock.core.names import check_key, check_name
from penstock.core.option_checks import check_number
from penstock.log.coordination.kv import (
    MAX_SECONDS,
    NULL,
    KvEntry,
    KvOperation,
    KvResult,
    check_namespace,
    check_seconds,
)
from penstock.log.coordination.locks import LockHolder, Permit, check_lock_name, guard
from penstock.log.coordination.timers import TimerOperation, TimerResult

_ACQUIRE_BACKOFF = Backoff(0.05, 1.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the key-value store. Its version rises with each change."""

    key: str
    value: Any
    version: int
    expires_at: datetime | None
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a change, which is true if it was applied.

    ``reason`` is why not: exists, version, absent, limit or type. ``entry`` is the entry after the call.
    """

    applied: bool
    reason: str | None
    entry: Entry | None

    def __bool__(self) -> bool:
        return self.applied


def to_change(result: KvResult) -> Change:
    return Change(result.applied, result.reason, None if result.entry is None else _to_entry(result.entry))


def _to_entry(entry: KvEntry) -> Entry:
    return Entry(entry.key, json.decode(bytes(entry.value)), entry.version, entry.expires_at, entry.updated_at)


def encode_data(value: object, what: str) -> Raw:
    try:
        return Raw(json.encode(value))
    except json.JSONProblem as problem:
        raise InvalidRequest(f"{what} cannot be stored: {problem}") from None


def put_operation(
    namespace: str, key: str, value: object, ttl_seconds: float | None, expect: int | None, *, required: bool = False
) -> KvOperation:
    encoded = encode_data(value, f"the value of key {short_repr(key)}")
    return KvOperation("put", namespace, key, encoded, ttl_seconds, expect, required=required)


def schedule_operation(
    queue: str, timer: str, data: object, delay_seconds: float, key: str | None, id: str | None
) -> TimerOperation:
    check_number("delay_seconds", delay_seconds, -MAX_SECONDS, MAX_SECONDS)
    encoded = encode_data(data, f"the data of timer {short_repr(timer)}")
    return TimerOperation("schedule", queue, timer, encoded, delay_seconds, key, id)


@dataclass(frozen=True, slots=True)
class KvHandle:
    """The entries of one namespace. Each call is atomic, and expiry follows the clock of the database.

    ::

        seen = q.kv("seen-events")
        if await seen.put("evt-1", True, ttl_seconds=86_400, expect=0):
            ...  # the first one
    """

    _session: ClientSession = field(repr=False)
    namespace: str
    """The namespace's name."""

    async def get(self, key: str) -> Entry | None:
        """Return an entry; None if there is none or it has expired."""
        result = await self._run(KvOperation("get", self.namespace, key))
        return None if result.entry is None else _to_entry(result.entry)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the entries of up to 1,000 keys by key, without those that have none."""
        result = await self._run(KvOperation("get_many", self.namespace, keys=list(keys)))
        if result.truncated:
            raise InvalidRequest("the values of these keys have more than 8 MiB: read fewer keys at once")
        return {entry.key: _to_entry(entry) for entry in result.entries}

    async def list(self, prefix: str, *, limit: int = 1000) -> list[Entry]:
        """Return the entries whose keys start with a prefix, ordered by key. Each page is read by itself."""
        entries: list[Entry] = []
        after = ""
        while len(entries) < limit:
            page = await self._run(
                KvOperation("get_prefix", self.namespace, prefix=prefix, after=after, limit=limit - len(entries))
            )
            entries += [_to_entry(entry) for entry in page.entries]
            if not page.truncated or not page.entries:
                break
            after = page.entries[-1].key
        return entries

    async def put(self, key: str, value: Any, *, ttl_seconds: float | None = None, expect: int | None = None) -> Change:
        """Store a JSON value of up to 1 MiB.

        Args:
            key: The key, up to 1,024 bytes.
            value: The value.
            ttl_seconds: When the entry expires; None: never. An earlier expiry is replaced.
            expect: The version that the entry must have; 0: there must be none. Otherwise nothing is changed.
        """
        return to_change(await self._run(put_operation(self.namespace, key, value, ttl_seconds, expect)))

    async def increment(
        self,
        key: str,
        delta: float = 1,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        ttl_seconds: float | None = None,
    ) -> Change:
        """Add to a number; one that is absent counts as 0.

        If the sum is outside of the limits, nothing is changed. ``ttl_seconds`` is for a new entry; an existing one
        keeps its expiry.
        """
        operation = KvOperation("increment", self.namespace, key, NULL, ttl_seconds, None, delta, minimum, maximum)
        return to_change(await self._run(operation))

    async def delete(self, key: str, *, expect: int | None = None) -> Change:
        """Delete an entry, if it has the expected version."""
        return to_change(await self._run(KvOperation("delete", self.namespace, key, expect=expect)))

    async def _run(self, operation: KvOperation) -> KvResult:
        (result,) = await self._session.transport.apply_kv([operation])
        return result


@dataclass(frozen=True, slots=True)
class TimerHandle:
    """One timer: an event that is pushed to a queue later, exactly once.

    ::

        await q.timer("orders", "order-7:expire").schedule({"order": 7}, delay_seconds=1800)
        await q.timer("orders", "order-7:expire").cancel()
    """

    _session: ClientSession = field(repr=False)
    queue: str
    """The queue's name."""
    key: str
    """The timer's key, unique in the queue."""

    async def schedule(
        self, data: Any, *, delay_seconds: float, key: str | None = None, id: str | None = None
    ) -> TimerResult:
        """Push an event after a delay. A timer with the same key is replaced.

        Args:
            data: The data of the event.
            delay_seconds: The delay, by the clock of the database.
            key: The key of the event.
            id: The id of the event; generated if it is absent.
        """
        return await self._run(schedule_operation(self.queue, self.key, data, delay_seconds, key, id))

    async def cancel(self) -> TimerResult:
        """Cancel the timer. The status is ``absent`` if its event was pushed already, or never scheduled."""
        return await self._run(TimerOperation("cancel", self.queue, self.key))

    async def _run(self, operation: TimerOperation) -> TimerResult:
        (result,) = await self._session.transport.apply_timers([operation])
        return result


class LockHandle:
    """A lock, or a permit of a semaphore with a ``limit``. It is held for a time, and renewed in the background.

    ::

        async with q.lock("daily-report", ttl_seconds=30) as lock:
            async with q.transaction() as tx:
                tx.guard(lock)
                tx.queue("reports").push({"data": report})

    A holder that is paused longer than ``ttl_seconds`` is replaced, and does not notice. So guard what it writes: with
    :meth:`Transaction.guard`, with ``penstock.require_lock`` in your own transaction, or by comparing :attr:`token`.
    """

    def __init__(self, session: ClientSession, name: str, ttl_seconds: float, wait_seconds: float, limit: int) -> None:
        self._session = session
        self.name = check_lock_name(name)
        self._seconds = check_seconds(ttl_seconds)
        self._wait_seconds = check_number("wait_seconds", wait_seconds, 0, MAX_SECONDS)
        self._limit = limit
        self._owner = f"{socket.gethostname()[:128]}:{os.getpid()}:{secrets.token_hex(8)}"
        self._permit: Permit | None = None
        self._deadline = 0.0
        self._renewing: asyncio.Task[None] | None = None
        #: Held while the token is in use: a renewal changes it.
        self._token_in_use = asyncio.Lock()

    @property
    def token(self) -> int | None:
        """The fencing token: it rises with each holder and each renewal. None if the lock is not held."""
        permit = self._permit
        return None if permit is None or time.monotonic() >= self._deadline else permit.token

    async def acquire(self, wait_seconds: float | None = None) -> bool:
        """Take the lock. Return False if others hold it for longer than the wait."""
        if self.token is not None:
            return True
        wait = (
            self._wait_seconds if wait_seconds is None else check_number("wait_seconds", wait_seconds, 0, MAX_SECONDS)
        )
        end = time.monotonic() + wait
        for attempt in count(1):
            # The lock lasts at least as long by the clock of the database, because the request starts later there.
            sent = time.monotonic()
            permit = await self._session.transport.acquire_lock(self.name, self._owner, self._seconds, self._limit)
            if permit is not None:
                self._permit, self._deadline = permit, sent + self._seconds
                self._renewing = asyncio.create_task(self._keep_renewing())
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(_ACQUIRE_BACKOFF.pause(attempt), left))
        raise AssertionError

    async def renew(self) -> bool:
        """Extend the lock by its whole time. Return False if it is lost."""
        async with self._token_in_use:
            permit, sent = self._permit, time.monotonic()
            if permit is None:
                return False
            renewed = await self._session.transport.renew_lock(
                self.name, permit.token, self._seconds, slot=permit.slot, owner=self._owner
            )
            self._permit, self._deadline = renewed, sent + self._seconds
            return renewed is not None

    async def release(self) -> bool:
        """Give the lock back. Return False if it was lost before."""
        # A renewal on its way is awaited: if it was cancelled, its new token would be unknown.
        async with self._token_in_use:
            renewing, self._renewing = self._renewing, None
            permit, self._permit = self._permit, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        if permit is None:
            return False
        return await self._session.transport.release_lock(self.name, permit.token, slot=permit.slot)

    async def holders(self) -> list[LockHolder]:
        """Return who holds the lock."""
        return list(await self._session.transport.lock_holders(self.name))

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            raise LockNotHeld(f"the lock {self.name!r} is held by another owner; try again later, or wait for longer")
        return self

    async def __aexit__(self, *_: object) -> None:
        # If it cannot be released, it expires.
        with contextlib.suppress(PenstockError):
            await self.release()

    @contextlib.asynccontextmanager
    async def _guarding(self) -> AsyncIterator[KvOperation]:
        """Yield the check of the token, which does not change meanwhile; raise LockNotHeld if there is none."""
        async with self._token_in_use:
            permit = self._permit
            if permit is None or self.token is None:
                raise LockNotHeld(f"the lock {self.name!r} is not held any more, so nothing was committed")
            yield guard(self.name, permit.slot, permit.token)

    async def _keep_renewing(self) -> None:
        # It ends when the lock is lost, or could not be renewed in time.
        while self.token is not None:
            await asyncio.sleep(self._seconds / 3)
            with contextlib.suppress(PenstockError):
                await self.renew()


def kv_handle(session: ClientSession, namespace: str) -> KvHandle:
    return KvHandle(session, check_namespace(namespace))


def timer_handle(session: ClientSession, queue: str, key: str) -> TimerHandle:
    return TimerHandle(session, check_name(queue, "queue"), check_key(key))
