"""The partner: somebody else's API that is slow, and wants to be called no faster than was agreed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

_SECONDS = 0.15


@dataclass(slots=True)
class Partner:
    """What was called, and how."""

    url: str = ""
    requests: int = 0
    calls: int = 0
    #: Calls that came a second time, as they may, and were recognised by their ids.
    again: int = 0
    out_of_order: int = 0
    _last: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, set[int]] = field(default_factory=dict)

    def receive(self, body: bytes) -> None:
        """Take a batch of calls."""
        self.requests += 1
        for event in msgspec.json.decode(body)["events"]:
            customer, call = event["data"]["customer"], event["data"]["call"]
            seen = self._seen.setdefault(customer, set())
            if call in seen:
                self.again += 1
                continue
            self.calls += 1
            self.out_of_order += call < self._last.get(customer, 0)
            self._last[customer] = call
            seen.add(call)


@asynccontextmanager
async def partner() -> AsyncIterator[Partner]:
    """A partner on a port of loopback."""
    found = Partner()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                found.receive(await reader.readexactly(_length(head)))
                await asyncio.sleep(_SECONDS)
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address: Any = server.sockets[0].getsockname()
    found.url = f"http://127.0.0.1:{address[1]}/calls"
    try:
        yield found
    finally:
        server.close()


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.split("\r\n"))
    return next(int(value) for name, _, value in lines if name == "content-length")
