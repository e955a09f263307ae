"""Events that are derived from their number, so that they can be checked without being stored."""

from __future__ import annotations

from decimal import Decimal

import duckdb

from benchmarks.freshness.plan import KEYS

#: The steps are coprime to the moduli, so that keys and amounts are evenly distributed.
KEY_STEP, CENTS_STEP, CENTS = 7_919, 104_729, 100_000

_LINE = b'{"key":"k%d","seq":%d,"amount":%d.%02d,"ts":%d,"page":"/products/%d","agent":"web"}\n'


def key_of(seq: int) -> int:
    """Return the key number of an event."""
    return seq * KEY_STEP % KEYS


def lines(first: int, last: int, stamp_ms: int) -> bytes:
    """Return events as NDJSON, about 90 bytes each."""
    parts = []
    for seq in range(first, last):
        cents = seq * CENTS_STEP % CENTS
        parts.append(_LINE % (seq * KEY_STEP % KEYS, seq, cents // 100, cents % 100, stamp_ms, cents % 997))
    return b"".join(parts)


def expected(events: int) -> dict[str, tuple[int, Decimal]]:
    """Compute count and total of each key with DuckDB."""
    query = f"""
        SELECT 'k' || (seq * {KEY_STEP} % {KEYS}), count(*), sum(seq * {CENTS_STEP} % {CENTS})::BIGINT
        FROM range({events}) AS numbers(seq) GROUP BY 1
    """  # noqa: S608 - constant numbers
    with duckdb.connect() as conn:
        rows = conn.execute(query).fetchall()
    return {key: (count, Decimal(cents).scaleb(-2)) for key, count, cents in rows}
