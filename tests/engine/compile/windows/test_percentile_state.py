"""The state of a percentile gives the value of the rank, however it was merged."""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from penstock.engine.compile.windows.aggregate_columns import READ_PERCENTILE

FRACTIONS = (0, 0.07, 0.5, 0.9, 0.99, 1)


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def merge(conn: psycopg.Connection[Any], parts: Sequence[Sequence[float]], start: str | None = None) -> str:
    """Merge the states of the parts in their order, as cycles do."""
    merged = start
    for part in parts:
        statement = f"SELECT penstock.add_values(%s::jsonb, {READ_PERCENTILE.format('%s')})::text"
        values = json.dumps([f"={value + 0.0!r}" for value in part])
        (merged,) = conn.execute(statement.encode(), (merged, values)).fetchone() or (None,)
    assert merged is not None
    return merged


def percentile(conn: psycopg.Connection[Any], counts: str, fraction: float) -> float:
    statement = "SELECT penstock.bucket_percentile(%s::jsonb, %s)"
    (value,) = conn.execute(statement, (counts, fraction)).fetchone() or (math.nan,)
    return float(value)


def at_rank(values: Sequence[float], fraction: float) -> float:
    rank = math.ceil(Decimal(str(fraction)) * len(values))
    return sorted(values)[max(rank, 1) - 1]


def test_up_to_1024_distinct_values_are_exact(conn: psycopg.Connection[Any]) -> None:
    dice = random.Random(36)
    for distinct in (1, 2, 4, 100, 1024):
        pool = [dice.choice((-1, 1)) * 10 ** dice.uniform(-300, 300) for _ in range(distinct)]
        values = [*pool, *dice.choices(pool, k=500)]
        dice.shuffle(values)
        counts = merge(conn, [values[:3], values[3:700], values[700:]])
        (disc,) = conn.execute(
            "SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY v) FROM unnest(%s::double precision[]) AS v", (values,)
        ).fetchone() or (None,)
        assert percentile(conn, counts, 0.9) == disc
        assert [percentile(conn, counts, f) for f in FRACTIONS] == [at_rank(values, f) for f in FRACTIONS]


def test_more_values_are_within_1_percent_and_do_not_depend_on_the_merges(conn: psycopg.Connection[Any]) -> None:
    dice = random.Random(1025)
    values = [dice.choice((-1, 1)) * 10 ** dice.uniform(-300, 308) for _ in range(2000)]
    values += [0.0, -0.0, 1e-200, sys.float_info.max, -sys.float_info.max, sys.float_info.min]
    one = merge(conn, [values])
    several = merge(conn, [values[1500:], values[:10], [], values[10:1100], values[1100:1500]])
    assert json.loads(several) == json.loads(one)
    for fraction in FRACTIONS:
        assert math.isclose(percentile(conn, one, fraction), at_rank(values, fraction), rel_tol=0.01)


def test_numbers_of_every_size_have_buckets(conn: psycopg.Connection[Any]) -> None:
    small = [5e-324, 1e-320, 1e-307, 3e-200, 1e-90, 2e-86]
    values = [*small, *range(1, 1100)]
    counts = merge(conn, [values])
    assert "=1" not in counts
    for rank in range(3, len(small) + 1):
        assert math.isclose(percentile(conn, counts, (rank - 0.5) / len(values)), small[rank - 1], rel_tol=0.01)
    assert percentile(conn, counts, 0) > 0


def test_infinities_keep_their_places(conn: psycopg.Connection[Any]) -> None:
    counts = json.dumps({f"={n}": 1 for n in range(1100)} | {"=Infinity": 500, "=-Infinity": 500, "=NaN": 500})
    (folded,) = conn.execute("SELECT penstock.fold_values(%s::jsonb)::text", (counts,)).fetchone() or ("",)
    assert percentile(conn, folded, 0) == -math.inf
    assert percentile(conn, folded, 0.7) == math.inf
    assert math.isnan(percentile(conn, folded, 1))


def test_a_state_of_release_0_1_goes_on(conn: psycopg.Connection[Any]) -> None:
    """Its buckets are numbered from 10,000; the smallest holds everything below 1e-86."""
    before = [1000.0] * 10 + [-2.5] * 10 + [0.0]

    def bucket(value: float) -> int:
        return int(math.copysign(math.ceil(math.log(abs(value), 1.02)) + 10_000, value)) if value else 0

    counts = json.dumps(Counter(str(bucket(value)) for value in before))
    after = [-2.5, 7.0, 1e-100]
    merged = merge(conn, [after], counts)
    assert merged == merge(conn, [after[1:], after[:1]], counts)
    values = before + after
    for rank in range(1, len(values) + 1):
        fraction = rank / len(values)
        assert math.isclose(percentile(conn, merged, fraction), at_rank(values, fraction), rel_tol=0.0101)
