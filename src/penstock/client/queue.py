"""A queue as a client sees it: a chain of choices, then something to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.client.arguments import (
    EventsToPush,
    check_flag,
    check_number,
    check_time,
    check_whole,
    read_events,
    read_ndjson,
    read_options,
)
from penstock.client.buffer import Buffer, BufferSettings
from penstock.client.consumer import Consumed, Consumer, Handler, StopEvent
from penstock.client.dead_letters import DeadLetterHandle
from penstock.client.settings import HandleSettings
from penstock.core.errors import InvalidOption, InvalidRequest, NotFound
from penstock.core.names import check_key, check_name
from penstock.log.event import Event
from penstock.log.groups import GroupLane, check_place
from penstock.log.log import Batch, QueueInfo
from penstock.log.options import check_options
from penstock.log.queue import Queue
from penstock.log.write.result import PushResult

if TYPE_CHECKING:
    from penstock.client.session import Session

Partitioning = Literal["key", "hash"]
#: Where a group is to stand: at an end of the log, or at a time (a datetime, or ISO 8601 text with a zone).
WhereInTime = Literal["beginning", "now", "end"] | str | datetime

_MOST = 100_000
_DAY_MILLIS = 86_400_000
_WEEK_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class QueueHandle:
    """A queue and what is to be done with it.

    Methods that choose something return a new handle and leave this one as it is, so a handle can be kept and
    shared. Methods that are awaited do something. ::

        orders = q.queue("orders")
        await orders.config(lease_time=30, retry_limit=5).create()
        await orders.partition("customer-7").push({"data": {"amount": 12}})
        events = await orders.group("billing").batch(100).wait().pop()
    """

    _session: Session = field(repr=False)
    name: str
    """The queue's name."""
    settings: HandleSettings = field(default_factory=HandleSettings)
    """What was chosen so far."""

    # Choices

    def config(self, options: Mapping[str, Any] | None = None, /, **more: Any) -> QueueHandle:
        """Options for :meth:`create`, by keyword or in a mapping; later ones win.

        ``lease_seconds`` (or lease_time), ``retry_limit``, ``retry_delay_ms``, ``expiry_limit``,
        ``delay_seconds``, ``quiet_seconds``, ``retention_seconds``, ``retention_drops_unread``,
        ``dedup_window_seconds``, ``max_depth_events``, ``max_event_bytes``, ``max_redrives``, ``overflow``,
        ``away_seconds``, ``key_field``, ``id_field``, ``time_field``.
        """
        if options is not None and not isinstance(options, Mapping):
            raise InvalidRequest(f"config takes keywords or a mapping of options, not {type(options).__name__}")
        given = check_options(read_options({**(options or {}), **more}))
        return self._with(options={**self.settings.options, **given})

    def partition(self, name: str) -> QueueHandle:
        """Push to, pop from or seek in one partition.

        For a push it is the key of the events that bring none of their own: in a queue by ``key`` that is the lane,
        in a queue by ``hash`` it picks the partition.
        """
        return self._with(partition=check_key(name))

    def key(self, key: str) -> QueueHandle:
        """The same as :meth:`partition`."""
        return self.partition(key)

    def group(self, name: str) -> QueueHandle:
        """Read as this group; each group reads everything, at its own pace."""
        return self._with(group=check_name(name, "group"))

    def batch(self, events: int) -> QueueHandle:
        """Pop up to so many events at a time (1 unless told)."""
        return self._with(batch=check_whole("batch", events, 1, _MOST))

    def partitions(self, most: int) -> QueueHandle:
        """Pop from up to so many partitions at a time (1 unless told)."""
        return self._with(partitions=check_whole("partitions", most, 1, _MOST))

    def wait(self, on: bool = True) -> QueueHandle:
        """Let a pop wait for events when there are none."""
        return self._with(wait=check_flag("wait", on, "; for how long is said with timeout_millis()"))

    def timeout_millis(self, millis: float) -> QueueHandle:
        """How long a pop that waits does so (30,000 unless told)."""
        return self._with(timeout_millis=check_number("timeout_millis", millis, 0, _DAY_MILLIS))

    def lease_seconds(self, seconds: float) -> QueueHandle:
        """How long what is popped is ours, if it is not to be the queue's own lease time."""
        return self._with(lease_seconds=check_number("lease_seconds", seconds, 0.1, _WEEK_SECONDS))

    def auto_ack(self, on: bool = True) -> QueueHandle:
        """Complete events as they are delivered: what the consumer then fails to do is lost."""
        return self._with(auto_ack=check_flag("auto_ack", on))

    def subscription_from(self, place: WhereInTime) -> QueueHandle:
        """Where a group that does not exist yet begins: ``beginning`` (unless told), ``now`` or a time."""
        if not isinstance(place, str | datetime):
            raise InvalidRequest(f"{place!r} is no place to begin: give 'beginning', 'now' or a time")
        return self._with(subscribe_from=check_place(place))

    def subscription_mode(self, mode: Literal["all", "new", "new-only"]) -> QueueHandle:
        """Whether a group that does not exist yet gets all events or only new ones."""
        if mode not in ("all", "new", "new-only"):
            raise InvalidOption(f"subscription_mode is 'all' or 'new', not {mode!r}", option="subscription_mode")
        return self._with(subscribe_from=check_place(mode))

    def each(self, on: bool = True) -> QueueHandle:
        """Let :meth:`consume` call its handler with one event at a time, not with a list."""
        return self._with(each=check_flag("each", on))

    def dlq(self, group: str | None = None) -> DeadLetterHandle:
        """The dead letters of the queue: of the group that is named here or was before, else of all."""
        which = self.settings.group if group is None else check_name(group, "group")
        return DeadLetterHandle(self._session, self.name, which)

    # The queue itself

    async def create(
        self, partitioning: Partitioning | None = None, partitions: int | None = None, only_new: bool = False
    ) -> Queue:
        """Make the queue, or change the options given to :meth:`config` if it is there already.

        By ``key`` (unless told), every key has a lane of its own: for work that is done per tenant, in order. By
        ``hash``, the queue has a fixed number of ``partitions`` (8 unless told) and keys share them: for millions of
        keys.
        """
        return await self._session.transport.configure(
            self.name,
            self.settings.options,
            partitioning=partitioning,
            partitions=partitions,
            only_new=check_flag("only_new", only_new),
        )

    async def describe(self) -> QueueInfo:
        """The queue with its size, its groups and its dead letters."""
        return await self._session.transport.describe(self.name)

    async def repartition(self, partitioning: Partitioning, partitions: int | None = None) -> Queue:
        """Partition the queue differently from now on; order per key and every group's place are kept."""
        return await self._session.transport.repartition(self.name, partitioning, partitions)

    async def delete(self) -> bool:
        """Delete the queue with its events, groups and dead letters; False if there was none."""
        if self.settings.partition is not None:
            raise InvalidRequest(
                f"delete would remove all of queue {self.name!r}, and partition {self.settings.partition!r} was "
                f"chosen; a partition cannot be deleted: call delete() on queue({self.name!r}) if you mean the queue"
            )
        return await self._session.transport.delete_queue(self.name)

    # Pushing

    async def push(self, events: EventsToPush, idempotency_key: str | None = None) -> PushResult:
        """Store an event or a list of them, all or none; they are durable when this returns.

        An event is a mapping with ``data`` (any JSON value) and, if you like, ``key``, ``id`` (a repetition within
        the queue's deduplication window is not stored again), ``time`` (when it happened) and ``headers``. A push
        with an ``idempotency_key`` can be repeated: the second time it answers what it answered the first time.
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
        """Store events that are encoded already, a JSON value a line; key, id and time are read from these fields."""
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
        """A buffer that takes events one at a time and pushes them together.

        Args:
            max_events: Push when there are so many.
            linger_millis: Push when one has waited so long.
            max_bytes: Push when they are so large together.
            max_waiting: Hold no more events than this, those that are being pushed included.
            when_full: What :meth:`Buffer.push` does then: wait for room, or raise BufferFull.
        """
        if when_full not in ("wait", "raise"):
            raise InvalidOption(f"when_full is 'wait' or 'raise', not {when_full!r}", option="when_full")
        settings = BufferSettings(
            check_whole("max_events", max_events, 1, 10_000),
            check_number("linger_millis", linger_millis, 0, _DAY_MILLIS),
            check_whole("max_bytes", max_bytes, 1024, 16 << 20),
            check_whole("max_waiting", max_waiting, 1, 10_000_000),
            when_full,
        )
        return Buffer(self._session, self.name, self.settings.partition, settings)

    async def _push(self, batch: Batch, idempotency_key: str | None) -> PushResult:
        (result,) = await self._session.transport.push([batch], idempotency_key=idempotency_key)
        return result

    # Consuming

    async def pop(self) -> list[Event]:
        """Lease events and deliver them; an empty list if there are none, or none came in time."""
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
    ) -> Consumed:
        """Pop, call the handler and acknowledge, again and again.

        The handler gets a list of events or, after :meth:`each`, one event. It may be a coroutine function, or a
        plain one, which is called in a thread. When it returns the events are completed. When it raises:

        * one event was handed over: those before it are completed, it is failed with its error and traceback, and
          it comes again, with those after it in its partition, until its retries are used up and it is a dead
          letter;
        * a list was: its events are handed over once more, each in a list of its own, to find the one to blame.

        While the handler runs the lease is renewed, unless ``renew`` is False.

        It ends after ``limit`` events (completed or failed), after ``idle_seconds`` without any, and when ``stop`` is
        set (an asyncio.Event, or from another thread a threading.Event), the client is closed or the call is
        cancelled, as Ctrl-C does: then the handlers that run are waited for, and what they have not begun is put
        back. Cancelled twice, it does not wait.

        Args:
            handler: What consumes.
            concurrency: How many pops are handled at the same time; a partition is never handled twice at a time.
            limit: End after so many events.
            idle_seconds: End when there was nothing to do for so long; 0 ends when the queue is drained.
            renew: Renew leases while the handler runs.
            stop: End when this is set.
        """
        consumer = Consumer(
            self._session,
            self.name,
            self.settings,
            handler,
            concurrency=check_whole("concurrency", concurrency, 1, 1000),
            limit=None if limit is None else check_whole("limit", limit, 0, 2**62),
            idle_seconds=None if idle_seconds is None else check_number("idle_seconds", idle_seconds, 0, _WEEK_SECONDS),
            renew=check_flag("renew", renew),
            stop=stop,
        )
        return await consumer.run()

    # The group

    async def seek(self, place: WhereInTime | int, partition: str | None = None) -> int:
        """Move the group, in all partitions or in one; an offset needs a partition. Answers in how many."""
        where = self.settings.partition if partition is None else partition
        group = self.settings.group_name
        return await self._session.transport.seek(self.name, group, check_place(place), partition=where)

    async def delete_group(self) -> bool:
        """Forget the group and where it stands; False if there was none."""
        return await self._session.transport.delete_group(self.name, self.settings.group_name)

    async def lag(self) -> int:
        """How many events the group has yet to complete."""
        for group in await self._session.transport.groups(self.name):
            if group.group == self.settings.group_name:
                return group.lag
        raise NotFound(
            f"queue {self.name!r} has no group {self.settings.group_name!r}; a group is made by its first pop"
        )

    async def lanes(self) -> list[GroupLane]:
        """Where the group stands in each partition."""
        return await self._session.transport.group_lanes(self.name, self.settings.group_name)

    # Looking without consuming

    async def fetch(self, partition: str | None = None, offset: int = 0, limit: int = 100) -> list[Event]:
        """Events of a partition from an offset on; a negative offset counts from the end."""
        where = self.settings.partition if partition is None else partition
        if where is None:
            raise InvalidRequest("fetch reads one partition: name it, as in fetch('tenant-A', 0)")
        check_whole("offset", offset, -(2**62), 2**62)
        check_whole("limit", limit, 1, _MOST)
        return await self._session.transport.fetch(self.name, where, offset, limit)

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
        """The newest events that match all that is given, newest first."""
        return await self._session.transport.browse(
            self.name,
            partition=self.settings.partition if partition is None and key is None else partition,
            key=key,
            since=check_time("since", since),
            until=check_time("until", until),
            matching=matching,
            limit=check_whole("limit", limit, 1, _MOST),
        )

    async def find(self, id: str, since: datetime | None = None, until: datetime | None = None) -> Event | None:
        """The newest event with that id, appended between these times; None if there is none."""
        since, until = check_time("since", since), check_time("until", until)
        return await self._session.transport.find(self.name, id, since=since, until=until)

    def _with(self, **changed: Any) -> QueueHandle:
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **changed))
