"""The partner: somebody else's API that is slow, and wants to be called no faster than was agreed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

_SECONDS = 0.15
#: What was agreed for each customer, as the gate in examples/analytics/streams.py has it.
CALLS_AT_ONCE, CALLS_PER_SECOND = 20.0, 10.0
#: Between a decision of the gate and the append of what it let through lies a moment: as much as one call.
_TOLERANCE = 1.0


@dataclass(slots=True)
class _Agreement:
    """A customer's calls by the time at which the gate let each go, against what was agreed."""

    left: float = CALLS_AT_ONCE
    at: float = 0.0

    def is_kept(self, at: float) -> bool:
        self.left = min(CALLS_AT_ONCE, self.left + max(0.0, at - self.at) * CALLS_PER_SECOND) - 1
        self.at = max(at, self.at)
        return self.left >= -_TOLERANCE


@dataclass(slots=True)
class Partner:
    """What was called, and how."""

    url: str = ""
    requests: int = 0
    calls: int = 0
    #: Calls that came a second time, as they may, and were recognised by their ids.
    again: int = 0
    out_of_order: int = 0
    #: Calls that were let go sooner than was agreed.
    too_soon: int = 0
    _agreed: dict[str, _Agreement] = field(default_factory=dict)
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
            released = datetime.fromisoformat(event["time"]).timestamp()
            self.too_soon += not self._agreed.setdefault(customer, _Agreement()).is_kept(released)
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
