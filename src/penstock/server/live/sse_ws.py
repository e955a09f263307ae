"""How a reader is told: Server-Sent Events, or a WebSocket. Both end when the reader leaves or the server stops."""

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
from penstock.server.live.broadcaster import problem_frame
from penstock.server.live.subscriber import Frame, Subscriber

#: A sign of life, so that neither end nor anything between them takes the connection for dead.
BEAT_SECONDS = 15.0
#: A stream lasts long: so often it is looked whether its reader is still welcome.
_LOOK_SECONDS = 2.5
#: A reader that takes nothing for so long is gone.
_PATIENCE_SECONDS = 60.0

#: Makes a subscriber, and lets go of it at the end.
Following: TypeAlias = AbstractContextManager[Subscriber]
#: Raises a problem if whoever reads may no longer; None where nobody asks.
Readmit: TypeAlias = Callable[[], Awaitable[object]]


class EventStream(Response):
    """A subscriber's frames as Server-Sent Events."""

    media_type = "text/event-stream"

    def __init__(self, following: Following, readmit: Readmit | None) -> None:
        super().__init__(status_code=200, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._following = following
        self._readmit = readmit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is nothing more, or nobody who reads."""
        scope["state"]["streams"] = True
        if scope["method"] == "HEAD":
            # Whoever wants to know what it is wants to know now.
            await _in_time(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
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
        async for frame in _told(subscriber, self._readmit):
            await _in_time(send(_body(b": still here\n\n" if frame is None else frame.sse)))
        await _in_time(send({"type": "http.response.body", "body": b"", "more_body": False}))


async def talk(socket: WebSocket, subscriber: Subscriber, readmit: Readmit | None) -> None:
    """A subscriber's frames as messages of a WebSocket; what the reader says is of no interest."""
    socket.scope["state"]["streams"] = True
    gone = asyncio.create_task(_hung_up(socket, subscriber))
    try:
        # The protocol has signs of life of its own.
        async for frame in _told(subscriber, readmit):
            if frame is not None:
                await _in_time(socket.send_text(frame.text))
        if socket.client_state is WebSocketState.CONNECTED:
            await _in_time(socket.close(1001))
    except (TimeoutError, WebSocketDisconnect, RuntimeError):
        return
    finally:
        gone.cancel()


async def _told(subscriber: Subscriber, readmit: Readmit | None) -> AsyncIterator[Frame | None]:
    """What there is to say, and None when there was nothing for a while; the last may be that it is over."""
    spoke = looked = time.monotonic()
    while not subscriber.is_over:
        frame = await subscriber.next(BEAT_SECONDS if readmit is None else _LOOK_SECONDS)
        now = time.monotonic()
        if readmit is not None and now - looked >= _LOOK_SECONDS:
            looked = now
            if (problem := await _refused(readmit)) is not None:
                yield problem_frame(problem)
                return
        if frame is not None or (now - spoke >= BEAT_SECONDS and not subscriber.is_over):
            spoke = now
            yield frame


async def _refused(readmit: Readmit) -> Problem | None:
    try:
        await readmit()
    except Problem as problem:
        # Whoever asks too often, or a database that is away, is no reason to end what is under way.
        return problem if problem.status in (401, 403) else None
    except PenstockError:
        return None
    return None


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
