"""What a driver asks all the time costs the same however many windows are open and however much history is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.engine.joins.state import WaitingTable
from tests.log.plans import Explained, explain

_plan = Statements("penstock.engine.planning", "planner.sql")
_merge = Statements("penstock.engine", "merge.sql")
_tables = Statements("penstock.engine", "result_tables.sql")
WAITING = WaitingTable(7, 0, 0, sends_alone=True)

FILL = """
INSERT INTO penstock.state_7 (key, window_start, window_end, partition_id, a0, updated_at)
SELECT 'k' || n, now(), now() + interval '1 hour', 1, 1, now() FROM generate_series(1, 20000) AS n;
INSERT INTO penstock.history_7 (key, window_start, window_end, a0, closed_at)
SELECT 'k' || n, now(), now(), 1, now() FROM generate_series(1, 50000) AS n
"""

#: Of either side a thousand have expired, every other one of the left in no pair.
FILL_WAITING = """
INSERT INTO penstock.queries (id, name, description, fingerprint, closed_us, history_seconds)
OVERRIDING SYSTEM VALUE VALUES (7, 'q', '{}', '', 1001, 1);
INSERT INTO penstock.waiting_7 (side, key, time_us, partition_id, event_offset, line, is_matched)
SELECT n % 2, 'k' || n, n / 2, 1, n, '{}', n % 4 = 0 FROM generate_series(1, 40000) AS n
"""


async def explained(url: str, statement: str, **params: Any) -> Explained:
    async with Database(Settings(database_url=url, pool_size=1)) as database, database.connection() as conn:
        return await explain(conn, statement, params)


@pytest.fixture
def windows(database_url: str) -> str:
    """Many open windows that are not due, and a long history of which nothing is old."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for name in ("create_state", "create_history", "index_history"):
            conn.execute(_tables[name].replace("{id}", "7").replace("{definitions}", "a0 bigint").encode())
        conn.execute(FILL.encode())
        conn.execute("VACUUM ANALYZE penstock.history_7")
    return database_url


async def test_windows_that_are_not_due_are_not_looked_at(windows: str) -> None:
    statement = _plan["due"].replace("{state}", "penstock.state_7")
    found = await explained(windows, statement, query=1, idle=timedelta(seconds=1), wait=timedelta(0))
    assert [scan.rows_read for scan in found.scans("state_7")] == [0]


async def test_history_that_is_kept_is_not_looked_at_for_what_is_old(windows: str) -> None:
    found = await explained(windows, _merge["forget_history"].replace("{id}", "7"), seconds=3600.0)
    assert "Seq Scan" not in found.kinds()
    assert found.pages < 200


@pytest.fixture(params=[True, False], ids=["analyzed", "just filled"])
def waiting(database_url: str, request: pytest.FixtureRequest) -> str:
    """Many events that wait in a join, of which some have expired."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for statement in WAITING.creation():
            conn.execute(statement.encode())
        conn.execute(FILL_WAITING.encode())
        if request.param:
            conn.execute("VACUUM ANALYZE penstock.waiting_7")
    return database_url


@pytest.mark.parametrize(
    ("name", "params", "rows"),
    [
        ("alone", {"limit": 100}, 100),
        ("alone", {"limit": 200_000}, 500),
        ("expired", {"limit": 1}, 1),
        ("due", {"idle": timedelta(seconds=1), "wait": timedelta(0)}, 1),
    ],
)
async def test_of_what_waits_only_what_has_expired_is_looked_at(
    waiting: str, name: str, params: dict[str, Any], rows: int
) -> None:
    found = await explained(waiting, WAITING.statement(name), **WAITING.params(**params))
    assert [scan.rows_read for scan in found.scans("waiting_7")] == [rows]


@pytest.mark.parametrize(
    ("most", "alone", "rows"),
    # Of the right, of the left in pairs, and of the left in none.
    [(50, 100, [50, 50, 100]), (50, 0, [50, 50, 0]), (20_000, 7, [1001, 500, 7]), (20_000, 20_000, [1001, 500, 500])],
)
async def test_no_more_of_what_has_expired_is_looked_at_than_leaves(
    waiting: str, most: int, alone: int, rows: list[int]
) -> None:
    params = WAITING.params(closed=1001, most=most, alone=alone)
    async with Database(Settings(database_url=waiting, pool_size=1)) as database, await database.connect() as conn:
        await WAITING.prepare(conn)
        for mode in ("force_custom_plan", "force_generic_plan"):
            await conn.execute("SELECT set_config('plan_cache_mode', %s, false)", (mode,))
            found = await explain(conn, WAITING.statement("expire"), params)
            # Each is found in an index, and then deleted where it is.
            assert [scan.rows_read for scan in found.scans("waiting_7")] == [*rows, sum(rows)]
