"""The record of vitals: one process records, another takes over, and rows last a day."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from penstock.core.lock_file import LockFile
from penstock.core.settings import Settings
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.server.app import create_app
from penstock.server.metrics.database_metrics import DatabaseMetrics
from penstock.server.metrics.vitals import VitalsRecorder, read_vitals
from penstock.server.settings import ServerSettings
from tests.conditions import eventually_async
from tests.log.logs import opened


def create_recorder(log: Log) -> VitalsRecorder:
    return VitalsRecorder(log.database, DatabaseMetrics(log.database, 0.0))


async def shift_rows(log: Log, by: timedelta) -> None:
    async with log.database.connection() as conn:
        await conn.execute("UPDATE penstock.vitals SET at = at - %s", (by,))


async def count_rows(log: Log) -> int:
    async with log.database.connection() as conn:
        return len(await (await conn.execute("SELECT FROM penstock.vitals")).fetchall())


async def test_rows_have_rates_since_the_row_before(database_url: str) -> None:
    async with opened(database_url) as log:
        await log.configure("orders")
        await log.subscribe("orders", "billing")
        recorder = create_recorder(log)
        assert await recorder.record()
        await log.push([Batch("orders", [{"data": {}}] * 30)])
        # Samples are reused for a moment.
        await eventually_async(recorder.record)
        async with log.database.connection() as conn:
            rows = await (await conn.execute("SELECT pushed, backlog FROM penstock.vitals ORDER BY at")).fetchall()
        (first_rate, first_backlog), (rate, backlog) = rows
        assert (first_rate, first_backlog, backlog) == (None, 0, 30)
        assert rate > 0


async def test_one_process_records_until_its_rows_are_old(database_url: str) -> None:
    async with opened(database_url) as log:
        first, second = create_recorder(log), create_recorder(log)
        assert await first.record()
        assert not await second.record()
        await eventually_async(first.record)
        await shift_rows(log, timedelta(minutes=1))
        assert await second.record()
        assert not await first.record()


async def test_processes_that_start_together_add_one_row(database_url: str) -> None:
    async with opened(database_url) as log:
        recorders = [create_recorder(log) for _ in range(4)]
        assert sum(await asyncio.gather(*(recorder.record() for recorder in recorders))) == 1
        assert await count_rows(log) == 1


async def test_rows_are_deleted_after_a_day(database_url: str) -> None:
    async with opened(database_url) as log:
        recorder = create_recorder(log)
        await recorder.record()
        await shift_rows(log, timedelta(hours=25))
        await eventually_async(recorder.record)
        assert await count_rows(log) == 1


async def test_steps_without_rows_are_left_out(database_url: str) -> None:
    async with opened(database_url) as log, log.database.connection() as conn:
        await conn.execute(
            "INSERT INTO penstock.vitals (at, pushed, backlog, dead, firing)"
            " SELECT date_trunc('hour', now()) - make_interval(secs => s), s, 0, 0, 0"
            " FROM unnest(ARRAY[600, 590, 580, 100]) s"
        )
        vitals = await read_vitals(conn, 7200, 60)
        assert [each.pushed for each in vitals] == [590.0, 100.0]


async def test_server_records_while_nobody_looks(database_url: str) -> None:
    settings = ServerSettings(core=Settings(database_url=database_url))
    async with opened(database_url) as log, create_app(settings).running():
        await eventually_async(lambda: count_rows(log))


async def test_of_the_workers_of_a_server_only_one_asks_the_database(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url) as log, opened(database_url) as other_log:
        metrics = DatabaseMetrics(other_log.database, 0.0)
        async with VitalsRecorder(log.database, DatabaseMetrics(log.database, 0.0), tmp_path).running():
            await eventually_async(lambda: count_rows(log))
            lock = LockFile(tmp_path / "vitals.lock")
            assert not lock.try_acquire()
            async with VitalsRecorder(other_log.database, metrics, tmp_path).running():
                assert await count_rows(log) == 1
        assert lock.try_acquire()
        lock.close()
