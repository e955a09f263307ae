"""Summaries of queues and groups from the snapshots of the overview."""

from __future__ import annotations

from penstock.console.data.overview_history import OverviewHistory
from penstock.console.data.queue_summary import read_queues
from penstock.log.write.encode.batch import Batch
from penstock.server.metrics.database_metrics import DatabaseMetrics
from tests.log.logs import opened


async def test_rates_are_those_between_snapshots(database_url: str) -> None:
    async with opened(database_url) as log:
        await log.configure("orders")
        await log.configure("idle")
        await log.subscribe("orders", "billing")
        history = OverviewHistory(log.database, DatabaseMetrics(log.database, 0.0))
        first = await read_queues(history)
        assert [(queue.name, queue.rate) for queue in first] == [("idle", None), ("orders", None)]
        await log.push([Batch("orders", [{"data": {}}] * 30)])
        while len({snapshot.at for snapshot in history.snapshots}) < 2:
            await history.refresh()
        idle, orders = await read_queues(history)
    assert (idle.events, idle.rate, idle.groups) == (0, 0.0, [])
    assert (orders.events, orders.appended) == (30, 30)
    assert orders.rate is not None
    assert orders.rate > 0
    assert max(orders.rate_history) > 0
    (billing,) = orders.groups
    assert (billing.name, billing.lag, billing.rate, billing.sink) == ("billing", 30, 0.0, None)
