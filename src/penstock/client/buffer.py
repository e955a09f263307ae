"""A producer of single events: they are gathered for a moment, and pushed together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.core import json
from penstock.core.errors import (
    BufferFull,
    EventShed,
    InvalidEvent,
    InvalidRequest,
    PenstockError,
    PushFailed,
    QueueFull,
)
from penstock.core.names import key_problem
from penstock.core.timestamps import from_micros
from penstock.log.write.batch import Batch
from penstock.log.write.encode import check_headers, check_ids, check_shape, micros_of
from penstock.log.write.ndjson import Lines
from penstock.log.write.result import Pushed, PushResult

if TYPE_CHECKING:
    from penstock.client.session import Session

_logger = logging.getLogger("penstock.client")

#: What an event takes of the buffer beside its data.
_EACH = 200
#: Of events that could not be stored, so many are kept for who asks.
_MOST_FAILURES = 1_000


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """How much is gathered, and for how long."""

    max_events: int = 1_000
    linger_millis: float = 20.0
    max_bytes: int = 1 << 20
    max_waiting: int = 10_000
    when_full: Literal["wait", "raise"] = "wait"
    give_up_seconds: float = 30.0


class Receipt:
    """What became of an event, once that is known."""

    __slots__ = ("_error", "_heeded", "_place", "_result", "_waiter", "event")

    def __init__(self, event: Mapping[str, Any]) -> None:
        self.event = event
        self._result: PushResult | None = None
        self._place = 0
        self._error: Exception | None = None
        self._heeded = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        """Whether it is known: the event is durable, or could not be stored."""
        return self._result is not None or self._error is not None

    async def result(self) -> Pushed:
        """Where the event went; it is durable when this returns. Raises the error, if it could not be stored.

        That is EventShed if its queue was full and sheds, which is no failure of the buffer.
        """
        self._heeded = True
        if not self.done:
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            # One who stops to wait takes nothing from the others.
            await asyncio.shield(self._waiter)
        if self._result is None:
            assert self._error is not None  # noqa: S101 - it is one or the other
            raise self._error
        return self._result[self._place]

    def _settle(self, result: PushResult | None, place: int, error: Exception | None) -> None:
        self._result, self._place, self._error = result, place, error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An event in the buffer, encoded."""

    receipt: Receipt
    data: bytes
    key: str | None
    id: str | None
    time: datetime | None
    headers: dict[str, str] | None

    @property
    def size(self) -> int:
        return len(self.data) + _EACH


