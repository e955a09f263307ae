"""Rates between snapshots, and the history from the ledgers of queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Stream, agg
from penstock.console.data.overview_history import OverviewHistory
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.server.metrics.database_metrics import DatabaseMetrics
from penstock.server.metrics.vitals import VitalsRecorder, compute_vitals
from tests.console.scripted_query import ScriptedQuery


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    log = await Log(Database(Settings(database_url=database_url))).open()
    yield log
    await log.close()


async def start_query(log: Log) -> ScriptedQuery:
    await log.configure("orders")
    await log.configure("orders.1m")
    stream = Stream.from_("orders").window_tumbling(seconds=60).aggregate({"events": agg.count()}).to("orders.1m")
    return await ScriptedQuery.start(log, "sales", stream)


async def cycle(log: Log, query: ScriptedQuery, events: int) -> None:
    start = datetime.now(UTC).replace(second=0, microsecond=0)
    await log.push([Batch("orders", [{"key": "a", "data": {}}] * events)])
    await query.cycle({"a": (events, 1.0)}, (start, start + timedelta(minutes=1)))


async def test_first_refresh_reads_ledgers(log: Log) -> None:
    query = await start_query(log)
    await cycle(log, query, 50)
    await cycle(log, query, 25)
    history = OverviewHistory(log.database, DatabaseMetrics(log.database, 0.0))
    await history.refresh()
    # The two cycles may belong to different steps of five seconds.
    assert sum((vitals.read or 0.0) * 5 for vitals in history.recorded) == 75
    assert all(vitals.freshness is not None and vitals.freshness > 0 for vitals in history.recorded)


async def test_concurrent_refreshes_take_one_snapshot(log: Log) -> None:
    history = OverviewHistory(log.database, DatabaseMetrics(log.database, 60.0))
    await asyncio.gather(history.refresh(), history.refresh())
    assert len(history.snapshots) == 1


async def test_rates_count_pushes_of_producers_and_reads_of_groups(log: Log) -> None:
    query = await start_query(log)
    await cycle(log, query, 10)
    history = OverviewHistory(log.database, DatabaseMetrics(log.database, 0.0))
    before = (await history.refresh())[-1]
    await cycle(log, query, 40)
    await log.push(
        [Batch("orders", [{"key": "a", "data": {}}] * 5), Batch("orders.1m", [{"key": "a", "data": {}}] * 9)]
    )
    while (now := (await history.refresh())[-1]).samples.at == before.samples.at or now.at == before.at:
        pass
    point = compute_vitals(before, now, lambda _: True, True)
    seconds = (now.at - before.at) / 1000
    assert point.pushed is not None
    assert point.read is not None
    assert (round(point.pushed * seconds), round(point.read * seconds)) == (45, 40)
    # A viewer without access to the queues sees no events.
    assert compute_vitals(before, now, lambda _: False, False).pushed == 0


async def test_recorded_vitals_fill_the_time_before_the_first_snapshot(log: Log) -> None:
    await log.configure("orders")
    metrics = DatabaseMetrics(log.database, 0.0)
    await VitalsRecorder(log.database, metrics).record()
    history = OverviewHistory(log.database, metrics)
    (snapshot,) = await history.refresh()
    assert [vitals.at <= snapshot.at for vitals in history.recorded] == [True]
