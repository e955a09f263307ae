"""What the overview knows: rates from one look to the next, and before the first from the ledgers of queries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Stream, agg
from penstock.console.data.overview_history import OverviewHistory, compute_point
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.write.batch import Batch
from penstock.server.metrics.database import DatabaseMetrics
from tests.console.driving import Driven


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    log = await Log(Database(Settings(database_url=database_url))).open()
    yield log
    await log.close()


async def driven(log: Log) -> Driven:
    await log.configure("orders")
    await log.configure("orders.1m")
    stream = Stream.from_("orders").window_tumbling(seconds=60).aggregate({"events": agg.count()}).to("orders.1m")
    return await Driven.start(log, "sales", stream)


async def cycle(log: Log, query: Driven, events: int) -> None:
    start = datetime.now(UTC).replace(second=0, microsecond=0)
    await log.push([Batch("orders", [{"key": "a", "data": {}}] * events)])
    await query.cycle({"a": (events, 1.0)}, (start, start + timedelta(minutes=1)))


async def test_before_the_first_look_the_ledgers_of_queries_tell(log: Log) -> None:
    query = await driven(log)
    await cycle(log, query, 50)
    await cycle(log, query, 25)
    history = OverviewHistory(log.database, DatabaseMetrics(log.database, 0.0))
    await history.refresh()
    # In steps of five seconds, which the two cycles may lie on both sides of.
    assert sum(each.events_in * 5 for each in history.ledger_points) == 75
    assert all(each.freshness is not None and each.freshness > 0 for each in history.ledger_points)


async def test_rates_are_of_what_was_pushed_from_outside_and_what_groups_have_read(log: Log) -> None:
    query = await driven(log)
    await cycle(log, query, 10)
    history = OverviewHistory(log.database, DatabaseMetrics(log.database, 0.0))
    before = (await history.refresh())[-1]
    await cycle(log, query, 40)
    await log.push(
        [Batch("orders", [{"key": "a", "data": {}}] * 5), Batch("orders.1m", [{"key": "a", "data": {}}] * 9)]
    )
    while (now := (await history.refresh())[-1]).samples.at == before.samples.at or now.at == before.at:
        pass
    found = compute_point(before, now, lambda _: True, True)
    seconds = (now.at - before.at) / 1000
    assert found.pushed is not None
    assert found.read is not None
    assert (round(found.pushed * seconds), round(found.read * seconds)) == (45, 40)
    # Who may see no queue sees nothing.
    assert compute_point(before, now, lambda _: False, False).pushed == 0
