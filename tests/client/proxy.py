"""A proxy between a client and a server that loses or replaces responses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

#: The server executes the request, and its response is lost.
LOSE_RESPONSE = b""


def response(status: str, headers: str = "", body: str = "") -> bytes:
    """Return a response that the proxy sends instead of the server."""
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


class Proxy:
    """Forwards requests, one per connection, except those with a planned response."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self.url = ""
        #: What happens to the next requests: LOSE_RESPONSE, or the response to send.
        self.plan: deque[bytes] = deque()
        #: All requests.
        self.requests: list[bytes] = []
        self.lost = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._forward(reader, writer)
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read_message(reader)
        self.requests.append(request)
        planned = self.plan.popleft() if self.plan else None
        if planned:
            writer.write(planned)
            await writer.drain()
            return
        server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        try:
            server_writer.write(request)
            reply = asyncio.create_task(_read_message(server_reader))
            disconnected = asyncio.create_task(reader.read())
            await asyncio.wait({reply, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            disconnected.cancel()
            if reply.done() and planned is None:
                writer.write(reply.result())
                await writer.drain()
            reply.cancel()
        finally:
            server_writer.close()
            if planned is not None:
                self.lost.set()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + (await reader.readexactly(length) if length else b"")


@asynccontextmanager
async def run_proxy(target: str) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a server."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
