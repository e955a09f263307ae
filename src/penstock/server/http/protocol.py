"""A connection: how long it may take, how much it may send before a request has begun, how many there may be.

The server's library reads a request's head for as long as it takes and as large as it gets. Here every connection
notes what it waits for since when, which costs nothing worth a word, and somebody looks at all of them every second.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.server.http.errors import Problem, retry_after
from penstock.server.http.request import IS_WHOLE

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 200
_LOOK_SECONDS = 1.0

#: Where the library speaks of WebSockets. Whatever fails behind one was logged by the frame around the application.
_mute = logging.getLogger("uvicorn.error.websocket")
_mute.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may take.

    Attributes:
        connections: So many at a time in this process.
        head_seconds: How long the head of a request may take to arrive.
        stalled_seconds: How long a caller may leave an answer unread.
    """

    connections: int
    head_seconds: float
    stalled_seconds: float


class LimitedConfig(uvicorn.Config):
    """The library's configuration, and our limits."""

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits


class _Written(asyncio.Protocol):
    """What is written to a caller, and whether he reads it.

    The library closes a connection in order, which never ends while there is something that nobody reads.
    """

    config: LimitedConfig
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    #: Since when the caller does not read; 0 while he does.
    stalled_since = 0.0

    def pause_writing(self) -> None:
        """Note that the caller does not read."""
        self.stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that he does again."""
        self.stalled_since = 0.0
        super().resume_writing()

    def look(self, now: float) -> None:
        """Cut off a caller who takes nothing for too long."""
        if self.stalled_since and now - self.stalled_since > self.config.limits.stalled_seconds:
            self.transport.abort()


class Connection(_Written, HttpToolsProtocol):
    """A connection with limits."""

    config: LimitedConfig

    #: Since when it waits for the head of a request; 0 while it does not.
    waits_since = 0.0
    _head_bytes = 0
    _refusal: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the library has it
        """Begin to wait for a request, if there is room for one more connection."""
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        if len(self.connections) > self.config.limits.connections:
            detail = "there are as many connections as the server can take"
            self._refuse(Problem("overloaded", detail, {}, retry_after(1)))

    def data_received(self, data: bytes) -> None:
        """Read on; what comes after an answer begins another request."""
        # Waiting from the start, so there was a request if it does not.
        if not self.waits_since and self.cycle.response_complete:
            self.waits_since = self.loop.time()
            self._head_bytes = 0
        super().data_received(data)

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._count(len(name) + len(value))
        if len(self.headers) >= MAX_HEADERS:
            self._refusal = Problem("head-too-large", f"there are more than {MAX_HEADERS} headers")
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop waiting: the request can be answered."""
        self.waits_since = 0.0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that all of the request is there."""
        self.scope["state"][IS_WHOLE] = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        """Count anew."""
        self._head_bytes = 0
        super().on_message_begin()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, in our shape."""
        self._refuse(self._refusal or Problem("invalid-request", "this is no HTTP request"))

    def look(self, now: float) -> None:
        """Cut off a caller who takes too long."""
        super().look(now)
        limits = self.config.limits
        if self.waits_since and now - self.waits_since > limits.head_seconds:
            if self._head_bytes:
                seconds = f"{limits.head_seconds:g} s"
                self._refuse(Problem("request-timeout", f"the head of the request did not arrive within {seconds}"))
            else:
                self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refusal = Problem("head-too-large", f"address and headers are larger than {MAX_HEAD_BYTES:,} bytes")
            raise ValueError("the head is too large")

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        answer = problem.response()
        lines = [STATUS_LINE[problem.status]]
        lines += [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
        lines += [b"connection: close\r\n\r\n", bytes(answer.body)]
        self.transport.write(b"".join(lines))
        self.transport.close()


class Conversation(_Written, WebSocketsSansIOProtocol):
    """A WebSocket. That one was refused, or that a caller sent nonsense, is no error of the server.

    The library takes a handshake that was answered with a problem for one that was forgotten, and writes what a
    caller did wrong into the log with a traceback. What there is to say of either is in the request's own line.
    """

    config: LimitedConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _mute

    async def send(self, message: Any) -> None:
        """Send on; a refusal that is on its way ends the handshake."""
        try:
            await super().send(message)
        except ClientDisconnected:
            # Somebody who is to be refused may have left.
            if not message["type"].startswith("websocket.http.response"):
                raise
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True


async def look_at(connections: set[Any]) -> None:
    """Look at every connection, again and again, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, _Written):
                connection.look(now)
