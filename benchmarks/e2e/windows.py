"""Checks event-time windows: the expected windows follow from the journal of the load generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import duckdb
import msgspec
import psycopg
import pyarrow as pa

from benchmarks.drain.sink import read_events
from benchmarks.e2e.events import CENTS, CENTS_STEP, KEY_STEP
from benchmarks.engines.jobs import Closing
from benchmarks.engines.results import windows
from benchmarks.freshness.plan import KEYS
from benchmarks.log.checks import Checks
from penstock import Penstock

_EXPECTED = f"""
SELECT 'k' || key, start_ms, count(*), sum(cents)::BIGINT, max(seq) FROM (
    SELECT seq, seq * {KEY_STEP} % {KEYS} AS key, seq * {CENTS_STEP} % {CENTS} AS cents,
        stamp_ms - stamp_ms % $window_ms AS start_ms
    FROM (SELECT stamp_ms, unnest(range(first, last)) AS seq FROM journal))
GROUP BY key, start_ms
"""  # noqa: S608 - constant numbers

Journal = Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """An expected or actual window."""

    key: str
    start_ms: int
    count: int
    total: Decimal
    seq: int
    closed: bool


class _Emitted(msgspec.Struct):
    key: str
    window_start: datetime
    count: int
    total: Decimal
    seq: int


def expected(journal: Journal, closing: Closing) -> list[Window]:
    """Compute the windows after all events with DuckDB.

    A request has events of every key, so its time is the maximum event time of each partition.
    """
    window_ms = closing.window_seconds * 1000
    watermark_ms = max(stamp_ms for _, _, stamp_ms in journal) - closing.lateness_seconds * 1000
    columns = dict(zip(("first", "last", "stamp_ms"), map(list, zip(*journal, strict=True)), strict=True))
    with duckdb.connect() as conn:
        conn.register("journal", pa.table(columns))
        rows = conn.execute(_EXPECTED, {"window_ms": window_ms}).fetchall()
    return [
        Window(key, start_ms, count, Decimal(cents).scaleb(-2), seq, start_ms + window_ms <= watermark_ms)
        for key, start_ms, count, cents, seq in rows
    ]


def problems(expected: Iterable[Window], actual: Iterable[Window]) -> list[str]:
    """Return descriptions of missing, unexpected and repeated windows."""
    found = []
    wanted, present = Counter(expected), Counter(actual)
    for problem, rows in (("missing or wrong", wanted - present), ("unexpected", present - wanted)):
        if rows:
            found.append(f"{rows.total()} windows are {problem}, such as {min(rows)}")
    return found


async def check(name: str, url: str, journal: Journal, closing: Closing, checks: Checks) -> dict[str, int]:
    """Compare live rows and sink queue with the journal. Return the numbers of windows and closed windows."""
    wanted = expected(journal, closing)
    with psycopg.connect(url) as conn:
        rows = conn.execute(windows("penstock", name, "seq").encode()).fetchall()
    checks.expect_none(f"{name}: every window matches the journal", problems(wanted, [Window(*row) for row in rows]))
    closed = [window for window in wanted if window.closed]
    async with Penstock(url) as q:
        emitted = [_window(event) async for event in read_events(q, closing.sink, _Emitted)]
    checks.expect(f"{name}: windows were closed", bool(closed))
    checks.expect_none(f"{name}: the closed windows are in the sink queue, each once", problems(closed, emitted))
    return {"windows": len(wanted), "closed_windows": len(emitted)}


def _window(event: _Emitted) -> Window:
    start_ms = round(event.window_start.timestamp() * 1000)
    return Window(event.key, start_ms, event.count, event.total, event.seq, closed=True)
