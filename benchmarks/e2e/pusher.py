"""The pusher: NDJSON over HTTP on a few connections, at a fixed rate or as fast as it is taken.

Its own process. A request that is answered with 429 or 503 is sent again when the answer says; with the same
Idempotency-Key, so that nothing is stored twice. It answers with one line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import urlsplit

import msgspec

from benchmarks.e2e.events import key_of, lines
from benchmarks.freshness.plan import PROBES

_PROBES = frozenset(int(name[1:]) for name in PROBES)
_BUSY = (429, 503)


class Order(msgspec.Struct, frozen=True):
    """The load of a pusher. Without a rate, it pushes at full speed."""

    url: str
    queue: str
    batch: int
    connections: int
    rate: int | None = None
    #: The number of the first event, and of the one after the last; without, until standard input ends.
    first: int = 0
    end: int | None = None


class Pushed(msgspec.Struct):
    """The events pushed."""

    #: The number after the last.
    end: int = 0
    requests: int = 0
    #: How often the server said that it has too much.
    refused: int = 0
    #: Number, key and time of push, of events of the probes.
    probes: list[tuple[int, str, float]] = msgspec.field(default_factory=list)
    #: When each request was answered, and how many milliseconds it took.
    answered: list[tuple[float, float]] = msgspec.field(default_factory=list)
    #: What was answered with success: the first number of each request, the one after its last, the time in its events.
    journal: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    #: CPU time of this process, which nobody can ask when it has ended.
    cpu_seconds: float = 0.0


class Connection:
    """One connection, one request at a time."""

    def __init__(self, url: str, queue: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = (
            f"POST /v1/queues/{queue}/events?key_field=key HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/x-ndjson\r\n"
        )
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, body: bytes, idempotency_key: str) -> tuple[int, float]:
        """Send a body; answers the status, and how many seconds to wait if it is to be sent again."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        head = f"{self._head}Idempotency-Key: {idempotency_key}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode())
        self._writer.write(body)
        await self._writer.drain()
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        headers = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:] if b": " in line)
        said = await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        if status not in (200, *_BUSY):
            raise RuntimeError(f"a push was answered with {status}: {said.decode(errors='replace')[:500]}")
        if headers.get(b"connection") == b"close":
            self.close()
        return status, float(headers.get(b"retry-after", b"0"))

    def close(self) -> None:
        """Let go of it."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class Pusher:
    """Pushes batches, in the order of their numbers, over several connections."""

    def __init__(self, order: Order, until: asyncio.Event) -> None:
        self._order = order
        self._until = until
        self._next = order.first
        self._began = time.monotonic()
        self._pushed = Pushed()

    async def run(self) -> Pushed:
        """Push until told to stop, or until all is pushed."""
        await asyncio.gather(*(self._serve() for _ in range(self._order.connections)))
        self._pushed.end = self._next
        return self._pushed

    async def _serve(self) -> None:
        order, connection = self._order, Connection(self._order.url, self._order.queue)
        while not self._until.is_set():
            first = self._next
            last = first + order.batch if order.end is None else min(first + order.batch, order.end)
            if first == last:
                break
            # Taken before waiting: every number is pushed by one connection, and none is left out.
            self._next = last
            if order.rate is not None:
                await asyncio.sleep(max(self._began + (last - order.first) / order.rate - time.monotonic(), 0))
            await self._push(connection, first, last)
        connection.close()

    async def _push(self, connection: Connection, first: int, last: int) -> None:
        stamp_ms = time.time_ns() // 1_000_000
        body = lines(first, last, stamp_ms)
        began = time.monotonic()
        self._pushed.probes += [(n, f"k{key_of(n)}", began) for n in range(first, last) if key_of(n) in _PROBES]
        while True:
            status, wait = await connection.post(body, f"{self._order.queue}-{first}")
            if status == 200:
                break
            self._pushed.refused += 1
            await asyncio.sleep(wait)
        now = time.monotonic()
        self._pushed.requests += 1
        self._pushed.answered.append((now, (now - began) * 1000))
        self._pushed.journal.append((first, last, stamp_ms))


async def main() -> None:
    """Push as the argument says."""
    until, order = asyncio.Event(), msgspec.json.decode(sys.argv[1], type=Order)
    pushing = asyncio.create_task(Pusher(order, until).run())
    if order.end is None:
        reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        await asyncio.wait((pushing, reading), return_when=asyncio.FIRST_COMPLETED)
        until.set()
    pushed = await pushing
    pushed.cpu_seconds = time.process_time()
    sys.stdout.buffer.write(msgspec.json.encode(pushed) + b"\n")


if __name__ == "__main__":
    asyncio.run(main())
