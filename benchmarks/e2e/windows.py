"""The windows of a day: what each holds by the pusher's own journal, and whether it is there, closed ones once."""

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

from benchmarks.drain.sink import everything
from benchmarks.e2e.events import CENTS, CENTS_STEP, KEY_STEP
from benchmarks.engines.jobs import Closing
from benchmarks.engines.results import windows
from benchmarks.freshness.plan import KEYS
from benchmarks.log.checks import Checks
from penstock import Penstock

_ANSWER = f"""
SELECT 'k' || key, start_ms, count(*), sum(cents)::BIGINT, max(seq) FROM (
    SELECT seq, seq * {KEY_STEP} % {KEYS} AS key, seq * {CENTS_STEP} % {CENTS} AS cents,
        stamp_ms - stamp_ms % $window_ms AS start_ms
    FROM (SELECT stamp_ms, unnest(range(first, last)) AS seq FROM journal))
GROUP BY key, start_ms
"""  # noqa: S608 - numbers of our own

Journal = Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A row that is expected or that was found."""

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
    """What there must be once everything was counted, as DuckDB says.

    A request holds events of every key, so the latest of them is how far time has come in each partition.
    """
    window_ms = closing.window_seconds * 1000
    reached_ms = max(stamp_ms for _, _, stamp_ms in journal) - closing.lateness_seconds * 1000
    columns = dict(zip(("first", "last", "stamp_ms"), map(list, zip(*journal, strict=True)), strict=True))
    with duckdb.connect() as conn:
        conn.register("journal", pa.table(columns))
        rows = conn.execute(_ANSWER, {"window_ms": window_ms}).fetchall()
    return [
        Window(key, start_ms, count, Decimal(cents).scaleb(-2), seq, start_ms + window_ms <= reached_ms)
        for key, start_ms, count, cents, seq in rows
    ]


def problems(wanted: Iterable[Window], found: Iterable[Window]) -> list[str]:
    """Return the rows that are missing, unexpected or repeated."""
    said = []
    left, there = Counter(wanted), Counter(found)
    for what, some in (("missing or wrong", left - there), ("there that should not be so", there - left)):
        if some:
            said.append(f"{some.total()} windows are {what}, such as {min(some)}")
    return said


async def check(name: str, url: str, journal: Journal, closing: Closing, checks: Checks) -> dict[str, int]:
    """Hold rows and sink queue against the journal; answers how many windows there are, and how many are closed."""
    wanted = expected(journal, closing)
    with psycopg.connect(url) as conn:
        rows = conn.execute(windows("penstock", name, "seq").encode()).fetchall()
    checks.expect_none(f"{name}: every window is the journal's", problems(wanted, [Window(*row) for row in rows]))
    closed = [window for window in wanted if window.closed]
    async with Penstock(url) as q:
        emitted = [_row(said) async for said in everything(q, closing.sink, _Emitted)]
    checks.expect(f"{name}: windows were closed", bool(closed))
    checks.expect_none(f"{name}: the closed windows are in the sink queue, each once", problems(closed, emitted))
    return {"windows": len(wanted), "closed_windows": len(emitted)}


def _row(said: _Emitted) -> Window:
    start_ms = round(said.window_start.timestamp() * 1000)
    return Window(said.key, start_ms, said.count, said.total, said.seq, closed=True)
