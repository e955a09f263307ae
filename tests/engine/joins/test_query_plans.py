"""The statements of a join read only rows that have expired, however many rows are stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.joins.join_state import JoinState
from tests.log.query_plans import explain

STATE = JoinState(7, 0, 0, is_outer=True)

#: A thousand rows of each side have expired, and every other left row is unmatched.
FILL = """
INSERT INTO penstock.queries (id, name, description, fingerprint, closed_us, history_seconds)
OVERRIDING SYSTEM VALUE VALUES (7, 'q', '{}', '', 1001, 1);
INSERT INTO penstock.waiting_7 (side, key, time_us, partition_id, event_offset, line, is_matched)
SELECT n % 2, 'k' || n, n / 2, 1, n, '{}', n % 4 = 0 FROM generate_series(1, 40000) AS n
"""


@pytest.fixture(params=[True, False], ids=["analyzed", "just filled"])
def join_url(database_url: str, request: pytest.FixtureRequest) -> str:
    """A database with the state of a join, of which some rows have expired."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for statement in STATE.create_statements():
            conn.execute(statement.encode())
        conn.execute(FILL.encode())
        if request.param:
            conn.execute("VACUUM ANALYZE penstock.waiting_7")
    return database_url


@pytest.mark.parametrize(
    ("name", "params", "rows"),
    [
        ("expired_rows", {"limit": 100}, 100),
        ("expired_rows", {"limit": 200_000}, 500),
        ("count_expired", {"limit": 1}, 1),
        ("due", {"idle": timedelta(seconds=1), "wait": timedelta(0)}, 1),
    ],
)
async def test_only_expired_rows_are_read(join_url: str, name: str, params: dict[str, Any], rows: int) -> None:
    async with Database(Settings(database_url=join_url, pool_size=1)) as database, database.connection() as conn:
        plan = await explain(conn, STATE.statement(name), STATE.params(**params))
    assert [scan.rows_read for scan in plan.scans("waiting_7")] == [rows]


@pytest.mark.parametrize(
    ("limit", "unmatched", "rows"),
    # Right rows, matched left rows, and unmatched left rows.
    [(50, 100, [50, 50, 100]), (50, 0, [50, 50, 0]), (20_000, 7, [1001, 500, 7]), (20_000, 20_000, [1001, 500, 500])],
)
async def test_only_rows_to_delete_are_read(join_url: str, limit: int, unmatched: int, rows: list[int]) -> None:
    params = STATE.params(watermark=1001, limit=limit, unmatched=unmatched)
    async with Database(Settings(database_url=join_url, pool_size=1)) as database, await database.connect() as conn:
        await STATE.prepare(conn)
        for mode in ("force_custom_plan", "force_generic_plan"):
            await conn.execute("SELECT set_config('plan_cache_mode', %s, false)", (mode,))
            plan = await explain(conn, STATE.statement("delete_expired"), params)
            # Each row is found in an index, and then deleted by its ctid.
            assert [scan.rows_read for scan in plan.scans("waiting_7")] == [*rows, sum(rows)]
