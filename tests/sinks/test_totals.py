"""What sinks have done, in SQL and among the metrics: added up over those who ran them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.errors import SinkRejected
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.database import Standing
from penstock.sinks import Backoff, Sinks
from tests.log.logs import push
from tests.sinks.test_outlets import Remember

SOON = Backoff(first=0.01, longest=0.02)


class Choosy(Remember):
    """Fails the first time, does not want the number 3, and then has enough for a while."""

    name = "choosy"

    def trouble(self, events: Sequence[Event]) -> Exception | None:
        if self.tries == 1:
            return ConnectionError("nobody there")
        bad = frozenset(i for i, event in enumerate(events) if event.data == 3)
        return SinkRejected("not three", events=bad) if bad else None

    @property
    def is_resting(self) -> bool:
        return bool(self.got)


async def rows(log: Log, queue: str) -> list[tuple[Any, ...]]:
    question = (
        "SELECT sink, guarantee, written, retries > 0, dead_letters, running, resting, error, lag"
        " FROM penstock.sinks WHERE queue = %s"
    )
    async with log.database.connection() as conn:
        return await (await conn.execute(question, [queue])).fetchall()


async def test_a_sink_is_a_row_that_says_what_was_done_and_goes_with_its_group(log: Log, queue: str) -> None:
    await push(log, range(6), queue=queue, key="a")
    await Sinks(log=log).add(queue, Choosy(), backoff=SOON).run(idle_seconds=0.1)

    assert await rows(log, queue) == [("choosy", "at_least_once", 5, True, 1, False, True, None, 0)]

    await push(log, range(10, 13), queue=queue, key="a")
    assert [row[2:9:6] for row in await rows(log, queue)] == [(5, 3)], "it does not run, and is three behind"
    await Sinks(log=log).add(queue, Choosy(), backoff=SOON).run(idle_seconds=0.1)
    assert [row[2] for row in await rows(log, queue)] == [8], "those who run it one after the other add up"

    await log.delete_group(queue, "choosy")
    assert await rows(log, queue) == []


async def test_sinks_are_among_the_metrics(log: Log, queue: str) -> None:
    await push(log, range(4), queue=queue, key="a")
    await Sinks(log=log).add(queue, Choosy(), backoff=SOON).run(idle_seconds=0.1)

    read = await Standing(log.database).read()

    assert read.is_whole
    labels = (queue, "choosy")
    found = {
        family: read.sampled[family].samples[labels]
        for family in read.sampled
        if labels in read.sampled[family].samples
    }
    assert found[database_metrics.SINK_WRITTEN] == 3
    assert found[database_metrics.SINK_DEAD] == 1
    assert found[database_metrics.SINK_RETRIES] == 1
    assert (found[database_metrics.SINK_RUNNING], found[database_metrics.SINK_RESTING]) == (0, 0), "it has ended"
    assert found[database_metrics.GROUP_LAG] == 0
