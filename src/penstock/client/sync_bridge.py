"""One event loop in a thread of its own, for callers without one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from penstock.client.session import CloseRefused
from penstock.core.errors import PenstockError

_Answer = TypeVar("_Answer")


class Portal:
    """Runs coroutines for all threads on one event loop.

    One loop, so that what several threads ask for at the same time goes to the database together. Its thread is
    there between :meth:`open` and :meth:`close`; a forked child does not have it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = "not open"
        self._process = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None

    def open(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Start the thread, if it does not run, and run the first coroutine on it; it ends again if that fails."""
        with self._lock:
            started = self._loop is None
            if started:
                self._start()
        try:
            return self.run(coroutine)
        except BaseException:
            if started:
                self._end("not open")
            raise

    def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a coroutine and wait for its answer. An interrupt cancels it, and goes on when it has ended."""
        call: _Call[_Answer] = _Call(coroutine, contextvars.copy_context())
        with self._lock:
            problem = self._problem()
            if problem is None and self._loop is not None:
                self._loop.call_soon_threadsafe(call.start)
        if problem is not None:
            coroutine.close()
            raise PenstockError(problem)
        try:
            return call.done.result()
        except BaseException:
            if not call.done.done():
                self._interrupt(call)
            raise

    def close(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the last coroutine and end the thread; nothing happens if there is none."""
        with self._lock:
            here = self._loop is not None and self._process == os.getpid()
        if not here:
            coroutine.close()
            return
        try:
            self.run(coroutine)
        except CloseRefused:
            raise
        except BaseException:
            if threading.current_thread() is not self._thread:
                self._end("closed")
            raise
        self._end("closed")

    def _problem(self) -> str | None:
        if self._loop is None:
            return f"this client is {self._state}: use it inside `with SyncPenstock(...) as q:`, or call q.open() first"
        if self._process != os.getpid():
            return "this client was opened before a fork: open one in each process, after forking"
        if threading.current_thread() is self._thread:
            return (
                "SyncPenstock was called from a coroutine on its own event loop, which it would block; "
                "give consume() a plain function instead"
            )
        return None

    def _start(self) -> None:
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._serve, args=[ready], name="penstock", daemon=True)
        self._process = os.getpid()
        self._thread.start()
        ready.result()

    def _end(self, state: str) -> None:
        with self._lock:
            loop, ending, thread = self._loop, self._ending, self._thread
            self._loop = self._ending = self._thread = None
            self._state = state
            if loop is not None and ending is not None:
                # Whatever was asked for before has begun by then, and is cancelled as the loop ends.
                loop.call_soon_threadsafe(ending.set)
        if thread is not None:
            thread.join()

    def _serve(self, ready: concurrent.futures.Future[None]) -> None:
        async def until_the_end() -> None:
            self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
            ending = self._ending
            ready.set_result(None)
            await ending.wait()

        asyncio.run(until_the_end())

    def _interrupt(self, call: _Call[Any]) -> None:
        """Cancel a call and wait for its end; interrupted once more, cancel it again and do not wait."""
        self._cancel(call)
        try:
            concurrent.futures.wait([call.done])
        except BaseException:
            self._cancel(call)
            raise

    def _cancel(self, call: _Call[Any]) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call.cancel)


class _Call(Generic[_Answer]):
    """A coroutine that one thread waits for and another runs."""

    def __init__(self, coroutine: Coroutine[Any, Any, _Answer], context: contextvars.Context) -> None:
        self.done: concurrent.futures.Future[_Answer] = concurrent.futures.Future()
        self._coroutine = coroutine
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        # Nothing is raised here: a SystemExit would end the loop under everybody else.
        try:
            answer = await self._coroutine
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(answer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._coroutine.close()  # it may not have begun
            self.done.set_exception(PenstockError("the client was closed while this call was under way"))
