"""The client."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from penstock.client.arguments import (
    AckStatus,
    EventsToPush,
    PoppedEvents,
    check_number,
    read_error,
    read_events,
    read_popped,
)
from penstock.client.connect import connect
from penstock.client.gates import GateHandle
from penstock.client.queue import QueueHandle
from penstock.client.session import Session
from penstock.client.transaction import Transaction
from penstock.core.clock import Clock
from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.core.names import check_name
from penstock.db.user_connection import UserConnection
from penstock.log.event import Event
from penstock.log.log import Batch, GroupInfo
from penstock.log.queue import Queue
from penstock.log.read.ack import AckResult
from penstock.log.storage.segments import Upkeep
from penstock.log.write.result import PushResult

_ACK_CONTEXT = {"group": "group", "consumer_group": "group", "consumerGroup": "group", "error": "error"}


class Penstock:
    """A client: everything begins here.

    ::

        async with Penstock("postgresql://localhost/events") as q:
            await q.queue("orders").create()
            await q.queue("orders").partition("customer-7").push({"data": {"amount": 12}})
            events = await q.queue("orders").group("billing").batch(10).wait().pop()
            await q.ack(events)

    It is opened once and shared by all tasks of one event loop: what they ask for at the same time goes to the
    database together.

    Args:
        url: A Penstock server (``https://host:6632``), or the PostgreSQL to use, as a libpq URL or ``key=value``
            string. Without one, the environment names it (PENSTOCK_URL, PENSTOCK_DATABASE_URL, DATABASE_URL, PGHOST and
            the like); if it does not, a PostgreSQL that comes with Penstock is started.
        api_key: The key, or the bearer token, that the server wants.
        data_dir: Where that PostgreSQL is to keep its data; who gives one means that PostgreSQL.
        pool_size: The most connections that this client opens; over HTTP as many as it needs, unless told.
        max_event_bytes: The largest event that is accepted, where the queue does not say.
        auto_upgrade: Whether opening may bring the schema up to date.
        retry_seconds: How long a server or a database that cannot be reached is looked for before a call fails; over
            HTTP also how long a push waits for room in a queue that is full. 30 unless told.
        tls_ca_file: The certificates to trust in place of the system's, in PEM format.
        clock: Moves time, for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        pool_size: int | None = None,
        max_event_bytes: int | None = None,
        auto_upgrade: bool | None = None,
        retry_seconds: float | None = None,
        tls_ca_file: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._session = Session(
            connect(
                url,
                api_key=api_key,
                data_dir=data_dir,
                pool_size=pool_size,
                max_event_bytes=max_event_bytes,
                auto_upgrade=auto_upgrade,
                retry_seconds=retry_seconds,
                tls_ca_file=tls_ca_file,
                clock=clock,
            )
        )

    async def open(self) -> Self:
        """Connect; done by ``async with``."""
        await self._session.open()
        return self

    async def close(self) -> None:
        """Disconnect; done by ``async with``. May be called more than once.

        Consumers finish what they have in hand, which is waited for; pops that wait for events end with an error.
        """
        await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def queue(self, name: str) -> QueueHandle:
        """A queue, to be created, pushed to or read from; it need not exist yet."""
        return QueueHandle(self._session, check_name(name, "queue"))

    def gate(self, query: str) -> GateHandle:
        """The gates of a query that runs: what waits at them, and their limits."""
        return GateHandle(self._session, check_name(query, "query"))

    def transaction(self, connection: UserConnection | None = None) -> Transaction:
        """Acks and pushes that are to happen together.

        Args:
            connection: A psycopg connection to the same database, with a transaction in progress: what is gathered
                becomes part of that when this transaction is committed, and happens when that one is. Without it, it
                happens at once.
        """
        return Transaction(self._session, connection)

    async def queues(self) -> list[Queue]:
        """All queues, by name."""
        return await self._session.transport.queues()

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Every group, or every one of a queue, with how far it is behind."""
        return await self._session.transport.groups(queue)

    async def push(
        self, events: Mapping[str, EventsToPush], idempotency_key: str | None = None
    ) -> dict[str, PushResult]:
        """Store events in several queues, all or none: ``{"orders": [...], "audit": {...}}``."""
        if not isinstance(events, Mapping):
            raise InvalidRequest(
                f"push of several queues takes a mapping of their names to events, not {type(events).__name__}; "
                "for one queue it is q.queue(name).push(events)"
            )
        batches = [Batch(check_name(name, "queue"), read_events(some)) for name, some in events.items()]
        results = await self._session.transport.push(batches, idempotency_key=idempotency_key)
        return {batch.queue: result for batch, result in zip(batches, results, strict=True)}

    async def ack(
        self,
        events: PoppedEvents,
        status: AckStatus = True,
        context: Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        error: str | BaseException | None = None,
    ) -> Sequence[AckResult]:
        """Say what became of events that were popped; one result for each.

        Args:
            events: What a pop gave, or some of it. None and an empty list are fine: nothing happens.
            status: ``completed`` (True), which completes all before it in its partition too; ``failed`` (False): it
                comes again until its retries are used up, then it is a dead letter; ``retry``: it comes again and
                that costs no retry; ``dead_letter``: it is one now.
            context: ``group`` and ``error`` as a mapping, for those who are used to it.
            group: The group that popped the events. They know it themselves; it is checked.
            error: Why, as text or as the exception.
        """
        given = {"group": group, "error": error, **_read_context(context)}
        popped = read_popped(events, "ack")
        text, trace = read_error(given["error"])
        if given["group"] is not None:
            _check_group(popped, given["group"])
        transport = self._session.transport
        return await transport.ack(popped, status, error=text, traceback=trace) if popped else []

    async def renew(self, events: PoppedEvents, seconds: float = 60.0) -> datetime | None:
        """Make the leases of these events last so long from now; answers until when, or None if one has ended."""
        check_number("seconds", seconds, 0.1, 7 * 86_400)
        leases: dict[str, list[Event]] = {}
        for event in read_popped(events, "renew"):
            if event.lease_id is None:
                raise InvalidRequest(f"event {event.id} was read and not popped: it has no lease that could be renewed")
            leases.setdefault(event.lease_id, []).append(event)
        transport = self._session.transport
        ends = [await transport.extend(some, seconds) for some in leases.values()]
        known = [end for end in ends if end is not None]
        return min(known, default=None) if len(known) == len(ends) else None

    async def upkeep(self) -> Upkeep:
        """Roll, drop and park what is due, now; an open client does so every few seconds by itself."""
        return await self._session.transport.upkeep()


def _read_context(context: object) -> dict[str, Any]:
    if context is None:
        return {}
    if not isinstance(context, Mapping):
        raise InvalidRequest(f"the context of an ack is a mapping such as {{'group': ...}}, not {context!r}")
    given: dict[str, Any] = {}
    for name, value in context.items():
        if name not in _ACK_CONTEXT:
            raise InvalidOption(f"there is no {name!r} in the context of an ack; it has group and error", option=name)
        given[_ACK_CONTEXT[name]] = value
    return given


def _check_group(events: Sequence[Event], group: object) -> None:
    for event in events:
        if event.group is not None and event.group != group:
            raise InvalidRequest(
                f"event {event.id} was popped by group {event.group!r} and cannot be acknowledged for {group!r}; "
                "leave the group out, the events know theirs"
            )
