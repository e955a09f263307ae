"""Load generator: NDJSON over HTTP on several connections, at a fixed rate or at full speed, in its own process.

After a response of 429 or 503, it waits for the time in the response and retries with the same Idempotency-Key, so that
no event is stored twice. It prints one line of JSON.
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


class LoadSpec(msgspec.Struct, frozen=True):
    """The load. Without a rate, events are pushed at full speed."""

    url: str
    queue: str
    batch: int
    connections: int
    rate: int | None = None
    #: The numbers of the first event and after the last. Without an end, until standard input ends.
    first: int = 0
    end: int | None = None


class Pushed(msgspec.Struct):
    """The result of a run."""

    #: The number after the last event.
    end: int = 0
    requests: int = 0
    #: Responses of 429 or 503.
    refused: int = 0
    #: Number, key and push time of each probe event.
    probes: list[tuple[int, str, float]] = msgspec.field(default_factory=list)
    #: Response time and latency in ms of each request.
    requests_ms: list[tuple[float, float]] = msgspec.field(default_factory=list)
    #: Accepted requests: the first event number, the number after the last, the event time in ms.
    journal: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    #: CPU time of this process.
    cpu_seconds: float = 0.0


class Connection:
    """A connection with one request at a time."""

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
        """Send a body. Return the status, and the seconds to wait before a retry."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        head = f"{self._head}Idempotency-Key: {idempotency_key}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode())
        self._writer.write(body)
        await self._writer.drain()
        head_bytes = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head_bytes[9:12])
        headers = dict(line.lower().split(b": ", 1) for line in head_bytes.split(b"\r\n")[1:] if b": " in line)
        content = await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        if status not in (200, *_BUSY):
            raise RuntimeError(f"a push failed with status {status}: {content.decode(errors='replace')[:500]}")
        if headers.get(b"connection") == b"close":
            self.close()
        return status, float(headers.get(b"retry-after", b"0"))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class Pusher:
    """Pushes batches in order over several connections."""

    def __init__(self, spec: LoadSpec, until: asyncio.Event) -> None:
        self._spec = spec
        self._until = until
        self._next = spec.first
        self._began = time.monotonic()
        self._pushed = Pushed()

    async def run(self) -> Pushed:
        """Push until stopped or until the end."""
        await asyncio.gather(*(self._serve() for _ in range(self._spec.connections)))
        self._pushed.end = self._next
        return self._pushed

    async def _serve(self) -> None:
        spec, connection = self._spec, Connection(self._spec.url, self._spec.queue)
        while not self._until.is_set():
            first = self._next
            last = first + spec.batch if spec.end is None else min(first + spec.batch, spec.end)
            if first == last:
                break
            # Claimed before the wait, so that each number is pushed by exactly one connection.
            self._next = last
            if spec.rate is not None:
                await asyncio.sleep(max(self._began + (last - spec.first) / spec.rate - time.monotonic(), 0))
            await self._push(connection, first, last)
        connection.close()

    async def _push(self, connection: Connection, first: int, last: int) -> None:
        stamp_ms = time.time_ns() // 1_000_000
        body = lines(first, last, stamp_ms)
        began = time.monotonic()
        self._pushed.probes += [(n, f"k{key_of(n)}", began) for n in range(first, last) if key_of(n) in _PROBES]
        while True:
            status, wait = await connection.post(body, f"{self._spec.queue}-{first}")
            if status == 200:
                break
            self._pushed.refused += 1
            await asyncio.sleep(wait)
        now = time.monotonic()
        self._pushed.requests += 1
        self._pushed.requests_ms.append((now, (now - began) * 1000))
        self._pushed.journal.append((first, last, stamp_ms))


async def main() -> None:
    until, spec = asyncio.Event(), msgspec.json.decode(sys.argv[1], type=LoadSpec)
    pushing = asyncio.create_task(Pusher(spec, until).run())
    if spec.end is None:
        reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        await asyncio.wait((pushing, reading), return_when=asyncio.FIRST_COMPLETED)
        until.set()
    pushed = await pushing
    pushed.cpu_seconds = time.process_time()
    sys.stdout.buffer.write(msgspec.json.encode(pushed) + b"\n")


if __name__ == "__main__":
    asyncio.run(main())
