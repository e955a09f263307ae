"""``QueueHandle.buffered``: a buffer that takes single events and pushes them in batches."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from penstock.client.arguments import encode_event
from penstock.client.client_session import ClientSession
from penstock.core.backoff import Backoff, RetryTimer
from penstock.core.errors import (
    BufferFull,
    EventShed,
    InvalidEvent,
    InvalidRequest,
    PenstockError,
    PushFailed,
    QueueFull,
)
from penstock.core.formatting import counted
from penstock.core.wait_notice import WaitNotice
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvent, JsonEvents
from penstock.log.write.push_result import Pushed, PushResult

_logger = logging.getLogger("penstock.client")

#: The estimated size of an event in the buffer, without its data.
_EVENT_OVERHEAD_BYTES = 200
#: The most failed events that a buffer keeps for ``flush`` and ``close`` to report.
_MAX_FAILURES = 1_000


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """The limits of a buffer; ``QueueHandle.buffered`` describes them."""

    max_events: int = 1_000
    linger_millis: float = 20.0
    max_bytes: int = 1 << 20
    max_waiting: int = 10_000
    when_full: Literal["wait", "raise"] = "wait"
    give_up_seconds: float = 30.0


class Receipt:
    """The result of one event of a buffer, once it is known."""

    __slots__ = ("_is_awaited", "_stored", "event")

    def __init__(self, event: Mapping[str, Any]) -> None:
        self.event = event
        self._is_awaited = False
        #: The result of the push, and the index of the event in it.
        self._stored: asyncio.Future[tuple[PushResult, int]] = asyncio.get_running_loop().create_future()

    @property
    def done(self) -> bool:
        """Whether the result is known: the event is durable, or could not be stored."""
        return self._stored.done()

    async def result(self) -> Pushed:
        """Wait until the event is durable, and return where it is stored; raise the error if it could not be stored.

        The error is EventShed if the queue was full and sheds events. ``flush`` and ``close`` do not report that one.
        """
        self._is_awaited = True
        # A cancelled waiter must not cancel the future of the others.
        result, index = await asyncio.shield(self._stored)
        return result[index]

    def _fail(self, error: Exception) -> None:
        self._stored.set_exception(error)
        self._stored.exception()  # asyncio logs an exception that nothing has read


@dataclass(frozen=True, slots=True)
class _BufferedEvent:
    receipt: Receipt
    event: JsonEvent

    @property
    def size(self) -> int:
        return len(self.event.data) + _EVENT_OVERHEAD_BYTES


class Buffer:
    """Takes single events and pushes them in batches, in order.

    ::

        async with q.queue("clicks").buffered() as clicks:
            await clicks.push({"data": {"page": "/"}, "key": "ada"})

    :meth:`push` raises if the event itself is invalid. Whether the event was stored is known later: its receipt tells,
    and :meth:`flush` and :meth:`close` raise if events failed whose receipts were not awaited.

    Events in the buffer are lost if the process dies; ``await receipt.result()`` waits until an event is durable.
    Closing the client closes its buffers and pushes their events.
    """

    def __init__(self, session: ClientSession, queue: str, key: str | None, settings: BufferSettings) -> None:
        self._session = session
        self._queue = queue
        self._key = key
        self._settings = settings
        self._waiting: deque[_BufferedEvent] = deque()
        self._bytes = 0
        self._in_flight = 0
        self._failures: list[tuple[Receipt, Exception]] = []
        self._failed = 0
        self._changed = asyncio.Condition()
        self._flushing = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many events are in the buffer or in a push."""
        return len(self._waiting) + self._in_flight

    async def push(self, event: Mapping[str, Any]) -> Receipt:
        """Add an event. If the buffer is full, wait for room, or raise BufferFull (``when_full="raise"``)."""
        receipt = Receipt(event)
        buffered = _BufferedEvent(receipt, encode_event(event))
        async with self._changed:
            self._start()
            if self._is_full() and self._settings.when_full == "raise":
                raise BufferFull(
                    f"the buffer of queue {self._queue!r} is full: {counted(self.waiting, 'event')} waiting, and the "
                    f"limit is {self._settings.max_waiting:,}; push the event again later, or use when_full='wait'"
                )
            while self._is_full():
                await self._changed.wait()
            self._check_open()
            self._waiting.append(buffered)
            self._bytes += buffered.size
            if len(self._waiting) == 1 or self._is_batch_ready():
                self._changed.notify_all()
        return receipt

    async def flush(self) -> None:
        """Push the events in the buffer and wait until they are stored.

        Raises PushFailed if events failed since the last call and their receipts were not awaited.
        """
        async with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                while self._task is not None and self.waiting:
                    await self._changed.wait()
            finally:
                self._flushing -= 1
        self._raise_failures()

    async def close(self) -> None:
        """Flush and close the buffer; raises the same errors as :meth:`flush`."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush()
        finally:
            self._session.remove_buffer(self)
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _start(self) -> None:
        """Start the task that pushes, with the first event, because an event loop runs by then."""
        self._check_open()
        if self._task is None:
            self._session.add_buffer(self)
            self._task = asyncio.create_task(self._run())

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"this buffer of queue {self._queue!r} is closed: create another with buffered()")

    def _is_full(self) -> bool:
        settings = self._settings
        max_bytes = max(settings.max_bytes * settings.max_waiting // settings.max_events, settings.max_bytes)
        return self.waiting >= settings.max_waiting or self._bytes > max_bytes

    def _is_batch_ready(self) -> bool:
        return len(self._waiting) >= self._settings.max_events or self._bytes >= self._settings.max_bytes

    async def _run(self) -> None:
        while True:
            batch = await self._take_batch()
            try:
                await self._push(batch)
            finally:
                async with self._changed:
                    self._in_flight = 0
                    self._bytes -= sum(buffered.size for buffered in batch)
                    self._changed.notify_all()

    async def _take_batch(self) -> list[_BufferedEvent]:
        """Wait for the first event, linger for more, and take the events of one push."""
        settings = self._settings
        async with self._changed:
            while not self._waiting:
                await self._changed.wait()
            try:
                async with asyncio.timeout(settings.linger_millis / 1000):
                    while not (self._is_batch_ready() or self._flushing or self._closed):
                        await self._changed.wait()
            except TimeoutError:
                pass
            batch: list[_BufferedEvent] = []
            size = 0
            while self._waiting and len(batch) < settings.max_events and (not batch or size < settings.max_bytes):
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            self._in_flight = len(batch)
        return batch

    async def _push(self, batch: Sequence[_BufferedEvent]) -> None:
        """Push a batch; if the log refuses one event, push the others again without it."""
        remaining = list(batch)
        retries = RetryTimer(Backoff(), self._settings.give_up_seconds)
        notice = WaitNotice(_logger.warning)
        while remaining:
            try:
                events = JsonEvents.of([buffered.event for buffered in remaining])
                (result,) = await self._session.transport.push([Batch(self._queue, events, self._key)])
            except InvalidEvent as error:
                if not 0 <= error.index < len(remaining):
                    self._fail(remaining, error)
                    return
                self._fail([remaining.pop(error.index)], error)
            except QueueFull as full:
                pause = retries.next_pause(full.retry_after)
                if pause is None:
                    self._fail(remaining, full)
                    return
                notice.waits(full, pause)
                await asyncio.sleep(pause)
            except Exception as error:
                self._fail(remaining, error)
                return
            except asyncio.CancelledError:
                self._fail(remaining, PenstockError("the client was closed before the result of the push was known"))
                raise
            else:
                for index, buffered in enumerate(remaining):
                    if result.shed:
                        buffered.receipt._fail(_shed_error(self._queue))
                    else:
                        buffered.receipt._stored.set_result((result, index))
                return

    def _fail(self, events: Sequence[_BufferedEvent], error: Exception) -> None:
        for buffered in events:
            buffered.receipt._fail(error)
        self._failed += len(events)
        kept = events[: _MAX_FAILURES - len(self._failures)]
        self._failures += [(buffered.receipt, error) for buffered in kept]
        count = counted(len(events), "event")
        _logger.warning("queue %r: %s of a buffer could not be stored: %s", self._queue, count, error)

    def _raise_failures(self) -> None:
        """Raise PushFailed for the failed events whose receipts were not awaited."""
        failures, failed = self._failures, self._failed
        self._failures, self._failed = [], 0
        unreported = [(receipt.event, error) for receipt, error in failures if not receipt._is_awaited]
        count = failed - (len(failures) - len(unreported))
        if unreported:
            raise PushFailed(
                f"{counted(count, 'event')} for queue {self._queue!r} could not be stored: {unreported[0][1]}",
                count=count,
                failures=unreported,
            ) from unreported[0][1]


def _shed_error(queue: str) -> EventShed:
    return EventShed(
        f"queue {queue!r} was full and dropped the event (overflow='shed'); `penstock queue show` counts dropped "
        "events, and overflow='refuse' makes producers wait instead",
        queue=queue,
    )
