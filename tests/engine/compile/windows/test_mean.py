"""``avg``: the mean of PostgreSQL's function equals that of Python's decimals, also where the last digit is a tie."""

from __future__ import annotations

import random
from decimal import Decimal

import psycopg
import pytest

from tests.engine.oracle import mean


def _sums(count: int) -> list[tuple[Decimal, int]]:
    chance = random.Random(1)
    cases = []
    for _ in range(count):
        # 28 digits and a half divided by two, four or five often ends in a tie at the 29th digit.
        digits = chance.choice([1, 5, 28, 29, 30, 36])
        total = Decimal(chance.randrange(-(10**digits), 10**digits)).scaleb(-chance.randrange(0, 19))
        cases.append((total, chance.choice([1, 2, 4, 5, 8, 3, 7, 1000])))
    return cases


@pytest.mark.parametrize("total", ["-1", "3", "0", "10000000000000000000000000001", "20000000000000000000000000003"])
def test_mean_of_two(database_url: str, total: str) -> None:
    _check(database_url, [(Decimal(total), 2)])


def test_means_equal_those_of_decimals(database_url: str) -> None:
    _check(database_url, _sums(3000))


def _check(url: str, cases: list[tuple[Decimal, int]]) -> None:
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            "SELECT penstock.mean(total, events) FROM unnest(%s::numeric[], %s::bigint[]) WITH ORDINALITY "
            "AS c (total, events, place) ORDER BY place",
            ([total for total, _ in cases], [events for _, events in cases]),
        ).fetchall()
    for (found,), (total, events) in zip(rows, cases, strict=True):
        assert found == mean_of(total, events), (total, events)


def mean_of(total: Decimal, events: int) -> Decimal | None:
    return mean([total, *[Decimal(0)] * (events - 1)])
