"""Oracle: the Nexmark queries in DuckDB, over all events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.generator import NexmarkEvent

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
#: The queries of the file that form each Nexmark query, in order.
PARTS: dict[str, tuple[str, ...]] = {
    "q0": ("q0",),
    "q1": ("q1",),
    "q2": ("q2",),
    "q3": ("q3",),
    "q4": ("q4_bids", "q4_closing", "q4"),
    "q5": ("q5_counts", "q5_most", "q5"),
    "q7": ("q7_most", "q7"),
    "q8": ("q8_persons", "q8_sellers", "q8"),
    "q11": ("q11",),
    "q12": ("q12",),
}
_COLUMNS = {
    "person": "id, name, city, state, dateTime::timestamptz",
    "auction": "id, dateTime::timestamptz, expires::timestamptz, seller, category",
    "bid": "auction, bidder, price, dateTime::timestamptz, dateTime, appended",
}
QUERIES: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time_text AS dateTime FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time_text AS dateTime FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, avg(final) AS average, minute FROM (
            SELECT a.id, a.category, max(b.price) AS final,
                   time_bucket(INTERVAL '1 minute',
                               time_bucket(INTERVAL '10 seconds', a.expires) + INTERVAL '10 seconds') AS minute
            FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
            GROUP BY a.id, a.category, a.expires
        ) GROUP BY category, minute
    """,
    "q5": """
        WITH counts AS (
            SELECT auction, count(*) AS num, ends FROM (
                SELECT auction, unnest(range(time_bucket(INTERVAL '2 seconds', ts) + INTERVAL '2 seconds',
                                             time_bucket(INTERVAL '2 seconds', ts) + INTERVAL '12 seconds',
                                             INTERVAL '2 seconds')) AS ends FROM bid
            ) GROUP BY auction, ends
        )
        SELECT auction, num, ends FROM counts c WHERE num = (SELECT max(num) FROM counts m WHERE m.ends = c.ends)
    """,
    "q7": """
        SELECT auction, price, bidder, date_time_text AS dateTime FROM bid b WHERE price = (
            SELECT max(price) FROM bid m
            WHERE time_bucket(INTERVAL '10 seconds', m.ts) = time_bucket(INTERVAL '10 seconds', b.ts)
        )
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL '10 seconds', p.ts) AS starts FROM person p
        JOIN auction a ON p.id = a.seller
            AND time_bucket(INTERVAL '10 seconds', p.ts) = time_bucket(INTERVAL '10 seconds', a.ts)
    """,
    "q11": """
        SELECT bidder, count(*) AS bid_count, min(ts) AS starts, max(ts) + INTERVAL '10 seconds' AS ends FROM (
            SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY ts ROWS UNBOUNDED PRECEDING) AS series FROM (
                SELECT bidder, ts, CASE WHEN ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts) < INTERVAL '10 seconds'
                                        THEN 0 ELSE 1 END AS begins FROM bid
            )
        ) GROUP BY bidder, series
    """,
    "q12": """
        SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL '10 seconds', appended) AS starts,
               time_bucket(INTERVAL '10 seconds', appended) + INTERVAL '10 seconds' AS ends FROM bid GROUP BY ALL
    """,
}


def expected_results(events: Iterable[NexmarkEvent], appended: Mapping[str, list[datetime]], query: str) -> list[Any]:
    """Compute the results of a query with DuckDB. ``appended`` has the append times in the order of ``events``."""
    conn = duckdb.connect()
    conn.execute("SET TimeZone = 'UTC'")
    conn.execute("CREATE TABLE person (id bigint, name text, city text, state text, ts timestamptz)")
    conn.execute(
        "CREATE TABLE auction (id bigint, ts timestamptz, expires timestamptz, seller bigint, category bigint)"
    )
    conn.execute(
        "CREATE TABLE bid "
        "(auction bigint, bidder bigint, price bigint, ts timestamptz, date_time_text text, appended timestamptz)"
    )
    rows: dict[str, list[dict[str, Any]]] = {"person": [], "auction": [], "bid": []}
    for event in events:
        rows[event.queue].append(event.data)
    for index, bid in enumerate(rows["bid"]):
        rows["bid"][index] = {**bid, "appended": appended["bid"][index] if appended else None}
    for table, columns in _COLUMNS.items():
        conn.register("new_rows", pa.Table.from_pylist(rows[table]))
        conn.execute(f"INSERT INTO {table} SELECT {columns} FROM new_rows")  # noqa: S608 - constant names
        conn.unregister("new_rows")
    cursor = conn.execute(QUERIES[query])
    names = [column[0] for column in cursor.description or []]
    return comparable(dict(zip(names, row, strict=True)) for row in cursor.fetchall())


def comparable(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return sorted rows with normalized values, to compare results of different systems."""
    return sorted(json.dumps({name: _normalize(value) for name, value in row.items()}, sort_keys=True) for row in rows)


def _normalize(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, str) and _ISO.fullmatch(value):
        return datetime.fromisoformat(value).astimezone(UTC).isoformat()
    if isinstance(value, Decimal | float | int):
        return round(float(value), 6)
    return value
