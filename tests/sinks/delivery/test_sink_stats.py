"""The counters of sinks in SQL and metrics, added up over the processes that run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.errors import SinkRejected
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.server.metrics import database_metrics
from penstock.server.metrics.database_metrics import DatabaseMetrics
from penstock.sinks import Backoff, Sinks
from tests.log.logs import push
from tests.sinks.memory_sink import MemorySink

QUICK = Backoff(first=0.01, longest=0.02)


class SelectiveSink(MemorySink):
    """Fails at first, rejects the number 3, and rests after a write."""

    name = "selective"

    def next_error(self, events: Sequence[Event]) -> Exception | None:
        if self.attempts == 1:
            return ConnectionError("unreachable")
        bad = frozenset(i for i, event in enumerate(events) if event.data == 3)
        return SinkRejected("rejected", events=bad) if bad else None

    @property
    def is_resting(self) -> bool:
        return bool(self.received)


async def rows(log: Log, queue: str) -> list[tuple[Any, ...]]:
    question = (
        "SELECT sink, guarantee, written, retries > 0, dead_letters, running, resting, error, lag"
        " FROM penstock.sinks WHERE queue = %s"
    )
    async with log.database.connection() as conn:
        return await (await conn.execute(question, [queue])).fetchall()


async def test_the_sinks_view_shows_counters_until_the_group_is_deleted(log: Log, queue: str) -> None:
    await push(log, range(6), queue=queue, key="a")
    await Sinks(log=log).add(queue, SelectiveSink(), backoff=QUICK).run(idle_seconds=0.1)

    assert await rows(log, queue) == [("selective", "at_least_once", 5, True, 1, False, True, None, 0)]

    await push(log, range(10, 13), queue=queue, key="a")
    assert [row[2:9:6] for row in await rows(log, queue)] == [(5, 3)], "the sink does not run, and its lag is three"
    await Sinks(log=log).add(queue, SelectiveSink(), backoff=QUICK).run(idle_seconds=0.1)
    assert [row[2] for row in await rows(log, queue)] == [8], "the counters of several runs add up"

    await log.delete_group(queue, "selective")
    assert await rows(log, queue) == []


async def test_metrics_include_sinks(log: Log, queue: str) -> None:
    await push(log, range(4), queue=queue, key="a")
    await Sinks(log=log).add(queue, SelectiveSink(), backoff=QUICK).run(idle_seconds=0.1)

    read = await DatabaseMetrics(log.database).read()

    assert read.is_complete
    labels = (queue, "selective")
    found = {family: values[labels] for family, values in read.sampled.items() if labels in values}
    assert found[database_metrics.SINK_WRITTEN] == 3
    assert found[database_metrics.SINK_DEAD] == 1
    assert found[database_metrics.SINK_RETRIES] == 1
    assert (found[database_metrics.SINK_RUNNING], found[database_metrics.SINK_RESTING]) == (0, 0), "the sink has ended"
    assert found[database_metrics.GROUP_LAG] == 0
