"""Plans statements and compares their rows with those of DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import duckdb
import sqlglot

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.select.planner import plan_select
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_dialect import ViewSql
from penstock.stream.views.view_plan import Operator, Project, output_columns, walk
from tests.stream.views.duckdb_plans import MACROS, plan_sql

#: Tables with few values, so that rows match, repeat and tie. The column id is unique.
TABLES = {name: ("id", "k", "x", "y", "s") for name in ("t", "u", "v")}
#: A table with the same columns, which are not declared.
REFERENCE = "r"


def plan(text: str, catalog: ViewCatalog | None = None) -> Operator:
    source = SqlSource(text, dialect=ViewSql)
    known = ViewCatalog(queues=TABLES, references=frozenset((REFERENCE,)))
    return plan_select(source, source.parse(source.tokenize()), catalog or known)


@lru_cache
def random_tables(seed: int) -> duckdb.DuckDBPyConnection:
    """Return a database with random rows in all tables. Some are empty."""
    chance = random.Random(seed)
    database = connect()
    for name in (*TABLES, REFERENCE):
        database.execute(f"CREATE TABLE {name} (id integer, k integer, x integer, y integer, s varchar)")
        rows = [
            [number, *(chance.choice((None, *range(5))) for _ in range(3)), chance.choice((None, "", "a", "b", "ab"))]
            for number in range(chance.choice((0, 3, 20, 30)))
        ]
        if rows:
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", rows)  # noqa: S608
    return database


def connect() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"threads": 1})
    database.execute("SET TimeZone = 'UTC'")
    database.execute(MACROS)
    return database


def check_plan(root: Operator) -> None:
    """Check what holds for every plan."""
    assert isinstance(root, Project)
    for operator in walk(root):
        names = [name.lower() for name in output_columns(operator)]
        assert len(set(names)) == len(names)


def check_rows(database: duckdb.DuckDBPyConnection, root: Operator, expected: str) -> None:
    """Check that a plan has the rows and the columns of a query of DuckDB."""
    check_plan(root)
    actual = database.execute(plan_sql(root))
    names = [column[0] for column in actual.description or []]
    rows = actual.fetchall()
    wanted = database.execute(expected)
    assert names == [column[0] for column in wanted.description or []]
    assert count_rows(rows) == count_rows(wanted.fetchall())


def count_rows(rows: list[Any]) -> Mapping[Any, int]:
    return Counter(tuple(map(_comparable, row)) for row in rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return round(float(value), 6)


def duckdb_statement(text: str) -> str:
    """Translate a statement of Spark."""
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]
