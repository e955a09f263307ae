"""Runs the coroutines of the asynchronous client for the synchronous one, on an event loop in a thread."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from penstock.client.client_session import CloseRefused
from penstock.core.errors import PenstockError
from penstock.core.event_loop import EventLoopClosed, EventLoopThread

_T = TypeVar("_T")
_Async = TypeVar("_Async")
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")

#: Parts of docstrings that are different for the synchronous client.
_REPLACED = {
    "Methods that are awaited call": "The other methods call",
    "with Penstock(": "with SyncPenstock(",
    "between all tasks of the event loop: concurrent calls go to the database in one batch.": (
        "between all threads: concurrent calls go to the database in one batch. An interrupt\n"
        "    (Ctrl-C) ends a call that waits. A client does not work in a forked child: open one in each process,\n"
        "    after forking."
    ),
}


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


class SyncWrapper(Generic[_Async]):
    """The synchronous form of an object of the asynchronous client."""

    def __init__(self, wrapped: _Async, bridge: SyncBridge) -> None:
        self._async = wrapped
        self._bridge = bridge

    def __repr__(self) -> str:
        return f"Sync{self._async!r}"


def constructed_by(
    make: Callable[_Parameters, _Async],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Any, _Parameters], None]]:
    """Give a class the constructor of its asynchronous form, and its objects an event loop."""

    def decorate(_: Callable[[Any], None]) -> Callable[Concatenate[Any, _Parameters], None]:
        @functools.wraps(make.__init__)
        def __init__(self: Any, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
            SyncWrapper.__init__(self, make(*args, **kwargs), SyncBridge())

        return __init__

    return decorate


def blocking(
    method: Callable[Concatenate[_Async, _Parameters], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[SyncWrapper[_Async], _Parameters], _T]:
    """Return the synchronous form of a coroutine method: it waits for the result."""

    def call(self: SyncWrapper[_Async], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _T:
        return self._bridge.run(method(self._async, *args, **kwargs))

    functools.update_wrapper(call, method)
    call.__doc__ = sync_docstring(method)
    return call


def wrapping(
    method: Callable[Concatenate[_Async, _Parameters], _Result],
    wrapper: Callable[[], Callable[[_Result, SyncBridge], _T]],
) -> Callable[Concatenate[SyncWrapper[_Async], _Parameters], _T]:
    """Return the synchronous form of a method that returns an object of the client: it wraps that object."""

    def call(self: SyncWrapper[_Async], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _T:
        return wrapper()(method(self._async, *args, **kwargs), self._bridge)

    functools.update_wrapper(call, method)
    call.__doc__ = sync_docstring(method)
    return call


def sync_docstring(documented: object) -> str:
    """Return the docstring of a class or method of the asynchronous client, without ``async`` and ``await``."""
    text = documented.__doc__ or ""
    for asynchronous, synchronous in _REPLACED.items():
        text = text.replace(asynchronous, synchronous)
    return re.sub(r"\b(await|async) ", "", text)
