"""uvicorn's protocols with limits on connections, request heads and stalled clients.

uvicorn reads the head of a request for as long as it takes and however large it gets. Here every connection records
since when it waits, and a task checks all connections every second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.server.http.errors import Problem, retry_after
from penstock.server.http.request import HAS_FULL_BODY
from penstock.server.settings import ServerSettings

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 200
_CHECK_SECONDS = 1.0
_MAX_HEAD_SECONDS = 10.0

#: uvicorn's log of WebSockets, switched off: the request middleware logs all failures.
_silent_logger = logging.getLogger("uvicorn.error.websocket")
_silent_logger.setLevel(logging.CRITICAL)


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with the limits of our settings."""

    def __init__(self, *args: Any, settings: ServerSettings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_connections = settings.max_connections
        #: How long the head of a request may take to arrive.
        self.head_seconds = min(settings.request_seconds, _MAX_HEAD_SECONDS)
        #: How long a client may accept no data.
        self.stalled_seconds = settings.idle_seconds


class _StallTimeout(asyncio.Protocol):
    """Disconnects a client that accepts no data for too long.

    uvicorn closes such a connection only after the client has read everything.
    """

    config: LimitedConfig
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    #: Since when the client accepts no data; 0 while it does.
    stalled_since = 0.0

    def pause_writing(self) -> None:
        self.stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stalled_since = 0.0
        super().resume_writing()

    def check_timeouts(self, now: float) -> None:
        """Disconnect a stalled client."""
        if self.stalled_since and now - self.stalled_since > self.config.stalled_seconds:
            self.transport.abort()


class HttpConnection(_StallTimeout, HttpToolsProtocol):
    config: LimitedConfig

    #: Since when it waits for the head of a request; 0 while a request is handled.
    waiting_since = 0.0
    _head_bytes = 0
    _refusal: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's type
        """Wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        if len(self.connections) > self.config.max_connections:
            self._refuse(Problem("overloaded", "the server has too many connections; try again", {}, retry_after(1)))

    def data_received(self, data: bytes) -> None:
        """Parse data. After a response it belongs to the next request."""
        # There was a request before, because a new connection waits from its start.
        if not self.waiting_since and self.cycle.response_complete:
            self.waiting_since = self.loop.time()
            self._head_bytes = 0
        super().data_received(data)

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        if len(self.headers) >= MAX_HEADERS:
            self._refusal = Problem("head-too-large", f"the request has more than {MAX_HEADERS} headers")
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.waiting_since = 0.0
        hosts = sum([name == b"host" for name, _ in self.headers])
        # HTTP/1.0 has no such header.
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            self._refusal = Problem("invalid-request", f"the request has {hosts or 'no'} Host headers: send one")
            raise ValueError("no single Host header")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.scope["state"][HAS_FULL_BODY] = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not a request, with a problem."""
        self._refuse(self._refusal or Problem("invalid-request", "this is not an HTTP request"))

    def check_timeouts(self, now: float) -> None:
        """Disconnect a stalled client, or one whose request does not arrive."""
        super().check_timeouts(now)
        if self.waiting_since and now - self.waiting_since > self.config.head_seconds:
            if self._head_bytes:
                seconds = f"{self.config.head_seconds:g} s"
                self._refuse(Problem("request-timeout", f"the headers of the request did not arrive within {seconds}"))
            else:
                self.transport.close()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refusal = Problem("head-too-large", f"address and headers are larger than {MAX_HEAD_BYTES:,} bytes")
            raise ValueError("the head is too large")

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        response = problem.response()
        lines = [STATUS_LINE[problem.status]]
        lines += [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
        lines += [b"connection: close\r\n\r\n", bytes(response.body)]
        self.transport.write(b"".join(lines))
        self.transport.close()


class WebSocketConnection(_StallTimeout, WebSocketsSansIOProtocol):
    """A WebSocket with limits.

    uvicorn treats a handshake that was answered with an HTTP response as unanswered, and logs mistakes of clients with
    a traceback. Neither is an error of the server, and the request log has both.
    """

    config: LimitedConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _silent_logger

    async def send(self, message: Any) -> None:
        """Send a message. A complete HTTP response ends the handshake."""
        try:
            await super().send(message)
        except ClientDisconnected:
            # The client may leave before it gets a refusal.
            if not message["type"].startswith("websocket.http.response"):
                raise
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True


async def enforce_timeouts(connections: set[Any]) -> None:
    """Check the timeouts of all connections every second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, _StallTimeout):
                connection.check_timeouts(now)
