"""The open transport of a client, bound to one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.log.read.consume_loop import release_events

if TYPE_CHECKING:
    from penstock.client.buffer import Buffer
    from penstock.client.transport import Transport
    from penstock.log.event import Event
    from penstock.log.read.pop_request import PopRequest

#: The session whose consumer called the handler that runs now.
_consuming_session: ContextVar[ClientSession | None] = ContextVar("penstock_consuming_session", default=None)


class CloseRefused(PenstockError):
    """The client cannot be closed from a handler, and stays open."""


class ClientSession:
    """The state that all handles of one client share: transport, event loop, consumers, buffers and waiting pops."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = "not open"
        self._is_closing = False
        self._waiting_pops: set[asyncio.Task[list[Event]]] = set()
        #: For each consumer the event that stops it, and the event that it sets when it has stopped.
        self._consumers: dict[asyncio.Event, asyncio.Event] = {}
        self._buffers: dict[Buffer, None] = {}
        self._open_or_close = asyncio.Lock()

    async def open(self) -> None:
        """Open the transport unless it is open."""
        async with self._open_or_close:
            if self._loop is not None:
                self._check_loop(self._loop)
                return
            await self._transport.open()
            self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Let consumers finish their events, flush buffers, end the pops that wait, and close the transport."""
        if _consuming_session.get() is self and self._consumers:
            raise CloseRefused(
                "a handler cannot close its client, because closing waits for the handler: set the event that was "
                "given to consume() as stop instead"
            )
        async with self._open_or_close:
            if self._loop is None:
                return
            self._check_loop(self._loop)
            self._is_closing = True
            try:
                for stopping in self._consumers:
                    stopping.set()
                for stopped in list(self._consumers.values()):
                    await stopped.wait()
                await self._close_buffers()
            finally:
                self._loop, self._state, self._is_closing = None, "closed", False
                for task in self._waiting_pops:
                    task.cancel()
                if self._waiting_pops:
                    await asyncio.wait(self._waiting_pops)
                await self._transport.close()

    def add_buffer(self, buffer: Buffer) -> None:
        """Register a buffer that holds events; closing the session closes it."""
        if self._loop is None or self._is_closing:
            raise PenstockError(f"this client is {'closing' if self._is_closing else self._state}")
        self._buffers[buffer] = None

    def remove_buffer(self, buffer: Buffer) -> None:
        self._buffers.pop(buffer, None)

    async def _close_buffers(self) -> None:
        results = await asyncio.gather(*(buffer.close() for buffer in self._buffers), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @contextmanager
    def register_consumer(self, stopping: asyncio.Event) -> Iterator[None]:
        """Register a consumer while the block runs; closing the session sets ``stopping`` and waits for its end."""
        if self._is_closing:
            raise PenstockError("this client is closing")
        stopped = self._consumers[stopping] = asyncio.Event()
        token = _consuming_session.set(self)
        try:
            yield
        finally:
            _consuming_session.reset(token)
            del self._consumers[stopping]
            stopped.set()

    @property
    def transport(self) -> Transport:
        """The transport; raises PenstockError if the session is not open on the running event loop."""
        if self._loop is None:
            raise PenstockError(
                f"this client is {self._state}: use it inside `async with Penstock(...) as q:`, or await q.open() first"
            )
        self._check_loop(self._loop)
        return self._transport

    async def pop(self, request: PopRequest) -> list[Event]:
        """Pop events; raise PenstockError if the client is closed while the pop waits for events."""
        transport = self.transport
        if not request.wait_seconds:
            return await transport.pop(request)
        task = asyncio.create_task(transport.pop(request))
        self._waiting_pops.add(task)
        task.add_done_callback(self._waiting_pops.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                await release_events(transport, task.result())
            current = asyncio.current_task()
            if self._loop is None and current is not None and not current.cancelling():
                raise PenstockError(
                    f"the client was closed while a pop of queue {request.queue!r} was waiting for events"
                ) from None
            raise

    def _check_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if asyncio.get_running_loop() is not loop:
            raise PenstockError(
                "this client was opened on another event loop: open one inside each asyncio.run(), or use "
                "SyncPenstock from code without an event loop"
            )
