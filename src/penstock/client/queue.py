"""The handle of a queue: settings in a chain of calls, then an operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from penstock.client.arguments import EventsToPush, read_events, read_ndjson, read_options
from penstock.client.buffer import Buffer, BufferSettings
from penstock.client.client_session import ClientSession
from penstock.client.consumer import ConsumeResult, Handler, HandlerConsumer, StopEvent
from penstock.client.dead_letters import DeadLetterHandle
from penstock.core.errors import InvalidOption, InvalidRequest, NotFound
from penstock.core.names import check_key, check_name
from penstock.core.option_checks import check_flag, check_integer, check_number
from penstock.log.event import Event
from penstock.log.groups import DEFAULT_GROUP, PartitionPosition
from penstock.log.queue import Queue
from penstock.log.queue_info import QueueInfo
from penstock.log.queue_options import check_options, check_timestamp
from penstock.log.read.pop_request import PopRequest
from penstock.log.start_position import StartPosition, parse_start_position
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult

Partitioning = Literal["key", "hash"]
#: A position of a group: an end of the log, or a time (a datetime, or ISO 8601 text with a time zone).
SeekPosition = Literal["beginning", "now", "end"] | str | datetime

_MAX_EVENTS = 100_000
_DAY_MILLIS = 86_400_000
_WEEK_SECONDS = 7 * 86_400
#: How long a pop with ``wait()`` waits by default.
_DEFAULT_TIMEOUT_MILLIS = 30_000


@dataclass(frozen=True, slots=True)
class HandleSettings:
    """The settings of a queue handle; None where the default applies."""

    options: Mapping[str, Any] = field(default_factory=dict)
    partition: str | None = None
    group: str | None = None
    batch: int = 1
    partitions: int = 1
    wait: bool = False
    timeout_millis: float = _DEFAULT_TIMEOUT_MILLIS
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe_from: StartPosition = "beginning"
    each: bool = False

    @property
    def group_name(self) -> str:
        """The consumer group, or the default group."""
        return DEFAULT_GROUP if self.group is None else self.group

    def request(self, queue: str) -> PopRequest:
        """Return the pop request for these settings."""
        return PopRequest(
            queue,
            group=self.group_name,
            batch=self.batch,
            partitions=self.partitions,
            partition=self.partition,
            wait_seconds=self.timeout_millis / 1000 if self.wait else 0.0,
            lease_seconds=self.lease_seconds,
            auto_ack=self.auto_ack,
            subscribe_from=self.subscribe_from,
        )


@dataclass(frozen=True, slots=True)
class QueueHandle:
    """A queue, with settings for the operations on it.

    Methods that set something return a new handle and do not change this one, so a handle can be shared.
    Methods that are awaited call the database or the server. ::

        orders = q.queue("orders")
        await orders.config(lease_time=30, retry_limit=5).create()
        await orders.partition("customer-7").push({"data": {"amount": 12}})
        events = await orders.group("billing").batch(100).wait().pop()
    """

    _session: ClientSession = field(repr=False)
    name: str
    """The queue's name."""
    settings: HandleSettings = field(default_factory=HandleSettings)
    """The settings of this handle."""

    # Settings

    def config(self, options: Mapping[str, Any] | None = None, /, **more: Any) -> QueueHandle:
        """Set options for :meth:`create`, by keyword or in a mapping; later options win.

        ``lease_seconds`` (or lease_time), ``retry_limit``, ``retry_delay_ms``, ``expiry_limit``,
        ``delay_seconds``, ``quiet_seconds``, ``retention_seconds``, ``retention_drops_unread``,
        ``dedup_window_seconds``, ``max_depth_events``, ``max_unread_events``, ``max_event_bytes``, ``max_redrives``,
        ``overflow``, ``invalid_events``, ``away_seconds``, ``key_field``, ``id_field``, ``time_field``, ``encrypted``,
        ``readable_from_sql``.
        """
        if options is not None and not isinstance(options, Mapping):
            raise InvalidRequest(f"config takes keywords or a mapping of options, not {type(options).__name__}")
        given = check_options(read_options({**(options or {}), **more}))
        return self._with(options={**self.settings.options, **given})

    def partition(self, name: str) -> QueueHandle:
        """Push to, pop from or seek in one partition.

        For a push, it is the key of events without a key of their own. In a queue by ``key`` the key is the partition,
        in a queue by ``hash`` the key selects the partition.
        """
        return self._with(partition=check_key(name))

    def key(self, key: str) -> QueueHandle:
        """Alias of :meth:`partition`."""
        return self.partition(key)

    def group(self, name: str) -> QueueHandle:
        """Read as this consumer group. Each group reads all events and has its own position."""
        return self._with(group=check_name(name, "group"))

    def batch(self, events: int) -> QueueHandle:
        """Pop up to this many events at a time (default 1)."""
        return self._with(batch=check_integer("batch", events, 1, _MAX_EVENTS))

    def partitions(self, count: int) -> QueueHandle:
        """Pop from up to this many partitions at a time (default 1)."""
        return self._with(partitions=check_integer("partitions", count, 1, _MAX_EVENTS))

    def wait(self, on: bool = True) -> QueueHandle:
        """Let a pop wait for events if there are none."""
        return self._with(wait=check_flag("wait", on, "; set the wait time with timeout_millis()"))

    def timeout_millis(self, millis: float) -> QueueHandle:
        """Set how long a pop with :meth:`wait` waits (default 30,000)."""
        return self._with(timeout_millis=check_number("timeout_millis", millis, 0, _DAY_MILLIS))

    def lease_seconds(self, seconds: float) -> QueueHandle:
        """Set the lease time of popped events (default: the lease time of the queue)."""
        return self._with(lease_seconds=check_number("lease_seconds", seconds, 0.1, _WEEK_SECONDS))

    def auto_ack(self, on: bool = True) -> QueueHandle:
        """Complete events when they are delivered. Events whose processing fails afterwards are lost."""
        return self._with(auto_ack=check_flag("auto_ack", on))

    def subscription_from(self, position: SeekPosition) -> QueueHandle:
        """Set where a new group begins: ``beginning`` (the default), ``now`` or a time."""
        if not isinstance(position, str | datetime):
            raise InvalidRequest(f"{position!r} is not a start position: give 'beginning', 'now' or a time")
        return self._with(subscribe_from=parse_start_position(position))

    def subscription_mode(self, mode: Literal["all", "new", "new-only"]) -> QueueHandle:
        """Set whether a new group gets all events (``all``) or only new ones (``new``)."""
        if mode not in ("all", "new", "new-only"):
            raise InvalidOption(f"subscription_mode is 'all' or 'new', not {mode!r}", option="subscription_mode")
        return self._with(subscribe_from=parse_start_position(mode))

    def each(self, on: bool = True) -> QueueHandle:
        """Let :meth:`consume` call its handler with one event instead of a list."""
        return self._with(each=check_flag("each", on))

    def dlq(self, group: str | None = None) -> DeadLetterHandle:
        """Return the dead letters of a group of the queue, or of all groups if no group is set."""
        dead_group = self.settings.group if group is None else check_name(group, "group")
        return DeadLetterHandle(self._session, self.name, dead_group)

    # The queue

    async def create(
        self, partitioning: Partitioning | None = None, partitions: int | None = None, only_new: bool = False
    ) -> Queue:
        """Create the queue, or change the options given to :meth:`config` if it exists.

        Args:
            partitioning: ``key`` (the default) gives every key a partition of its own, for ordered work per tenant.
                ``hash`` spreads the keys over a fixed number of partitions, for millions of keys.
            partitions: The number of partitions of a queue by ``hash`` (default 8); implies ``hash``.
            only_new: Raise Conflict if the queue exists.
        """
        return await self._session.transport.configure(
            self.name,
            self.settings.options,
            partitioning=partitioning,
            partitions=partitions,
            only_new=check_flag("only_new", only_new),
        )

    async def describe(self) -> QueueInfo:
        """Return the queue with its size, its groups and the number of its dead letters."""
        return await self._session.transport.describe(self.name)

    async def repartition(self, partitioning: Partitioning, partitions: int | None = None) -> Queue:
        """Change the partitioning. The order per key and the positions of all groups stay."""
        return await self._session.transport.repartition(self.name, partitioning, partitions)

    async def delete(self) -> bool:
        """Delete the queue with its events, groups and dead letters; return False if it does not exist."""
        if self.settings.partition is not None:
            raise InvalidRequest(
                f"delete would remove all of queue {self.name!r}, but partition {self.settings.partition!r} is set and "
                f"a partition cannot be deleted: call queue({self.name!r}).delete() to delete the queue"
            )
        return await self._session.transport.delete_queue(self.name)

    # Pushing

    async def push(self, events: EventsToPush, idempotency_key: str | None = None) -> PushResult:
        """Store an event or a list of events, all or none. They are durable when this returns.

        An event is a mapping with ``data`` (any JSON value) and optionally ``key``, ``id`` (an event with the same id
        within the queue's deduplication window is not stored again), ``time`` (when it happened) and ``headers``.

        Args:
            events: The event or events.
            idempotency_key: Makes the push repeatable: a second push with the same key stores nothing and returns the
                result of the first.
        """
        return await self._push(Batch(self.name, read_events(events), self.settings.partition), idempotency_key)

    async def push_ndjson(
        self,
        data: bytes,
        key_field: str | None = None,
        id_field: str | None = None,
        time_field: str | None = None,
        idempotency_key: str | None = None,
    ) -> PushResult:
        """Store encoded events, one JSON value per line. Key, id and time are read from the named fields."""
        batch = Batch(self.name, read_ndjson(data), self.settings.partition, key_field, id_field, time_field)
        return await self._push(batch, idempotency_key)

    def buffered(
        self,
        max_events: int = 1_000,
        linger_millis: float = 20.0,
        *,
        max_bytes: int = 1 << 20,
        max_waiting: int = 10_000,
        when_full: Literal["wait", "raise"] = "wait",
    ) -> Buffer:
        """Return a buffer that takes single events and pushes them in batches.

        Args:
            max_events: Push when the buffer has this many events.
            linger_millis: Push when the oldest event has waited this long.
            max_bytes: Push when the events have this size together.
            max_waiting: The most events in the buffer, including those in a push.
            when_full: Whether :meth:`Buffer.push` waits for room in a full buffer (``wait``) or raises BufferFull
                (``raise``).
        """
        if when_full not in ("wait", "raise"):
            raise InvalidOption(f"when_full is 'wait' or 'raise', not {when_full!r}", option="when_full")
        settings = BufferSettings(
            check_integer("max_events", max_events, 1, 10_000),
            check_number("linger_millis", linger_millis, 0, _DAY_MILLIS),
            check_integer("max_bytes", max_bytes, 1024, 16 << 20),
            check_integer("max_waiting", max_waiting, 1, 10_000_000),
            when_full,
        )
        return Buffer(self._session, self.name, self.settings.partition, settings)

    async def _push(self, batch: Batch, idempotency_key: str | None) -> PushResult:
        (result,) = await self._session.transport.push([batch], idempotency_key=idempotency_key)
        return result

    # Consuming

    async def pop(self) -> list[Event]:
        """Lease events and return them; return an empty list if none are available in time."""
        return await self._session.pop(self.settings.request(self.name))

    async def consume(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        limit: int | None = None,
        idle_seconds: float | None = None,
        renew: bool = True,
        stop: StopEvent | None = None,
    ) -> ConsumeResult:
        """Pop events, call the handler and acknowledge, in a loop.

        The handler gets a list of events or, after :meth:`each`, one event. It is a coroutine function, or a plain
        function, which runs in a thread. The events are completed when it returns. If it raises:

        * With one event: the events before it are completed, and it is failed with the error and the traceback. It is
          delivered again, with those after it in its partition, until its retries are used up. Then it is a dead
          letter.
        * With a list: the handler is called again with a list of each event alone, to find the bad one.

        The loop ends after ``limit`` events, after ``idle_seconds`` without events, when ``stop`` is set, when the
        client is closed, and when the call is cancelled (Ctrl-C). It waits for the handlers that run, and releases the
        events that they have not begun. A second cancellation interrupts the handlers.

        Args:
            handler: The function to call.
            concurrency: How many batches are handled at the same time. Batches of one partition are handled one after
                the other.
            limit: End after this many events, completed or failed.
            idle_seconds: End after this time without events; 0 ends when the queue is empty.
            renew: Extend the leases of the events while the handler runs.
            stop: End when this event is set: an asyncio.Event, or a threading.Event from another thread.
        """
        consumer = HandlerConsumer(
            self._session,
            self.name,
            self.settings,
            handler,
            concurrency=check_integer("concurrency", concurrency, 1, 1000),
            limit=None if limit is None else check_integer("limit", limit, 0, 2**62),
            idle_seconds=None if idle_seconds is None else check_number("idle_seconds", idle_seconds, 0, _WEEK_SECONDS),
            renew=check_flag("renew", renew),
            stop=stop,
        )
        return await consumer.run()

    # The group

    async def seek(self, position: SeekPosition | int, partition: str | None = None) -> int:
        """Move the group in all partitions or in one; return in how many. An offset needs a partition."""
        return await self._session.transport.seek(
            self.name,
            self.settings.group_name,
            parse_start_position(position),
            partition=self.settings.partition if partition is None else partition,
        )

    async def delete_group(self) -> bool:
        """Delete the group and its positions; return False if it does not exist."""
        return await self._session.transport.delete_group(self.name, self.settings.group_name)

    async def lag(self) -> int:
        """Return how many events the group has not completed."""
        for group in await self._session.transport.groups(self.name):
            if group.group == self.settings.group_name:
                return group.lag
        raise NotFound(f"queue {self.name!r} has no group {self.settings.group_name!r}; its first pop creates it")

    async def positions(self) -> list[PartitionPosition]:
        """Return the position of the group in each partition."""
        return await self._session.transport.group_positions(self.name, self.settings.group_name)

    # Reading without consuming

    async def fetch(self, partition: str | None = None, offset: int = 0, limit: int = 100) -> list[Event]:
        """Return events of a partition from an offset on; a negative offset counts from the end."""
        name = self.settings.partition if partition is None else partition
        if name is None:
            raise InvalidRequest("fetch reads one partition: name it, as in fetch('tenant-A', 0)")
        check_integer("offset", offset, -(2**62), 2**62)
        check_integer("limit", limit, 1, _MAX_EVENTS)
        return await self._session.transport.fetch(self.name, name, offset, limit)

    async def browse(
        self,
        *,
        partition: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        matching: Callable[[Event], bool] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return the newest events that match all filters, newest first."""
        return await self._session.transport.browse(
            self.name,
            partition=self.settings.partition if partition is None and key is None else partition,
            key=key,
            since=check_timestamp("since", since),
            until=check_timestamp("until", until),
            matching=matching,
            limit=check_integer("limit", limit, 1, _MAX_EVENTS),
        )

    async def find(self, id: str, since: datetime | None = None, until: datetime | None = None) -> Event | None:
        """Return the newest event with this id, appended between ``since`` and ``until``; None if there is none."""
        since, until = check_timestamp("since", since), check_timestamp("until", until)
        return await self._session.transport.find(self.name, id, since=since, until=until)

    def _with(self, **changed: Any) -> QueueHandle:
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **changed))
