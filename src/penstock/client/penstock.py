"""``Penstock``, the asynchronous client."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from penstock.client.arguments import (
    AckStatus,
    EventsToPush,
    PoppedEvents,
    read_error,
    read_events,
    read_popped,
)
from penstock.client.client_session import ClientSession
from penstock.client.connect import connect
from penstock.client.coordination import KvHandle, LockHandle, TimerHandle, kv_handle, timer_handle
from penstock.client.gates import GateHandle
from penstock.client.queue import QueueHandle
from penstock.client.transaction import Transaction
from penstock.core.clock import Clock
from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import check_key, check_name
from penstock.core.option_checks import check_flag, check_number
from penstock.db.user_connection import UserConnection
from penstock.engine.results.result_reader import QueryRows, ResultView, RowRequest, read_rows
from penstock.log.event import Event
from penstock.log.queue import Queue
from penstock.log.queue_info import GroupInfo
from penstock.log.read.ack import AckResult
from penstock.log.upkeep import Upkeep
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult

_ACK_CONTEXT = {"group": "group", "consumer_group": "group", "consumerGroup": "group", "error": "error"}


class Penstock:
    """The client of a Penstock server or of a PostgreSQL database.

    ::

        async with Penstock("postgresql://localhost/events") as q:
            await q.queue("orders").create()
            await q.queue("orders").partition("customer-7").push({"data": {"amount": 12}})
            events = await q.queue("orders").group("billing").batch(10).wait().pop()
            await q.ack(events)

    Open one client and share it between all tasks of the event loop: concurrent calls go to the database in one batch.

    Args:
        url: A Penstock server (``https://host:6632``), or a PostgreSQL database as a libpq URL or ``key=value`` string.
            Without it, the environment names one (PENSTOCK_URL, PENSTOCK_DATABASE_URL, DATABASE_URL, PGHOST, ...).
            Without those, the client starts the PostgreSQL that is installed with Penstock.
        api_key: The API key or bearer token for the server.
        data_dir: The data directory of the PostgreSQL that the client starts. The environment is then ignored.
        pool_size: The most connections that this client opens (default: 8 to a database, no limit over HTTP).
        max_event_bytes: The largest event to accept, for queues without a limit of their own.
        auto_upgrade: Whether opening may upgrade the database schema.
        retry_seconds: How long a call retries while the server or the database cannot be reached, and how long a push
            over HTTP waits for room in a full queue (default 30).
        tls_ca_file: CA certificates to trust instead of the system's, in PEM format.
        clock: A clock that tests can move.
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
        self._session = ClientSession(
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
        """Connect. ``async with`` calls this."""
        await self._session.open()
        return self

    async def close(self) -> None:
        """Disconnect. ``async with`` calls this. May be called more than once.

        Consumers finish the events that they handle; pops that wait for events raise PenstockError.
        """
        await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def queue(self, name: str) -> QueueHandle:
        """Return the handle of a queue, to create it, push to it or read from it. The queue need not exist."""
        return QueueHandle(self._session, check_name(name, "queue"))

    def gate(self, query: str) -> GateHandle:
        """Return the handle of a query's gates, to list and change their limits."""
        return GateHandle(self._session, check_name(query, "query"))

    def kv(self, namespace: str) -> KvHandle:
        """Return the handle of a namespace of the key-value store."""
        return kv_handle(self._session, namespace)

    def timer(self, queue: str, key: str) -> TimerHandle:
        """Return the handle of a timer, which pushes an event to a queue later."""
        return timer_handle(self._session, queue, key)

    def lock(self, name: str, *, ttl_seconds: float, wait_seconds: float = 0.0, limit: int = 1) -> LockHandle:
        """Return a lock, or one permit of a semaphore.

        Args:
            name: The lock's name, up to 256 bytes.
            ttl_seconds: The lock expires so long after the holder has last renewed it, which it does in the background.
            wait_seconds: How long ``async with`` and :meth:`LockHandle.acquire` wait for the lock.
            limit: The number of permits; every caller gives the same.
        """
        return LockHandle(self._session, name, ttl_seconds, wait_seconds, limit)

    def transaction(self, connection: UserConnection | None = None) -> Transaction:
        """Return a transaction of acks and pushes.

        Args:
            connection: A psycopg connection to the same database. The acks and pushes become part of its transaction
                and take effect when you commit that. Without it, they take effect when this transaction is committed.
        """
        return Transaction(self._session, connection)

    async def queues(self) -> list[Queue]:
        """Return all queues, ordered by name."""
        return await self._session.transport.queues()

    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Return all groups, or those of a queue, with their lag."""
        return await self._session.transport.groups(queue)

    async def live(self, query: str, *, key: str | None = None, current: bool = False) -> QueryRows:
        """Return the open windows of a query, as in the view ``penstock_live.<query>``.

        ::

            for row in await q.live("orders_5s"):
                print(row["key"], row["window_start"], row["total"])
            frame = (await q.live("orders_5s", current=True)).to_pandas()

        Args:
            query: The query's id.
            key: Only the windows of this key.
            current: Only the current window of each key, as in the view ``penstock_live.<query>_current``.
        """
        view: ResultView = "current" if check_flag("current", current) else "live"
        return await self._rows(RowRequest(check_name(query, "query"), view, None if key is None else check_key(key)))

    async def history(
        self,
        query: str,
        *,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        include_open: bool = False,
    ) -> QueryRows:
        """Return the closed windows of a query, as in the view ``penstock_history.<query>``, by their end.

        ::

            january = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
            rows = await q.history("usage", since=january[0], until=january[1])
            table = rows.to_arrow()

        Args:
            query: The query's id.
            key: Only the windows of this key.
            since: Only windows that end after this time.
            until: Only windows that end at this time or before.
            include_open: Also the open windows, whose values can still change.
        """
        request = RowRequest(
            check_name(query, "query"),
            "history",
            None if key is None else check_key(key),
            _check_time("since", since),
            _check_time("until", until),
            include_open=check_flag("include_open", include_open),
        )
        return await self._rows(request)

    async def _rows(self, request: RowRequest) -> QueryRows:
        return await read_rows(self._session.transport.result_rows, request)

    async def push(
        self, events: Mapping[str, EventsToPush], idempotency_key: str | None = None
    ) -> dict[str, PushResult]:
        """Store events in several queues, all or none: ``push({"orders": [...], "audit": {...}})``."""
        if not isinstance(events, Mapping):
            raise InvalidRequest(
                f"push takes a mapping of queue names to events, not {type(events).__name__}; for one queue call "
                "q.queue(name).push(events)"
            )
        batches = [Batch(check_name(name, "queue"), read_events(given)) for name, given in events.items()]
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
        """Acknowledge popped events with one status; return one result for each.

        Args:
            events: Events of a pop. None and an empty list do nothing.
            status: ``completed`` (True) completes the event and all before it in its partition. ``failed`` (False)
                delivers it again until its retries are used up, then it is a dead letter. ``retry`` delivers it again
                without using up a retry. ``dead_letter`` makes it a dead letter now.
            context: ``group`` and ``error`` as a mapping, an alternative to the arguments below.
            group: The group that popped the events, to check it. The events carry it themselves.
            error: The reason, as text or as an exception.
        """
        arguments = {"group": group, "error": error, **_read_context(context)}
        popped = read_popped(events, "ack")
        text, trace = read_error(arguments["error"])
        if arguments["group"] is not None:
            _check_group(popped, arguments["group"])
        transport = self._session.transport
        return await transport.ack(popped, status, error=text, traceback=trace) if popped else []

    async def renew(self, events: PoppedEvents, seconds: float = 60.0) -> datetime | None:
        """Extend the leases of these events to ``seconds`` from now; return their end, or None if a lease has ended."""
        check_number("seconds", seconds, 0.1, 7 * 86_400)
        leases: dict[str, list[Event]] = {}
        for event in read_popped(events, "renew"):
            if event.lease_id is None:
                raise InvalidRequest(f"event {event.id} was read and not popped, so it has no lease to renew")
            leases.setdefault(event.lease_id, []).append(event)
        transport = self._session.transport
        ends = [await transport.extend(leased, seconds) for leased in leases.values()]
        extended = [end for end in ends if end is not None]
        return min(extended, default=None) if len(extended) == len(ends) else None

    async def upkeep(self) -> Upkeep:
        """Run the maintenance of segments and partitions now. An open client runs it every few seconds."""
        return await self._session.transport.upkeep()


def _check_time(option: str, moment: object) -> datetime | None:
    if moment is None or (isinstance(moment, datetime) and moment.tzinfo is not None):
        return moment
    raise InvalidOption(f"{option} must be a datetime with a time zone, not {short_repr(moment)}", option=option)


def _read_context(context: object) -> dict[str, Any]:
    if context is None:
        return {}
    if not isinstance(context, Mapping):
        raise InvalidRequest(f"the context of an ack is a mapping such as {{'group': ...}}, not {context!r}")
    arguments: dict[str, Any] = {}
    for name, value in context.items():
        if name not in _ACK_CONTEXT:
            raise InvalidOption(f"the context of an ack has group and error, not {name!r}", option=name)
        arguments[_ACK_CONTEXT[name]] = value
    return arguments


def _check_group(events: Sequence[Event], group: object) -> None:
    for event in events:
        if event.group is not None and event.group != group:
            raise InvalidRequest(
                f"event {event.id} was popped by group {event.group!r} and cannot be acknowledged for {group!r}; "
                "leave the group out, the events carry it"
            )
