"""The driver's frequent queries and lookups of a key do not scan all open windows or the whole history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.engine.registry import Registry
from penstock.log.log import Log
from penstock.stream.windows import SlidingWindow, TumblingWindow
from tests.cycle_driver import CycleDriver
from tests.log.logs import opened
from tests.log.query_plans import Explained, explain

_plan = Statements("penstock.engine.planning", "planner.sql")
_merge = Statements("penstock.engine", "merge.sql")
_tables = Statements("penstock.engine", "result_tables.sql")
_rows = Statements("penstock.engine", "result_rows.sql")

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


FILL_RESULT = """
INSERT INTO penstock.state_{id} (key, window_start, window_end, partition_id, a0, a1, updated_at)
SELECT 'k' || n % 5000, t.time, t.time + interval '1 minute', 1, 1, 1, now()
FROM generate_series(1, 10000) AS n CROSS JOIN LATERAL (SELECT now() + n / 5000 * interval '1 minute' AS time) t;
INSERT INTO penstock.history_{id} (key, window_start, window_end, a0, a1, closed_at)
SELECT key, window_start - interval '1 hour', window_end - interval '1 hour', a0, a1, now() FROM penstock.state_{id};
ANALYZE penstock.state_{id}, penstock.history_{id}
"""
LOOKUPS = ("penstock_live.orders", "penstock_live.orders_current", "penstock_history.orders", "penstock.state")


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    async with opened(database_url) as log:
        yield log


@pytest.fixture(
    params=[TumblingWindow(60_000_000), SlidingWindow(120_000_000, 60_000_000)], ids=["tumbling", "sliding"]
)
async def result(log: Log, request: pytest.FixtureRequest) -> AsyncIterator[CycleDriver]:
    """Two open and two closed windows of each of many keys."""
    driver = await CycleDriver.start(log, "orders", windows=(request.param,))
    async with log.database.connection() as conn:
        await conn.execute(FILL_RESULT.replace("{id}", str(driver.id)).encode(), prepare=False)
    yield driver
    await driver.close()


def check_lookup(plan: Explained, driver: CycleDriver) -> None:
    scans = [*plan.scans(f"state_{driver.id}"), *plan.scans(f"history_{driver.id}")]
    assert "Seq Scan" not in {scan.kind for scan in scans}
    assert {node.index for node in plan.root.walk()} & {f"{name}_lookup" for name in driver.tables.table_names}
    assert sum(scan.rows_read for scan in scans) <= 8


async def test_a_key_is_looked_up_with_an_index_in_all_views(result: CycleDriver, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        for view in LOOKUPS:
            for condition in ("key = %(key)s", "key = ANY(ARRAY[%(key)s, 'k9'])"):
                statement = f"SELECT * FROM {view} WHERE {condition}"  # noqa: S608
                check_lookup(await explain(conn, statement, {"key": "k7"}), result)


async def test_rows_of_a_key_are_read_with_an_index(result: CycleDriver, log: Log) -> None:
    params = {"key": "k7", "since": None, "until": None, "limit": 10}
    for view in LOOKUPS[:3]:
        statement = _rows["rows"].replace("{view}", view).replace("{closed}", "true")
        async with log.database.connection() as conn, conn.transaction():
            await conn.execute(_rows["allow_scans"].encode())
            check_lookup(await explain(conn, statement, params), result)


async def test_tables_of_an_earlier_version_get_the_index_at_the_next_start(result: CycleDriver, log: Log) -> None:
    async with log.database.connection() as conn:
        for table in result.tables.table_names:
            await conn.execute(f"DROP INDEX penstock.{table}_lookup".encode())
        for _ in range(2):
            await Registry(log).create_tables(result.tables)
        statement = "SELECT * FROM penstock_live.orders WHERE key = %(key)s"
        check_lookup(await explain(conn, statement, {"key": "k7"}), result)
