"""Live streams over Server-Sent Events and WebSockets. Both end when the client disconnects or the server stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from penstock.core.errors import PenstockError
from penstock.server.http.errors import Problem
from penstock.server.live.broadcaster import problem_message
from penstock.server.live.subscriber import LiveMessage, Subscriber

#: A comment is sent after this time without a message, so that neither side closes the connection as dead.
HEARTBEAT_SECONDS = 15.0
#: How often the credential of an open stream is checked again.
_REAUTHORIZE_SECONDS = 2.5
#: A client that accepts no data for this time is disconnected.
_SEND_TIMEOUT_SECONDS = 60.0

#: Creates a subscriber, and removes it at the end.
Subscription: TypeAlias = AbstractContextManager[Subscriber]
#: Raises a problem if the client is no longer authorized; None while access control is off.
Reauthorize: TypeAlias = Callable[[], Awaitable[object]] | None


class EventStream(Response):
    """The messages of a subscriber as Server-Sent Events."""

    media_type = "text/event-stream"

    def __init__(self, subscription: Subscription, reauthorize: Reauthorize) -> None:
        super().__init__(status_code=200, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._subscription = subscription
        self._reauthorize = reauthorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["streams"] = True
        if scope["method"] == "HEAD":
            await _with_timeout(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        with self._subscription as subscriber:
            disconnect = asyncio.create_task(_close_on_disconnect(receive, "http.disconnect", subscriber))
            try:
                await self._send_messages(subscriber, send)
            except TimeoutError:
                return
            finally:
                disconnect.cancel()

    async def _send_messages(self, subscriber: Subscriber, send: Send) -> None:
        await _with_timeout(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
        # The reconnect delay for the client. It also makes proxies forward the headers at once.
        await _with_timeout(send(_chunk(b"retry: 1000\n\n")))
        async for message in _messages(subscriber, self._reauthorize):
            await _with_timeout(send(_chunk(b": still here\n\n" if message is None else message.sse)))
        await _with_timeout(send({"type": "http.response.body", "body": b"", "more_body": False}))


async def stream_over_websocket(socket: WebSocket, subscriber: Subscriber, reauthorize: Reauthorize) -> None:
    """Send the messages of a subscriber over a WebSocket. Messages from the client are ignored."""
    socket.scope["state"]["streams"] = True
    disconnect = asyncio.create_task(_close_on_disconnect(socket.receive, "websocket.disconnect", subscriber))
    try:
        async for message in _messages(subscriber, reauthorize):
            # No heartbeat: the WebSocket protocol has its own.
            if message is not None:
                await _with_timeout(socket.send_text(message.text))
        if socket.client_state is WebSocketState.CONNECTED:
            await _with_timeout(socket.close(1001))
    except (TimeoutError, WebSocketDisconnect, RuntimeError):
        return
    finally:
        disconnect.cancel()


async def _messages(subscriber: Subscriber, reauthorize: Reauthorize) -> AsyncIterator[LiveMessage | None]:
    """Yield the messages of a subscriber, and None for a heartbeat. A refused client gets a last message."""
    sent = authorized = time.monotonic()
    while not subscriber.is_done:
        message = await subscriber.next(HEARTBEAT_SECONDS if reauthorize is None else _REAUTHORIZE_SECONDS)
        now = time.monotonic()
        if reauthorize is not None and now - authorized >= _REAUTHORIZE_SECONDS:
            authorized = now
            if (refusal := await _find_refusal(reauthorize)) is not None:
                yield problem_message(refusal)
                return
        if message is not None or (now - sent >= HEARTBEAT_SECONDS and not subscriber.is_done):
            sent = now
            yield message


async def _find_refusal(reauthorize: Callable[[], Awaitable[object]]) -> Problem | None:
    try:
        await reauthorize()
    except Problem as problem:
        # Throttling and an unreachable database do not end an open stream.
        return problem if problem.status in (401, 403) else None
    except PenstockError:
        return None
    return None


def _chunk(content: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def _close_on_disconnect(receive: Receive, event: str, subscriber: Subscriber) -> None:
    while (await receive())["type"] != event:
        pass
    subscriber.close()


async def _with_timeout(sending: Awaitable[None]) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT_SECONDS):
        await sending
