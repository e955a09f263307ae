"""The queries of Nexmark, each as one view."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import duckdb
import pytest

from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_plan import Join, TopN, walk
from tests.stream.views.nexmark_statements import DUCKDB, VIEWS
from tests.stream.views.statements import check_rows, connect, duckdb_statement, plan

TABLES = {
    "person": "number bigint, id bigint, name varchar, city varchar, state varchar, dateTime timestamp",
    "auction": "number bigint, id bigint, itemName varchar, dateTime timestamp, expires timestamp, seller bigint, "
    "category bigint",
    "bid": "number bigint, auction bigint, bidder bigint, price bigint, channel varchar, url varchar, "
    "dateTime timestamp, extra varchar, _time timestamp",
    "side_input": "key bigint, value varchar",
}
COLUMNS = {name: tuple(part.split()[0] for part in columns.split(", ")) for name, columns in TABLES.items()}
CATALOG = ViewCatalog(queues=COLUMNS)
START = datetime(2026, 1, 1, 5, 59)


@lru_cache
def random_events(seed: int) -> duckdb.DuckDBPyConnection:
    """Return a database with few persons and auctions, so that bids compete, tie and miss values."""
    chance = random.Random(seed)
    database = connect()

    def sometimes(value: Any) -> Any:
        return value if chance.random() < 0.95 else None

    def at(seconds: int) -> datetime:
        return START + timedelta(milliseconds=chance.randrange(seconds * 1000))

    def url() -> str:
        ending = chance.choice(("", "&channel_id=7", "?channel_id=8&channel_id="))
        return f"https://a.com/{chance.choice('ab')}/{chance.choice('cd')}/item.htm{ending}"

    rows: dict[str, list[list[Any]]] = {name: [] for name in TABLES}
    for number in range(8):
        state = sometimes(chance.choice(("OR", "CA", "WA")))
        rows["person"].append([number, sometimes(number), f"n{number % 3}", "city", state, sometimes(at(60))])
    for number in range(12):
        start = at(60)
        end = start + timedelta(seconds=chance.randrange(1, 40))
        seller, category = sometimes(chance.randrange(8)), sometimes(chance.randrange(10, 12))
        rows["auction"].append([number, sometimes(number * 41), "item", sometimes(start), end, seller, category])
    for number in range(150):
        price = sometimes(chance.choice((5, 50, 500, 5000, 50000)))
        values = [sometimes(chance.randrange(12) * 41), sometimes(chance.randrange(8)), price]
        values += [chance.choice(("Apple", "google", "other", None)), sometimes(url()), sometimes(at(110))]
        rows["bid"].append([number, *values, chance.choice((None, "", "abcc", "c")), at(60)])
    rows["side_input"] = [[number, f"v{number}"] for number in range(7)]
    for name, columns in TABLES.items():
        database.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" for _ in COLUMNS[name])
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])  # noqa: S608
    return database


@pytest.mark.parametrize("name", VIEWS)
def test_rows_equal_duckdb(name: str) -> None:
    root = plan(VIEWS[name], CATALOG)
    for seed in range(4):
        check_rows(random_events(seed), root, DUCKDB.get(name) or duckdb_statement(VIEWS[name]))


@pytest.mark.parametrize("name", VIEWS)
def test_every_join_has_keys(name: str) -> None:
    joins = [operator for operator in walk(plan(VIEWS[name], CATALOG)) if isinstance(operator, Join)]
    assert all(join.left_keys for join in joins)


@pytest.mark.parametrize(("name", "limit", "has_rank"), [("q9", 1, False), ("q18", 1, False), ("q19", 10, True)])
def test_row_numbers_are_the_first_rows(name: str, limit: int, has_rank: bool) -> None:
    (top_n,) = [operator for operator in walk(plan(VIEWS[name], CATALOG)) if isinstance(operator, TopN)]
    assert (top_n.limit, top_n.rank_name is not None) == (limit, has_rank)