class Buffer:
    """Takes events one at a time and pushes them together, in the order in which they came.

    ::

        async with q.queue("clicks").buffered() as clicks:
            await clicks.push({"data": {"page": "/"}, "key": "ada"})

    What is wrong with an event itself is raised by :meth:`push`. Whether it could be stored is known later: from the
    receipt that push gives, and of all whose receipts nobody asked from :meth:`flush` and :meth:`close`.

    Events that are still in the buffer when the process dies are lost: ``await receipt.result()`` waits until one is
    durable. Closing the client closes its buffers, and waits for what is in them.
    """

    def __init__(self, session: Session, queue: str, key: str | None, settings: BufferSettings) -> None:
        self._session = session
        self._queue = queue
        self._key = key
        self._settings = settings
        self._waiting: deque[_Waiting] = deque()
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
        """How many events are not known to be stored yet."""
        return len(self._waiting) + self._in_flight

    async def push(self, event: Mapping[str, Any]) -> Receipt:
        """Take an event. Waits for room while the buffer is full, or raises BufferFull, if it was told to."""
        receipt = Receipt(event)
        waiting = self._read(event, receipt)
        async with self._changed:
            self._begin()
            if self._is_full() and self._settings.when_full == "raise":
                raise BufferFull(
                    f"the buffer of queue {self._queue!r} holds {self.waiting:,} events that are not stored yet, no "
                    f"more than {self._settings.max_waiting:,}; push it again later, or let push() wait for room"
                )
            while self._is_full():
                await self._changed.wait()
            self._check_open()
            self._waiting.append(waiting)
            self._bytes += waiting.size
            if len(self._waiting) == 1 or self._is_ripe():
                self._changed.notify_all()
        return receipt

    async def flush(self) -> None:
        """Push what is in the buffer now, and wait for it.

        Raises PushFailed if events could not be stored, since the last time, and nobody has asked their receipts.
        """
        async with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                while self._task is not None and self.waiting:
                    await self._changed.wait()
            finally:
                self._flushing -= 1
        self._report()

    async def close(self) -> None:
        """Push what is in the buffer, wait for it, and take no more; raises what :meth:`flush` does."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush()
        finally:
            self._session.forget_buffer(self)
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _read(self, event: object, receipt: Receipt) -> _Waiting:
        """Check and encode an event, so that only what the log knows can be wrong with it later."""
        check_shape(event, 0)
        assert isinstance(event, Mapping)  # noqa: S101 - check_shape has just said so
        try:
            data = json.encode(event["data"])
        except json.JSONProblem as error:
            raise InvalidEvent(str(error), index=0, field="data") from None
        key = event.get("key")
        problem = None if key is None else key_problem(key)
        if problem is not None:
            raise InvalidEvent(problem, index=0, field="key")
        (event_id,) = check_ids([event.get("id")])
        micros = micros_of(event.get("time"), 0)
        time = None if micros is None else from_micros(micros)
        headers = check_headers(event.get("headers"), 0)
        return _Waiting(receipt, data, None if key is None else str.__str__(key), event_id, time, headers)

    def _begin(self) -> None:
        """Start to push, with the first event: by then there is an event loop."""
        self._check_open()
        if self._task is None:
            self._session.add_buffer(self)
            self._task = asyncio.create_task(self._run())

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"this buffer of queue {self._queue!r} is closed; make another with buffered()")

    def _is_full(self) -> bool:
        settings = self._settings
        most = max(settings.max_bytes * settings.max_waiting // settings.max_events, settings.max_bytes)
        return self.waiting >= settings.max_waiting or self._bytes > most

    def _is_ripe(self) -> bool:
        return len(self._waiting) >= self._settings.max_events or self._bytes >= self._settings.max_bytes

    async def _run(self) -> None:
        while True:
            batch = await self._gather()
            try:
                await self._push(batch)
            finally:
                async with self._changed:
                    self._in_flight = 0
                    self._bytes -= sum(each.size for each in batch)
                    self._changed.notify_all()

    async def _gather(self) -> list[_Waiting]:
        """Wait for events, then for more of them, and take what fits a push."""
        settings = self._settings
        async with self._changed:
            while not self._waiting:
                await self._changed.wait()
            try:
                async with asyncio.timeout(settings.linger_millis / 1000):
                    while not (self._is_ripe() or self._flushing or self._closed):
                        await self._changed.wait()
            except TimeoutError:
                pass
            batch: list[_Waiting] = []
            size = 0
            while self._waiting and len(batch) < settings.max_events and (not batch or size < settings.max_bytes):
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            self._in_flight = len(batch)
        return batch

    async def _push(self, batch: Sequence[_Waiting]) -> None:
        """Push a batch; one that is refused for one event's sake goes again without that one."""
        left = list(batch)
        deadline = asyncio.get_running_loop().time() + self._settings.give_up_seconds
        while left:
            try:
                (result,) = await self._session.transport.push([_batch(self._queue, self._key, left)])
            except InvalidEvent as error:
                if not 0 <= error.index < len(left):
                    self._fail(left, error)
                    return
                self._fail([left.pop(error.index)], error)
            except QueueFull as full:
                if asyncio.get_running_loop().time() + full.retry_after > deadline:
                    self._fail(left, full)
                    return
                await asyncio.sleep(full.retry_after)
            except Exception as error:
                self._fail(left, error)
                return
            except asyncio.CancelledError:
                self._fail(left, PenstockError("the client was closed before the event was known to be stored"))
                raise
            else:
                shed = _shed(self._queue) if result.shed else None
                for place, each in enumerate(left):
                    each.receipt._settle(None if shed else result, place, shed)
                return

    def _fail(self, events: Sequence[_Waiting], error: Exception) -> None:
        for each in events:
            each.receipt._settle(None, 0, error)
        self._failed += len(events)
        self._failures += [(each.receipt, error) for each in events[: _MOST_FAILURES - len(self._failures)]]
        _logger.warning("queue %r: %d events of a buffer could not be stored: %s", self._queue, len(events), error)

    def _report(self) -> None:
        """Raise what could not be stored, if nobody has heard of it."""
        failures, failed = self._failures, self._failed
        self._failures, self._failed = [], 0
        unheard = [(receipt.event, error) for receipt, error in failures if not receipt._heeded]
        count = failed - (len(failures) - len(unheard))
        if unheard:
            raise PushFailed(
                f"{count:,} events for queue {self._queue!r} could not be stored: {unheard[0][1]}",
                count=count,
                failures=unheard,
            ) from unheard[0][1]


def _shed(queue: str) -> EventShed:
    return EventShed(
        f"queue {queue!r} was full and dropped the event, as its option overflow says; `penstock queue show` counts "
        "them, and overflow='refuse' makes producers wait instead",
        queue=queue,
    )


def _batch(queue: str, key: str | None, events: Sequence[_Waiting]) -> Batch:
    lines = Lines(
        [each.data for each in events],
        _column([each.key for each in events]),
        _column([each.id for each in events]),
        _column([each.time for each in events]),
        _column([each.headers for each in events]),
    )
    return Batch(queue, lines, key)


def _column(values: list[Any]) -> list[Any] | None:
    return values if any([value is not None for value in values]) else None
