"""Windows of time and the elements of arrays: rows that a source has more than once."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

import duckdb
import pytest

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_dialect import ViewSql
from penstock.stream.views.view_plan import Explode, QueueSource, SourceColumn, ViewSource, walk
from tests.stream.views.statements import check_rows, connect, plan

CATALOG = ViewCatalog(
    queues={"events": ("id", "ts", "n", "items", "counts"), "others": ("id", "ts", "n")},
    views={"totals": ("k", "total")},
)
#: The events with the windows that contain them: of ten seconds, every ten and every three seconds.
VIEWS = """
    CREATE VIEW tumbling AS
    SELECT *, time_bucket(INTERVAL '10 seconds', ts, TIMESTAMP '1970-01-01') AS starts FROM events WHERE ts IS NOT NULL;
    CREATE VIEW sliding AS
    SELECT * FROM (
        SELECT e.*,
            time_bucket(INTERVAL '3 seconds', ts, TIMESTAMP '1970-01-01') - step * INTERVAL '3 seconds' AS starts
        FROM events e CROSS JOIN range(5) AS steps (step)
    ) WHERE ts < starts + INTERVAL '10 seconds';
"""

STATEMENTS = [
    (
        "SELECT window.start AS a, window.end AS b, count(*) AS n FROM events GROUP BY window(ts, '10 seconds')",
        "SELECT starts AS a, starts + INTERVAL '10 seconds' AS b, count(*) AS n FROM tumbling GROUP BY a",
    ),
    (
        "SELECT w.start AS a, sum(n) AS n FROM (SELECT n, window(ts, '10 seconds') AS w FROM events) GROUP BY w.start",
        "SELECT starts AS a, sum(n) AS n FROM tumbling GROUP BY a",
    ),
    (
        "SELECT window(ts, '10 seconds').end AS b, count(*) AS n FROM events GROUP BY 1",
        "SELECT starts + INTERVAL '10 seconds' AS b, count(*) AS n FROM tumbling GROUP BY b",
    ),
    (
        "SELECT window_start AS a, window_end AS b, max(n) AS m "
        "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end",
        "SELECT starts AS a, starts + INTERVAL '10 seconds' AS b, max(n) AS m FROM tumbling GROUP BY a",
    ),
    (
        "SELECT id, window_start AS a FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        "SELECT id, starts AS a FROM tumbling",
    ),
    (
        "SELECT window.start AS a, window.end AS b, count(*) AS n FROM events "
        "GROUP BY window(ts, '10 seconds', '3 seconds')",
        "SELECT starts AS a, starts + INTERVAL '10 seconds' AS b, count(*) AS n FROM sliding GROUP BY a",
    ),
    (
        "SELECT window_start AS a, n, count(*) AS c "
        "FROM HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '3' SECOND, INTERVAL '10' SECOND) GROUP BY window_start, n",
        "SELECT starts AS a, n, count(*) AS c FROM sliding GROUP BY a, n",
    ),
    (
        "WITH few AS (SELECT id, ts AS time FROM events WHERE n > 2) SELECT id, window_start AS a "
        "FROM HOP(TABLE few, DESCRIPTOR(time), INTERVAL '3' SECOND, INTERVAL '10' SECOND) WHERE id > 3",
        "SELECT id, starts AS a FROM sliding WHERE n > 2 AND id > 3",
    ),
    (
        "SELECT o.id, e.window_start AS a FROM others o LEFT JOIN "
        "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND) e ON o.id = e.id",
        "SELECT o.id, e.starts AS a FROM others o LEFT JOIN tumbling e ON o.id = e.id",
    ),
    (
        "SELECT id, item FROM events LATERAL VIEW explode(items) e AS item WHERE item > 1",
        "SELECT * FROM (SELECT id, unnest(items) AS item FROM events) WHERE item > 1",
    ),
    (
        "SELECT id, e.item FROM events LATERAL VIEW OUTER explode(items) e AS item",
        "SELECT id, unnest(CASE WHEN len(items) > 0 THEN items ELSE [NULL] END) AS item FROM events",
    ),
    (
        "SELECT item, count(*) AS n FROM events LATERAL VIEW explode(items) e AS item GROUP BY item",
        "SELECT item, count(*) AS n FROM (SELECT unnest(items) AS item FROM events) GROUP BY item",
    ),
    (
        "SELECT id, name, number FROM events LATERAL VIEW explode(counts) e AS name, number",
        "SELECT id, entry.key AS name, entry.value AS number "
        "FROM (SELECT id, unnest(map_entries(counts)) AS entry FROM events)",
    ),
    (
        "SELECT id, a.item AS x, b.item AS y FROM events "
        "LATERAL VIEW explode(items) a AS item LATERAL VIEW explode(items) b AS item",
        "SELECT id, x, unnest(items) AS y FROM (SELECT *, unnest(items) AS x FROM events)",
    ),
]


@lru_cache
def random_events(seed: int) -> duckdb.DuckDBPyConnection:
    chance = random.Random(seed)
    database = connect()
    columns = "id integer, ts timestamp, n integer"
    database.execute(f"CREATE TABLE events ({columns}, items integer[], counts map(text, integer))")
    database.execute(f"CREATE TABLE others ({columns})")
    for number in range(25):
        # Windows have their first instant, and not their last one.
        millis = chance.choice((3000, 9999, 10_000, chance.randrange(-(10**6), 10**6)))
        at = datetime(1970, 1, 1) + timedelta(milliseconds=millis)
        items = chance.choice((None, [], [1], [2, 2, None], [chance.randrange(4) for _ in range(3)]))
        row = [number, chance.choice((at, at, None)), chance.choice((None, 1, 2, 3)), items]
        database.execute("INSERT INTO events VALUES (?, ?, ?, ?, map {'a': 1, 'b': NULL})", row)
        database.execute("INSERT INTO others VALUES (?, ?, ?)", row[:3])
    database.execute(VIEWS)
    return database


@pytest.mark.parametrize(("statement", "expected"), STATEMENTS)
def test_rows_equal_duckdb(statement: str, expected: str) -> None:
    root = plan(statement, CATALOG)
    for seed in range(3):
        check_rows(random_events(seed), root, expected)


def test_equal_sliding_windows_are_one() -> None:
    window = "window(ts, '10 seconds', '3 seconds')"
    root = plan(f"SELECT {window}.start AS a, {window}.end AS b, count(*) AS n FROM events GROUP BY {window}", CATALOG)  # noqa: S608
    assert len([operator for operator in walk(root) if isinstance(operator, Explode)]) == 1


def test_repeated_elements_of_an_array_are_told_apart_by_their_positions() -> None:
    root = plan("SELECT id, item FROM events LATERAL VIEW explode(items) e AS item", CATALOG)
    (explode,) = [operator for operator in walk(root) if isinstance(operator, Explode)]
    assert "STRUCT(i AS pos, x AS col)" in explode.array_sql


def test_system_columns_are_read_from_the_event() -> None:
    root = plan(
        "SELECT _key, window.start AS a, count(*) AS n FROM clicks GROUP BY _key, window(_time, '1 day')", CATALOG
    )
    (source,) = [operator for operator in walk(root) if isinstance(operator, QueueSource)]
    assert set(source.columns) == {SourceColumn("clicks._key", "_key"), SourceColumn("clicks._time", "_time")}


def test_view_is_read_as_a_view() -> None:
    root = plan("SELECT max(total) AS most FROM totals", CATALOG)
    assert next(walk(root)) == ViewSource("totals", (SourceColumn("totals.total", "total"),))


def test_named_subquery_is_read_in_place_of_its_name() -> None:
    source = SqlSource("SELECT id, n FROM events WHERE n > 1", dialect=ViewSql)
    catalog = replace(CATALOG, subqueries={"big": source.parse(source.tokenize())})
    expected = "SELECT a.id FROM events a JOIN events b ON a.id = b.n WHERE a.n > 1 AND b.n > 1"
    check_rows(random_events(0), plan("SELECT a.id FROM Big a JOIN big b ON a.id = b.n", catalog), expected)
