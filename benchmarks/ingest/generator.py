"""The load generator, a process of its own: as little between it and the sockets as can be.

``python -m benchmarks.ingest.generator HOST PORT QUEUE BATCH CONNECTIONS SECONDS [EVENTS_PER_SECOND]`` prints one JSON
object: how often each body was accepted, how long each request took, and its own CPU time. Each connection sends its
next request when the one before is answered; with a rate, not before it is due.
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
    """Sends, waits for the answer, sends again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._held = b""
        self._body = 0
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        held = self._held + data if self._held else data
        head = held.find(b"\r\n\r\n")
        found = None if head < 0 else _LENGTH.search(held, 0, head)
        if found is None or len(held) < head + 4 + int(found[1]):
            self._held = held
            return
        self._held = b""
        self._run.answered(self._body, held, time.perf_counter() - self._sent_at)
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
        self._body = self._run.turn()
        now = time.perf_counter()
        # With a rate, a request that could not be sent when it was due took as much longer.
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
        #: From one request to the next, of all connections together.
        self._apart = 0.0 if per_second is None else batch / per_second
        self._due = 0.0
        self.until = 0.0
        self.lost = 0
        self.refused: dict[str, int] = {}
        self.accepted = [0] * len(self.requests)
        self.seconds: list[float] = []
        self._turn = 0

    def turn(self) -> int:
        """Which body is next."""
        self._turn = (self._turn + 1) % len(self.requests)
        return self._turn

    def due(self) -> float:
        """When the next request is to be sent; without a rate, 0."""
        if self._apart == 0.0:
            return 0.0
        self._due = (self._due or time.perf_counter()) + self._apart
        return self._due

    def answered(self, body: int, answer: bytes, seconds: float) -> None:
        """Take note of an answer."""
        self.seconds.append(seconds)
        found = _ACCEPTED.search(answer)
        if answer.startswith(b"HTTP/1.1 200") and found is not None and int(found[1]) == self.batch:
            self.accepted[body] += 1
        else:
            status = answer[9:12].decode("latin-1")
            self.refused[status] = self.refused.get(status, 0) + 1


async def _drive(
    host: str, port: int, queue: str, batch: int, connections: int, seconds: float, per_second: float | None
) -> dict[str, Any]:
    run = Run(host, port, queue, batch, per_second)
    # Bodies are made: what is spent from now on is spent on the load.
    print("begin", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    cpu, began = time.process_time(), time.perf_counter()
    run.until = began + seconds
    made = [await loop.create_connection(lambda: Connection(run), host, port) for _ in range(connections)]
    await asyncio.gather(*(connection.done for _, connection in made))
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
