"""One subscriber of a live stream, with a bounded buffer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

#: Limits of a subscriber's buffer. A subscriber that falls behind them restarts.
_MAX_MESSAGES = 100
_MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class LiveMessage:
    """A message of a live stream, encoded once for all its subscribers."""

    event: str
    data: bytes
    #: The id from which a stream can be resumed; "" if it cannot.
    id: str = ""
    #: For messages with events: the offset before them, by partition. A subscriber that misses it restarts there.
    since: Mapping[int, int] | None = None

    @cached_property
    def sse(self) -> bytes:
        """The message as a Server-Sent Event. Line breaks in JSON are whitespace, so spaces replace them."""
        id_line = f"id: {self.id}\n" if self.id else ""
        line = self.data.replace(b"\n", b" ").replace(b"\r", b" ")
        return f"event: {self.event}\n{id_line}data: ".encode() + line + b"\n\n"

    @cached_property
    def text(self) -> str:
        """The message as WebSocket text."""
        head = msgspec.json.encode({"event": self.event, "id": self.id})[:-1]
        return (head + b',"data":' + self.data + b"}").decode()


class Subscriber:
    """Buffers messages for one client.

    The broadcaster offers messages and never waits. When the buffer is full, it is emptied. After the client has taken
    the message in progress, the subscriber restarts: it gets a first message that says what it missed.
    """

    def __init__(self, on_restart: Callable[[Subscriber], None], on_overrun: Callable[[], None]) -> None:
        self._on_restart = on_restart
        self._on_overrun = on_overrun
        self._messages: deque[LiveMessage] = deque()
        self._size = 0
        self._ready = asyncio.Event()
        self._is_behind = False
        self._is_closed = False
        #: The ``since`` of the first message that was dropped last.
        self.missed_since: Mapping[int, int] | None = None

    def offer(self, message: LiveMessage) -> None:
        """Buffer a message, or drop the buffer if the client is too slow."""
        if self._is_closed or self._is_behind:
            return
        if self._messages and (len(self._messages) >= _MAX_MESSAGES or self._size + len(message.data) > _MAX_BYTES):
            self.missed_since = self._messages[0].since
            self._messages.clear()
            self._size = 0
            self._is_behind = True
            self._on_overrun()
        else:
            self._messages.append(message)
            self._size += len(message.data)
        self._ready.set()

    def close(self) -> None:
        """End the stream after the buffered messages."""
        self._is_closed = True
        self._ready.set()

    @property
    def is_done(self) -> bool:
        """Whether the stream is closed and the buffer is empty."""
        return self._is_closed and not self._messages

    async def next(self, timeout: float) -> LiveMessage | None:
        """Return the next message; None after the timeout or at the end of the stream."""
        if not self._messages and self._is_behind and not self._is_closed:
            self._is_behind = False
            self._on_restart(self)
        if not self._messages and not self._is_closed:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return None
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._size -= len(message.data)
        return message
