"""HTTP load generator, in its own process, with little overhead.

``python -m benchmarks.ingest.generator HOST PORT QUEUE BATCH CONNECTIONS SECONDS [EVENTS_PER_SECOND]`` prints one JSON
object: the accepted requests of each body, the latency of each request, and its own CPU time. Each connection sends its
next request after the response to the previous one and, with a rate, not before it is due.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any, cast

import uvloop

from benchmarks.ingest.events import bodies

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ACCEPTED = re.compile(rb'"accepted":(\d+)')


class Connection(asyncio.Protocol):
    """Sends requests one after another."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._buffer = b""
        self._body = 0
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        buffered = self._buffer + data if self._buffer else data
        head = buffered.find(b"\r\n\r\n")
        length = None if head < 0 else _LENGTH.search(buffered, 0, head)
        if length is None or len(buffered) < head + 4 + int(length[1]):
            self._buffer = buffered
            return
        self._buffer = b""
        self._run.record(self._body, buffered, time.perf_counter() - self._sent_at)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._run.lost += 1
            self.done.set_result(None)

    def _next(self) -> None:
        if time.perf_counter() >= self._run.until:
            self.done.set_result(None)
            self._transport.close()
            return
        self._body = self._run.next_body()
        now = time.perf_counter()
        # With a rate, the latency counts from the scheduled time.
        self._sent_at = self._run.due() or now
        if self._sent_at > now:
            asyncio.get_running_loop().call_later(self._sent_at - now, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._transport.write(self._run.requests[self._body])


class Run:
    """One run of a generator."""

    def __init__(self, host: str, port: int, queue: str, batch: int, per_second: float | None) -> None:
        head = (
            f"POST /v1/queues/{queue}/events?key_field=user HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Content-Type: application/x-ndjson\r\nContent-Length: "
        ).encode()
        self.requests = [head + b"%d\r\n\r\n" % len(text) + text for text in bodies(batch)]
        self.batch = batch
        #: Seconds between requests, over all connections.
        self._interval = 0.0 if per_second is None else batch / per_second
        self._due = 0.0
        self.until = 0.0
        self.lost = 0
        self.refused: dict[str, int] = {}
        self.accepted = [0] * len(self.requests)
        self.seconds: list[float] = []
        self._body = 0

    def next_body(self) -> int:
        """Return the index of the next body."""
        self._body = (self._body + 1) % len(self.requests)
        return self._body

    def due(self) -> float:
        """Return the scheduled time of the next request, or 0 without a rate."""
        if self._interval == 0.0:
            return 0.0
        self._due = (self._due or time.perf_counter()) + self._interval
        return self._due

    def record(self, body: int, response: bytes, seconds: float) -> None:
        """Record a response."""
        self.seconds.append(seconds)
        accepted = _ACCEPTED.search(response)
        if response.startswith(b"HTTP/1.1 200") and accepted is not None and int(accepted[1]) == self.batch:
            self.accepted[body] += 1
        else:
            status = response[9:12].decode("latin-1")
            self.refused[status] = self.refused.get(status, 0) + 1


async def _drive(
    host: str, port: int, queue: str, batch: int, connections: int, seconds: float, per_second: float | None
) -> dict[str, Any]:
    run = Run(host, port, queue, batch, per_second)
    # The bodies are generated. The measured time starts here.
    print("begin", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    cpu, began = time.process_time(), time.perf_counter()
    run.until = began + seconds
    connected = [await loop.create_connection(lambda: Connection(run), host, port) for _ in range(connections)]
    await asyncio.gather(*(connection.done for _, connection in connected))
    took = time.perf_counter() - began
    return {
        "seconds": took,
        "cpu": time.process_time() - cpu,
        "accepted": run.accepted,
        "latencies": run.seconds,
        "refused": run.refused,
        "lost": run.lost,
    }


def main() -> None:
    host, port, queue, batch, connections, seconds, *rate = sys.argv[1:]
    per_second = float(rate[0]) if rate else None
    result = uvloop.run(_drive(host, int(port), queue, int(batch), int(connections), float(seconds), per_second))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
