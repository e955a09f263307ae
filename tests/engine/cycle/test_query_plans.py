"""The driver's frequent queries do not scan all open windows or the whole history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from tests.log.query_plans import Explained, explain

_plan = Statements("penstock.engine.planning", "planner.sql")
_merge = Statements("penstock.engine.results", "merge.sql")
_tables = Statements("penstock.engine.results", "result_tables.sql")

FILL = """
INSERT INTO penstock.state_7 (key, window_start, window_end, partition_id, a0, updated_at)
SELECT 'k' || n, now(), now() + interval '1 hour', 1, 1, now() FROM generate_series(1, 20000) AS n;
INSERT INTO penstock.history_7 (key, window_start, window_end, a0, closed_at)
SELECT 'k' || n, now(), now(), 1, now() FROM generate_series(1, 50000) AS n
"""


async def explained(url: str, statement: str, **params: Any) -> Explained:
    async with Database(Settings(database_url=url, pool_size=1)) as database, database.connection() as conn:
        return await explain(conn, statement, params)


@pytest.fixture
def windows(database_url: str) -> str:
    """Many open windows, none of which can close, and a long history without old rows."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for name in ("create_state", "create_history", "index_history"):
            conn.execute(_tables[name].replace("{id}", "7").replace("{definitions}", "a0 bigint").encode())
        conn.execute(FILL.encode())
        conn.execute("VACUUM ANALYZE penstock.history_7")
    return database_url


async def test_due_windows_are_found_without_reading_others(windows: str) -> None:
    statement = _plan["has_window_due"].replace("{state}", "penstock.state_7")
    found = await explained(windows, statement, query=1, idle=timedelta(seconds=1), wait=timedelta(0))
    assert [scan.rows_read for scan in found.scans("state_7")] == [0]


async def test_old_history_is_found_without_a_full_scan(windows: str) -> None:
    found = await explained(windows, _merge["delete_old_history"].replace("{id}", "7"), seconds=3600.0)
    assert "Seq Scan" not in found.kinds()
    assert found.pages < 200
