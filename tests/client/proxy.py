"""What is between a client and a server, and misbehaves when it is told to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

#: The server gets the request and does what it says, and its answer is lost.
LOSE = b""


def answer(status: str, headers: str = "", body: str = "") -> bytes:
    """An answer that the server never hears of."""
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


class Proxy:
    """Passes requests on, one connection each, but for those whose fate was decided before."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self.url = ""
        #: What becomes of the next requests: LOSE, or what they are answered.
        self.plan: deque[bytes] = deque()
        #: What came in, whole.
        self.requests: list[bytes] = []
        self.lost = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._pass_on(reader, writer)
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read_message(reader)
        self.requests.append(request)
        fate = self.plan.popleft() if self.plan else None
        if fate:
            writer.write(fate)
            await writer.drain()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        try:
            back.write(request)
            reply = asyncio.create_task(_read_message(there))
            gone = asyncio.create_task(reader.read())
            await asyncio.wait({reply, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if reply.done() and fate is None:
                writer.write(reply.result())
                await writer.drain()
            reply.cancel()
        finally:
            back.close()
            if fate is not None:
                self.lost.set()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + (await reader.readexactly(length) if length else b"")


@asynccontextmanager
async def between(target: str) -> AsyncIterator[Proxy]:
    """A proxy in front of a server."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
