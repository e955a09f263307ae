"""An event loop in a thread, for callers without one.

The thread and the loop come from anyio's ``start_blocking_portal``. Coroutines start through asyncio, not through
``BlockingPortal.call``, for two reasons: ``call`` wakes the loop twice (260 µs for an empty coroutine, against 90 µs),
and an anyio cancel scope cancels every later ``await`` too, also those that return a connection to its pool.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from anyio.from_thread import start_blocking_portal

_T = TypeVar("_T")


class EventLoopClosed(RuntimeError):
    """The event loop was closed before the coroutine started."""


class EventLoopThread:
    """Runs coroutines for all threads on one event loop, in a daemon thread.

    A coroutine runs with a copy of the caller's context variables.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._portal_context = start_blocking_portal(name=name)
        self._portal = self._portal_context.__enter__()
        self._loop, self._thread = self._portal.call(_get_loop_and_thread)
        _threads.add(self)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread, which a call to ``run`` would block forever."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result.

        If the wait is interrupted (Ctrl-C), the coroutine is cancelled, and the interrupt goes on when the coroutine
        has ended. A second interrupt does not wait for that.
        """
        call = self._start(coroutine)
        try:
            return call.future.result()
        except BaseException:
            if not call.future.done():
                self._cancel_and_wait(call)
            raise

    def submit(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start a coroutine. Cancelling the future cancels it; closing the loop cancels both."""
        call = self._start(coroutine)
        call.future.add_done_callback(lambda future: self._cancel(call) if future.cancelled() else None)
        return call.future

    def close(self, timeout: float | None = None) -> bool:
        """Cancel the coroutines that run, wait for their end and end the thread. May be called twice.

        Return whether the thread has ended. It runs on after ``timeout`` seconds if a call in a worker thread hangs.
        """
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
        if is_first:
            # Calls that were scheduled before have started by the time the loop stops, so the loop cancels them.
            if timeout is None:
                self._portal_context.__exit__(None, None, None)
            else:
                closing = threading.Thread(target=self._portal_context.__exit__, args=(None, None, None), daemon=True)
                closing.start()
                closing.join(timeout)
        return not self._thread.is_alive()

    def _start(self, coroutine: Coroutine[Any, Any, _T]) -> _ScheduledCall[_T]:
        call = _ScheduledCall(coroutine)
        with self._lock:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(call.start)
                return call
        coroutine.close()
        raise EventLoopClosed("the event loop is closed")

    def _cancel_and_wait(self, call: _ScheduledCall[Any]) -> None:
        self._cancel(call)
        try:
            wait([call.future])
        except BaseException:
            self._cancel(call)
            raise

    def _cancel(self, call: _ScheduledCall[Any]) -> None:
        with self._lock:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(call.cancel)


_threads: weakref.WeakSet[EventLoopThread] = weakref.WeakSet()


@atexit.register
def _keep_portals() -> None:
    # The interpreter would finalize the portal of a loop that was not closed when the loop's daemon thread is dead, and
    # wait for that thread forever.
    for thread in _threads:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thread._portal_context))


class _ScheduledCall(Generic[_T]):
    """A coroutine that one thread waits for and the loop's thread runs."""

    def __init__(self, coroutine: Coroutine[Any, Any, _T]) -> None:
        self.future: Future[_T] = Future()
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        # A SystemExit that leaves the task would end the loop for all callers.
        try:
            result = await self._coroutine
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)
        else:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(result)

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._coroutine.close()  # a task that is cancelled before its first step never awaits it
            if self.future.cancel():
                self.future.set_running_or_notify_cancel()


async def _get_loop_and_thread() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    return asyncio.get_running_loop(), threading.current_thread()
