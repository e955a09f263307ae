"""Calendar windows of views equal those of an oracle in Python."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from penstock.stream.windows import CALENDAR_MONTHS
from tests.engine.oracle import EPOCH, calendar, micros
from tests.engine.pipelines import Bench
from tests.engine.views.statements import make_views
from tests.engine.views.test_views import create_queues

WINDOWS: list[tuple[Any, ...]] = [
    ("day", "America/Sao_Paulo"),
    ("week", "Europe/Rome"),
    ("month", "UTC"),
    ("month", "Europe/Rome", 17),
    ("month", "Pacific/Apia", 31),
    ("quarter", "UTC", 30, 2),
    ("year", "Asia/Kolkata", 29, 2),
]


def random_times(chance: random.Random, count: int) -> list[datetime]:
    """Times near the boundaries of months, and others."""
    first = datetime(2018, 1, 1, tzinfo=UTC)
    near = [
        datetime(chance.randint(2018, 2028), chance.randint(1, 12), 1, tzinfo=UTC)
        + timedelta(
            days=chance.choice([-2, -1, 0, 16, 28]), microseconds=chance.randint(-50_000_000_000, 50_000_000_000)
        )
        for _ in range(count // 2)
    ]
    return near + [first + timedelta(seconds=chance.randint(0, 300_000_000)) for _ in range(count - len(near))]


def test_calendar_windows_equal_the_oracle(bench: Bench) -> None:
    create_queues(bench)
    times = random_times(random.Random(1), 600)
    orders = [{"id": number, "customer": "ada", "placed": time.isoformat()} for number, time in enumerate(times)]
    bench.push([(None, order) for order in orders])
    columns = []
    for number, window in enumerate(WINDOWS):
        assert window[0] in (*CALENDAR_MONTHS, "day", "week")
        called = f"calendar_window(placed, {', '.join(map(repr, window))})"
        columns += [f"{called}.start AS start_{number}", f"{called}.end AS end_{number}"]
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v AS SELECT id, {', '.join(columns)} FROM orders").values()
    bench.run(stream, "v")
    with psycopg.connect(bench.url) as conn:
        rows = conn.execute("SELECT * FROM penstock_live.v ORDER BY id").fetchall()
    assert len(rows) == len(times)
    for row, time in zip(rows, times, strict=True):
        for number, window in enumerate(WINDOWS):
            ((start, end),) = calendar(*window)(micros(time))
            expected = [EPOCH + timedelta(microseconds=at) for at in (start, end)]
            assert list(row[1 + 2 * number : 3 + 2 * number]) == expected, (window, time)


def test_rows_are_grouped_by_a_calendar_window(bench: Bench) -> None:
    create_queues(bench)
    placed = ["2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z", "2026-02-28T12:00:00Z", "2026-03-30T12:00:00Z"]
    bench.push([(None, {"id": number, "amount": 10**number, "placed": time}) for number, time in enumerate(placed)])
    statement = (
        "CREATE MATERIALIZED VIEW v AS SELECT window.start, window.end, sum(amount) AS total FROM orders "
        "GROUP BY calendar_window(placed, 'month', 'UTC', 31)"
    )
    ((stream, _),) = make_views(statement).values()
    bench.run(stream, "v")
    with psycopg.connect(bench.url) as conn:
        rows = conn.execute('SELECT start::date::text, "end"::date::text, total FROM penstock_live.v ORDER BY 1')
        found = [(start, end, int(total)) for start, end, total in rows]
    assert found == [
        ("2025-12-31", "2026-01-31", 1),
        ("2026-01-31", "2026-02-28", 10),
        ("2026-02-28", "2026-03-31", 1100),
    ]
