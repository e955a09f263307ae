"""Whether a client is open, and on which event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from penstock.client.delivery import put_back
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client.buffer import Buffer
    from penstock.client.transport import ClientTransport
    from penstock.log.event import Event
    from penstock.log.read.lease import PopRequest

#: The session whose consumer has called the handler that runs.
_handling: ContextVar[Session | None] = ContextVar("penstock_handling", default=None)


class CloseRefused(PenstockError):
    """The client cannot be closed from here, and stays open."""


class Session:
    """A transport that is there while it is open, shared by everything that one client hands out."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = "not open"
        self._closing = False
        self._waiting: set[asyncio.Task[list[Event]]] = set()
        self._consumers: dict[asyncio.Event, asyncio.Event] = {}
        self._buffers: dict[Buffer, None] = {}
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Open the transport, unless it is open."""
        async with self._changing:
            if self._loop is not None:
                self._check_loop(self._loop)
                return
            await self._transport.open()
            self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """End pops that wait, let consumers finish what they have in hand, empty buffers, and close the transport."""
        if _handling.get() is self and self._consumers:
            raise CloseRefused(
                "a handler cannot close its client, because closing waits for the handler: set the event that was "
                "given to consume() as stop instead"
            )
        async with self._changing:
            if self._loop is None:
                return
            self._check_loop(self._loop)
            self._closing = True
            try:
                for stopping in self._consumers:
                    stopping.set()
                for ended in list(self._consumers.values()):
                    await ended.wait()
                await self._empty_buffers()
            finally:
                self._loop, self._state, self._closing = None, "closed", False
                for task in self._waiting:
                    task.cancel()
                if self._waiting:
                    await asyncio.wait(self._waiting)
                await self._transport.close()

    def add_buffer(self, buffer: Buffer) -> None:
        """A buffer that has begun to take events: closing empties it."""
        if self._loop is None or self._closing:
            raise PenstockError(f"this client is {'being closed' if self._closing else self._state}")
        self._buffers[buffer] = None

    def forget_buffer(self, buffer: Buffer) -> None:
        """A buffer that was closed."""
        self._buffers.pop(buffer, None)

    async def _empty_buffers(self) -> None:
        outcomes = await asyncio.gather(*(buffer.close() for buffer in self._buffers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    @contextmanager
    def consuming(self, stopping: asyncio.Event) -> Iterator[None]:
        """While a consumer runs: closing sets its event and waits for it."""
        if self._closing:
            raise PenstockError("this client is being closed")
        ended = self._consumers[stopping] = asyncio.Event()
        token = _handling.set(self)
        try:
            yield
        finally:
            _handling.reset(token)
            del self._consumers[stopping]
            ended.set()

    @property
    def transport(self) -> ClientTransport:
        """The transport, if it can be used here and now."""
        if self._loop is None:
            raise PenstockError(
                f"this client is {self._state}: use it inside `async with Penstock(...) as q:`, or await q.open() first"
            )
        self._check_loop(self._loop)
        return self._transport

    async def pop(self, request: PopRequest) -> list[Event]:
        """Pop; if the client is closed meanwhile, say so instead of waiting on."""
        transport = self.transport
        if not request.wait_seconds:
            return await transport.pop(request)
        task = asyncio.create_task(transport.pop(request))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                await put_back(transport, task.result())
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
