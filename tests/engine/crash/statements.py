"""A file of statements for the crash tests: windows, sessions and a join, with their input and DuckDB's results."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Self

import duckdb

from penstock import SyncPenstock
from tests.engine.crash.orders import ask, eventually
from tests.engine.test_statements import asked, rows

PARTITIONS = 2
KEYS = 8

FILE = """
CREATE QUEUE orders (n int, customer string, amount decimal(18,2), ts string);
CREATE QUEUE payments (n int, customer string, ts string);

CREATE QUERY totals WITH (allowed_lateness_seconds = 5, idle_flush_seconds = 86400, max_events_per_cycle = 60)
AS INSERT INTO totals
SELECT customer, window(ts, '5 seconds') AS w, count(*) AS n, sum(amount) AS total, sum(amount) / count(*) AS mean
FROM orders GROUP BY customer, window(ts, '5 seconds') HAVING count(*) > 1;

CREATE QUERY visits WITH (allowed_lateness_seconds = 5, idle_flush_seconds = 86400, max_events_per_cycle = 60)
AS INSERT INTO visits
SELECT customer, session_window(ts, '1 second') AS w, count(*) AS n, sum(amount) AS total
FROM orders GROUP BY customer, session_window(ts, '1 second');

CREATE QUERY paid WITH (allowed_lateness_seconds = 5, idle_flush_seconds = 86400, max_events_per_cycle = 60)
AS INSERT INTO paid
SELECT o.n, p.n AS payment FROM orders o LEFT JOIN payments p
ON p.customer = o.customer AND p.ts BETWEEN o.ts - INTERVAL '1 second' AND o.ts + INTERVAL '3 seconds';
"""
ASKED = {
    "totals": """
        SELECT customer, {'start': s, 'end': s + INTERVAL 5 seconds} AS w, count(*) AS n, sum(amount) AS total,
               sum(amount) / count(*) AS mean
        FROM (SELECT *, time_bucket(INTERVAL 5 seconds, ts) AS s FROM orders)
        GROUP BY customer, s HAVING count(*) > 1
        """,
    "visits": """
        SELECT customer, {'start': min(ts), 'end': max(ts) + INTERVAL 1 second} AS w, count(*) AS n,
               sum(amount) AS total
        FROM (SELECT *, sum(is_first) OVER (PARTITION BY customer ORDER BY ts) AS visit
              FROM (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY customer ORDER BY ts) < INTERVAL 1 second
                                   THEN 0 ELSE 1 END AS is_first FROM orders))
        GROUP BY customer, visit
        """,
    "paid": """
        SELECT o.n, p.n AS payment FROM orders o LEFT JOIN payments p
        ON p.customer = o.customer AND p.ts BETWEEN o.ts - INTERVAL 1 second AND o.ts + INTERVAL 3 seconds
        """,
}

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(milliseconds=100)


class Shop:
    """The queues of the file, and an account of what was pushed to them."""

    def __init__(self, url: str, *, seed: int) -> None:
        self.url = url
        self._pushed: dict[str, list[dict[str, Any]]] = {"orders": [], "payments": []}
        self._chance = random.Random(seed)
        self._at = _BEGINNING
        self._client = SyncPenstock(url)

    def __enter__(self) -> Self:
        self._client.open()
        for queue in self._pushed:
            self._client.queue(queue).create(partitioning="hash", partitions=PARTITIONS)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def push(self, events: int) -> None:
        """Orders and payments, a little out of order."""
        for queue, some in self._pushed.items():
            made = [self._event(len(some) + place, place) for place in range(events)]
            self._push(queue, made)
            some += made
        self._at += events * _STEP

    def check(self) -> None:
        """Push what ends all that came before, wait until as much is there as has to be, and compare."""
        self._push_last_window()
        conn = self._duck()
        for queue, question in ASKED.items():
            expected = asked(conn, question)
            eventually(lambda q=queue, e=expected: len(self._sent(q)) >= len(e), what=queue)  # type: ignore[misc]
            assert rows(self._sent(queue)) == expected, queue
        assert ask(self.url, "SELECT count(*) FROM penstock.dead_letters") == 0

    def _event(self, number: int, place: int) -> dict[str, Any]:
        at = self._at + place * _STEP + timedelta(seconds=self._chance.random() * 2)
        customer = f"customer {self._chance.randrange(KEYS)}"
        amount = self._chance.randrange(1, 10_000) / 100
        return {"n": number, "customer": customer, "amount": amount, "ts": at.isoformat()}

    def _push_last_window(self) -> None:
        """Events in all partitions, so much later that nothing waits for what came before."""
        at = (self._at + timedelta(hours=1)).isoformat()
        for queue in self._pushed:
            some = [{"n": -1, "customer": f"last of {queue} {i}", "amount": 1, "ts": at} for i in range(64)]
            self._push(queue, some)

    def _push(self, queue: str, events: list[dict[str, Any]]) -> None:
        self._client.queue(queue).push([{"key": event["customer"], "data": event} for event in events])

    def _duck(self) -> duckdb.DuckDBPyConnection:
        conn = duckdb.connect()
        conn.execute("SET TimeZone = 'UTC'")
        for queue, some in self._pushed.items():
            conn.execute(f"CREATE TABLE {queue} (n integer, customer text, amount decimal(18, 2), ts timestamptz)")
            conn.executemany(f"INSERT INTO {queue} VALUES (?, ?, ?, ?)", [list(e.values()) for e in some])  # noqa: S608
        return conn

    def _sent(self, queue: str) -> list[dict[str, Any]]:
        events = self._client.queue(queue).browse(limit=100_000)
        return [json.loads(event.raw, parse_float=Decimal) for event in events]
