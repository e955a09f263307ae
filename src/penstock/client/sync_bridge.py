"""Runs the coroutines of the asynchronous client for the synchronous one, on an event loop in a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from penstock.client.session import CloseRefused
from penstock.core.errors import PenstockError
from penstock.core.event_loop import EventLoopClosed, EventLoopThread

_T = TypeVar("_T")


class SyncBridge:
    """The event loop of one synchronous client, from :meth:`open` to :meth:`close`.

    All threads share the loop, so concurrent calls of several threads go to the database in one batch. A forked child
    does not have the loop's thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = "not open"
        self._process_id = 0
        self._loop: EventLoopThread | None = None

    def open(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Start the event loop if it does not run, and run a coroutine on it; stop the loop again if that fails."""
        with self._lock:
            is_first = self._loop is None
            if is_first:
                self._process_id = os.getpid()
                self._loop = EventLoopThread("penstock")
        try:
            return self.run(coroutine)
        except BaseException:
            if is_first:
                self._stop("not open")
            raise

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result. An interrupt cancels the coroutine and waits for its end."""
        loop = self._loop
        try:
            if loop is None:
                raise self._not_open()
            if self._process_id != os.getpid():
                raise PenstockError(
                    "this client was opened before a fork: open one client in each process, after forking"
                )
            if loop.is_current:
                raise PenstockError(
                    "SyncPenstock was called from a coroutine on its own event loop, and the call would block that "
                    "loop; give consume() a plain function instead"
                )
        except PenstockError:
            coroutine.close()
            raise
        try:
            return loop.run(coroutine)
        except EventLoopClosed:
            raise self._not_open() from None
        except CancelledError:
            raise PenstockError("the client was closed while this call was running") from None

    def close(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the last coroutine and stop the event loop; do nothing if this process has no loop."""
        loop = self._loop
        if loop is None or self._process_id != os.getpid():
            coroutine.close()
            return
        try:
            self.run(coroutine)
        except CloseRefused:
            raise
        except BaseException:
            if not loop.is_current:
                self._stop("closed")
            raise
        self._stop("closed")

    def _stop(self, state: str) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
            self._state = state
        if loop is not None:
            loop.close()

    def _not_open(self) -> PenstockError:
        return PenstockError(
            f"this client is {self._state}: use it inside `with SyncPenstock(...) as q:`, or call q.open() first"
        )
