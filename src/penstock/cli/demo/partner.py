"""A slow partner API on a loopback port. It counts calls that are repeated, out of order or over the agreed rate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

_RESPONSE_SECONDS = 0.15
#: The agreed rate per customer, as in the gate of examples/analytics/streams.py.
_CAPACITY, _CALLS_PER_SECOND = 20.0, 10.0
#: The gate decides a moment before it appends what it lets through. This allows one call for that.
_TOLERANCE = 1.0


@dataclass(slots=True)
class _Customer:
    seen: set[int] = field(default_factory=set)
    last_call: int = 0
    tokens: float = _CAPACITY
    released_at: float = 0.0

    def exceeds_rate(self, released_at: float) -> bool:
        """Return whether the gate let a call through earlier than the token bucket allows."""
        refill = max(0.0, released_at - self.released_at) * _CALLS_PER_SECOND
        self.tokens = min(_CAPACITY, self.tokens + refill) - 1
        self.released_at = max(released_at, self.released_at)
        return self.tokens < -_TOLERANCE


@dataclass(slots=True)
class Partner:
    """The calls that were received."""

    url: str = ""
    calls: int = 0
    out_of_order: int = 0
    too_soon: int = 0
    _customers: dict[str, _Customer] = field(default_factory=dict)

    def receive(self, body: bytes) -> None:
        """Count the calls of a request. Repeated calls, which webhooks may send, are recognized by their number."""
        for event in msgspec.json.decode(body)["events"]:
            customer, call = self._customers.setdefault(event["data"]["customer"], _Customer()), event["data"]["call"]
            if call in customer.seen:
                continue
            customer.seen.add(call)
            self.calls += 1
            self.out_of_order += call < customer.last_call
            customer.last_call = call
            self.too_soon += customer.exceeds_rate(datetime.fromisoformat(event["time"]).timestamp())


@asynccontextmanager
async def run_partner() -> AsyncIterator[Partner]:
    """Serve the partner API inside the block."""
    partner = Partner()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = head.partition("content-length:")[2].partition("\r\n")[0]
                partner.receive(await reader.readexactly(int(length)))
                await asyncio.sleep(_RESPONSE_SECONDS)
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    partner.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/calls"
    try:
        yield partner
    finally:
        server.close()
