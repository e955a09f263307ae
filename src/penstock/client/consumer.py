"""``QueueHandle.consume``: workers that pop events, call a handler and acknowledge."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.handler_calls import BatchDelivery
from penstock.core.errors import InvalidRequest
from penstock.log.read.consume_loop import MAX_POP_WAIT_SECONDS, ConsumeLoop

if TYPE_CHECKING:
    from penstock.client.client_session import ClientSession
    from penstock.client.queue import HandleSettings
    from penstock.log.event import Event
    from penstock.log.read.pop_request import PopRequest

#: Takes a list of events or, after ``each()``, one event. A plain function or a coroutine function.
Handler = Callable[[Any], object]
#: Stops a consumer, from the same event loop or from another thread.
StopEvent = asyncio.Event | threading.Event

#: How often a threading.Event is checked; it cannot be awaited.
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """The result of a consumer: events that were completed, and handler failures."""

    completed: int = 0
    failed: int = 0


class HandlerConsumer(ConsumeLoop):
    """Runs a handler on the events of a group.

    ``concurrency`` tasks run the consume loop. A partition is leased to one of them at a time, so its order is kept.
    All of them end when one raises.
    """

    def __init__(
        self,
        session: ClientSession,
        queue: str,
        settings: HandleSettings,
        handler: Handler,
        *,
        concurrency: int = 1,
        limit: int | None = None,
        idle_seconds: float | None = None,
        renew: bool = True,
        stop: StopEvent | None = None,
    ) -> None:
        if not callable(handler):
            raise InvalidRequest(f"consume takes a function that is called with events, not {type(handler).__name__}")
        if settings.auto_ack:
            raise InvalidRequest("consume acknowledges events after the handler returns: remove auto_ack()")
        super().__init__(session.transport)
        self._session = session
        self._settings = settings
        self._request = replace(settings.request(queue), wait_seconds=MAX_POP_WAIT_SECONDS)
        self._handler = handler
        self._concurrency = concurrency
        #: How many more events may be popped; None sets no limit.
        self._remaining = limit
        self._idle_seconds = idle_seconds
        self._renew = renew
        self._stop = stop
        self._threads: ThreadPoolExecutor | None = None
        self._completed = 0
        self._failed = 0
        #: An exception of the handler that ends the consumer, such as SystemExit. A task must not raise it, because
        #: the event loop would end.
        self._fatal: BaseException | None = None

    async def run(self) -> ConsumeResult:
        """Consume until the limit, the idle time or a stop."""
        watcher = asyncio.create_task(self._wait_for_stop())
        try:
            with self._session.register_consumer(self.stopping):
                await self._run_workers()
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])
            if self._threads is not None:
                self._threads.shutdown(wait=False)
        return ConsumeResult(self._completed, self._failed)

    async def _run_workers(self) -> None:
        workers = [asyncio.create_task(self.consume(self._idle_seconds)) for _ in range(self._concurrency)]
        running = set(workers)
        interrupts = 0
        while running:
            try:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # The first cancellation lets the handlers finish, the second one interrupts them.
                interrupts += 1
                self.stopping.set()
                if interrupts > 1:
                    for worker in running:
                        worker.cancel()
                continue
            if any(worker.cancelled() or worker.exception() is not None for worker in done):
                self.stopping.set()
        if interrupts:
            raise asyncio.CancelledError
        for worker in workers:
            worker.result()
        if self._fatal is not None:
            raise self._fatal

    async def _wait_for_stop(self) -> None:
        if self._stop is None:
            return
        if isinstance(self._stop, asyncio.Event):
            await self._stop.wait()
        else:
            while not self._stop.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(_POLL_SECONDS)
        self.stopping.set()

    def is_stopping(self) -> bool:
        """Return whether the consumer stops before the next event."""
        # The stop event is read here too: the watcher gets no turn while a handler runs that does not await.
        return self.stopping.is_set() or (self._stop is not None and self._stop.is_set())

    async def next_request(self) -> PopRequest | None:
        """Return a pop within the limit, and reserve its events."""
        if self._remaining is None:
            return self._request
        if self._remaining == 0:
            return None
        room = min(self._request.batch, self._remaining)
        self._remaining -= room
        return replace(self._request, batch=room)

    async def pop(self, request: PopRequest) -> list[Event]:
        """Pop events, and return the reservation of those that did not come."""
        events: list[Event] = []
        try:
            events = await self._session.pop(request)
        finally:
            self._add_remaining(request.batch - len(events))
        return events

    async def deliver(self, events: Sequence[Event]) -> None:
        """Call the handler and acknowledge the events."""
        lease_seconds = self._settings.lease_seconds
        delivery = BatchDelivery(self.source, events, lease_seconds=lease_seconds, is_stopping=self.is_stopping)
        try:
            async with delivery.keep_leases(enabled=self._renew):
                if self._settings.each:
                    await delivery.deliver_one_by_one(self._call_handler)
                else:
                    await delivery.deliver_list(self._call_handler)
        finally:
            self._completed += delivery.completed
            self._failed += delivery.failed
            self._add_remaining(len(events) - delivery.completed - delivery.failed)
        if delivery.fatal is not None:
            self._fatal = delivery.fatal
            self.stopping.set()

    def _add_remaining(self, events: int) -> None:
        if self._remaining is not None:
            self._remaining += events

    async def _call_handler(self, argument: object) -> None:
        if _is_async(self._handler):
            result = self._handler(argument)
        else:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="penstock-consumer")
            context = contextvars.copy_context()
            call = partial(context.run, _call_and_catch, self._handler, argument)
            result, error = await asyncio.get_running_loop().run_in_executor(self._threads, call)
            if error is not None:
                raise error
        if inspect.isawaitable(result):
            await result


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _call_and_catch(handler: Handler, argument: object) -> tuple[object, BaseException | None]:
    # Raising in the thread does not work: a future cannot carry StopIteration, and SystemExit would end the event loop.
    try:
        return handler(argument), None
    except BaseException as error:
        return None, error
