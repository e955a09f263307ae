"""How a reader is told: Server-Sent Events, or a WebSocket. Both end when the reader leaves or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from penstock.server.live.subscriber import Subscriber

#: A sign of life, so that neither end nor anything between them takes the connection for dead.
BEAT_SECONDS = 15.0
#: A reader that takes nothing for so long is gone.
_PATIENCE_SECONDS = 60.0


#: Makes a subscriber, and lets go of it at the end.
Following: TypeAlias = AbstractContextManager[Subscriber]


class EventStream(Response):
    """A subscriber's frames as Server-Sent Events."""

    media_type = "text/event-stream"

    def __init__(self, following: Following) -> None:
        super().__init__(status_code=200, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._following = following

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is nothing more, or nobody who reads."""
        scope["state"]["streams"] = True
        with self._following as subscriber:
            gone = asyncio.create_task(_gone(receive, subscriber))
            try:
                await self._send(subscriber, send)
            except TimeoutError:
                return
            finally:
                gone.cancel()

    async def _send(self, subscriber: Subscriber, send: Send) -> None:
        await _in_time(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
        # How long to wait before coming back, and something to see at once.
        await _in_time(send(_body(b"retry: 1000\n\n")))
        while not subscriber.is_over:
            frame = await subscriber.next(BEAT_SECONDS)
            if frame is not None:
                await _in_time(send(_body(frame.sse)))
            elif not subscriber.is_over:
                await _in_time(send(_body(b": still here\n\n")))
        await _in_time(send({"type": "http.response.body", "body": b"", "more_body": False}))


async def talk(socket: WebSocket, subscriber: Subscriber) -> None:
    """A subscriber's frames as messages of a WebSocket; what the reader says is of no interest."""
    socket.scope["state"]["streams"] = True
    gone = asyncio.create_task(_hung_up(socket, subscriber))
    try:
        frame = None
        while not subscriber.is_over:
            frame = await subscriber.next(BEAT_SECONDS)
            if frame is not None:
                await _in_time(socket.send_text(frame.text))
        if socket.client_state is WebSocketState.CONNECTED:
            await _in_time(socket.close(1001 if frame is None else 1000))
    except (TimeoutError, WebSocketDisconnect, RuntimeError):
        return
    finally:
        gone.cancel()


def _body(content: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def _gone(receive: Receive, subscriber: Subscriber) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    subscriber.end()


async def _hung_up(socket: WebSocket, subscriber: Subscriber) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    subscriber.end()


async def _in_time(sending: Awaitable[None]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await sending
