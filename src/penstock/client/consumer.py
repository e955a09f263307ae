"""A consumer that runs until it is told to stop: pops, hands over, acknowledges, keeps the leases."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.delivery import InHand, put_back
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.client.session import Session
    from penstock.client.settings import HandleSettings
    from penstock.log.event import Event

#: What consumes: takes a list of events or, after ``each()``, one event. A coroutine function or a plain one.
Handler = Callable[[Any], object]
#: What tells a consumer to stop, from the same event loop or from another thread.
StopEvent = asyncio.Event | threading.Event

#: How long a pop waits before it is made anew; nobody notices.
_WAIT_SECONDS = 30.0
#: How often a threading.Event is looked at: it cannot be awaited.
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a consumer did: how many events it completed, and how often one failed."""

    completed: int = 0
    failed: int = 0


class Consumer:
    """Runs a handler on what a group has to read.

    ``concurrency`` workers pop, handle and acknowledge, each on its own; a partition is with one of them at a time,
    so order is kept. All of them end when one raises.
    """

    def __init__(
        self,
        session: Session,
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
            raise InvalidRequest("consume acknowledges what its handler has done: leave auto_ack() out")
        self._session = session
        self._queue = queue
        self._settings = settings
        self._handler = handler
        self._concurrency = concurrency
        self._left = limit
        self._idle_seconds = idle_seconds
        self._renew = renew
        self._stop = stop
        self._threads: ThreadPoolExecutor | None = None
        self._completed = 0
        self._failed = 0

    async def run(self) -> Consumed:
        """Consume until there is a reason to stop."""
        self._stopping = asyncio.Event()
        self._stopped = asyncio.create_task(self._stopping.wait())
        watcher = asyncio.create_task(self._watch())
        try:
            with self._session.consuming(self._stopping):
                await self._run_workers()
        finally:
            self._stopped.cancel()
            watcher.cancel()
            await asyncio.wait([self._stopped, watcher])
            if self._threads is not None:
                self._threads.shutdown(wait=False)
        return Consumed(self._completed, self._failed)

    async def _run_workers(self) -> None:
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        waiting = set(workers)
        interrupted = 0
        while waiting:
            try:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # Once: what is in hand is finished. Twice: the handlers are interrupted too.
                interrupted += 1
                self._stopping.set()
                if interrupted > 1:
                    for worker in waiting:
                        worker.cancel()
                continue
            if any(worker.cancelled() or worker.exception() is not None for worker in done):
                self._stopping.set()
        if interrupted:
            raise asyncio.CancelledError
        for worker in workers:
            fatal = worker.result()
            if fatal is not None:
                raise fatal

    async def _watch(self) -> None:
        if self._stop is None:
            return
        if isinstance(self._stop, asyncio.Event):
            await self._stop.wait()
        else:
            while not self._stop.is_set():  # noqa: ASYNC110 - it is set by another thread
                await asyncio.sleep(_LOOK_SECONDS)
        self._stopping.set()

    def _is_stopping(self) -> bool:
        # Asked as well as waited for: a handler that sets it and does not wait leaves the watcher no time.
        return self._stopping.is_set() or (self._stop is not None and self._stop.is_set())

    async def _work(self) -> BaseException | None:
        """One worker; answers what is to be raised but must not pass through an event loop (SystemExit)."""
        clock = asyncio.get_running_loop().time
        quiet_since = clock()
        while not self._is_stopping():
            room = self._settings.batch if self._left is None else min(self._settings.batch, self._left)
            if room == 0:
                break
            quiet_for = clock() - quiet_since
            wait = _WAIT_SECONDS if self._idle_seconds is None else max(self._idle_seconds - quiet_for, 0.0)
            events = await self._pop(room, min(wait, _WAIT_SECONDS))
            if events:
                fatal = await self._handle(events)
                if fatal is not None:
                    self._stopping.set()
                    return fatal
                quiet_since = clock()
            elif self._idle_seconds is not None and clock() - quiet_since >= self._idle_seconds:
                break
        return None

    async def _pop(self, room: int, wait: float) -> Sequence[Event]:
        """Up to ``room`` events, taken off what is left of the limit; none if it is time to stop."""
        if self._left is not None:
            self._left -= room
        request = replace(self._settings.request(self._queue), batch=room, wait_seconds=wait)
        pop = asyncio.create_task(self._session.pop(request))
        events: Sequence[Event] = []
        try:
            await asyncio.wait([pop, self._stopped], return_when=asyncio.FIRST_COMPLETED)
            if not pop.done():
                pop.cancel()
                await asyncio.wait([pop])
            if not pop.cancelled():
                events = pop.result()
        except asyncio.CancelledError:
            if not pop.cancel() and not pop.cancelled() and pop.exception() is None:
                await put_back(self._session.transport, pop.result())
            raise
        finally:
            if self._left is not None:
                self._left += room - len(events)
        return events

    async def _handle(self, events: Sequence[Event]) -> BaseException | None:
        hand = InHand(self._session.transport, events, self._is_stopping)
        try:
            async with hand.renewing(self._settings.lease_seconds) if self._renew else nullcontext():
                if self._settings.each:
                    await hand.one_by_one(self._call)
                else:
                    await hand.together(self._call)
        finally:
            self._completed += hand.completed
            self._failed += hand.failed
            if self._left is not None:
                self._left += len(events) - hand.completed - hand.failed
        return hand.fatal

    async def _call(self, argument: object) -> None:
        if _is_async(self._handler):
            result = self._handler(argument)
        else:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="penstock-consumer")
            context = contextvars.copy_context()
            call = partial(context.run, _outcome, self._handler, argument)
            result, error = await asyncio.get_running_loop().run_in_executor(self._threads, call)
            if error is not None:
                raise error
        if inspect.isawaitable(result):
            await result


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _outcome(handler: Handler, argument: object) -> tuple[object, BaseException | None]:
    # Not raised in the thread: a future cannot carry a StopIteration, and a SystemExit would end the event loop.
    try:
        return handler(argument), None
    except BaseException as error:
        return None, error
