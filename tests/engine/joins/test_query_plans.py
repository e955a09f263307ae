"""The statements of a join read only the runs of its query, and none of their data."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from tests.log.query_plans import explain

_sql = Statements("penstock.engine.joins", "join_state.sql")

#: Ten queries with a hundred runs of each part. Half of the runs have expired.
FILL = """
INSERT INTO penstock.queries (id, name, description, fingerprint, closed_us, history_seconds)
OVERRIDING SYSTEM VALUE SELECT n, 'q' || n, '{}', '', 51, 1 FROM generate_series(1, 10) AS n;
INSERT INTO penstock.state_runs (query_id, operator, shard, part, run_id, token, attempt, replaces, rows, min_us,
                                 median_us, max_us, data, is_current)
SELECT q, 1, n % 8, p, format('%s-%s', p, n), '', 1, '{}', 1, n, n, n, '', true
FROM generate_series(1, 10) AS q, generate_series(0, 2) AS p, generate_series(1, 100) AS n
"""


@pytest.fixture(params=[True, False], ids=["analyzed", "just filled"])
def join_url(database_url: str, request: pytest.FixtureRequest) -> str:
    """A database with the state of ten joins, of which some runs have expired."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(FILL.encode())
        if request.param:
            conn.execute("VACUUM ANALYZE penstock.state_runs")
    return database_url


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("expired", {"after": 0}),
        ("due", {"after": 0, "idle": timedelta(seconds=1), "wait": timedelta(0)}),
        ("last_end", {"before": 0, "after": 0}),
        ("delete_expired_runs", {"left": 51, "right": 51}),
    ],
)
async def test_only_runs_of_the_query_are_read(join_url: str, name: str, params: dict[str, Any]) -> None:
    async with Database(Settings(database_url=join_url, pool_size=1)) as database, database.connection() as conn:
        plan = await explain(conn, _sql[name], {"query": 7, **params})
    assert all(scan.rows_read <= 300 for scan in plan.scans("state_runs"))


async def test_runs_of_which_all_rows_have_expired_are_deleted_unless_older_ones_stay(join_url: str) -> None:
    async with Database(Settings(database_url=join_url, pool_size=1)) as database, database.connection() as conn:
        # The oldest run of unmatched rows in shard 1 has rows that have not expired.
        await conn.execute("UPDATE penstock.state_runs SET max_us = 99 WHERE part = 2 AND run_id = '2-1'")
        await conn.execute(_sql["delete_expired_runs"], {"query": 7, "left": 51, "right": 31})
        left = await conn.execute(
            "SELECT part, count(*), min(max_us) FROM penstock.state_runs WHERE query_id = 7 GROUP BY part ORDER BY part"
        )
        assert await left.fetchall() == [(0, 50, 51), (1, 70, 31), (2, 50 + len(range(1, 51, 8)), 9)]
        others = await conn.execute("SELECT count(*) FROM penstock.state_runs WHERE query_id <> 7")
        assert await others.fetchone() == (9 * 300,)
