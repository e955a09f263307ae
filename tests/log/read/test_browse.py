"""Browsing the newest events."""

from __future__ import annotations

from penstock.db.statements import Statements
from penstock.log.event import Event
from penstock.log.log import Log
from tests.log.logs import QUEUE, ask, data, push, roll
from tests.log.query_plans import explain

_browse = Statements("penstock.log.read", "browse.sql")


async def test_latest_returns_the_newest_events_first(log: Log) -> None:
    await log.configure(QUEUE)
    for n in range(30):
        await push(log, [n], key=f"tenant-{n % 7}")
    await push(log, [100, 101, 102], key="ada")

    assert data(await log.latest(QUEUE, 5)) == [102, 101, 100, 29, 28]
    assert len(await log.latest(QUEUE, 1000)) == 33
    queue = await log.queue(QUEUE)
    async with log.database.connection() as conn:
        statement = _browse.table("chunks_in_pages", queue.id, queue.segment)
        explained = await explain(conn, statement, {"first": "(0,0)", "last": "(1,0)"})
    assert {node.kind for node in explained.scans("chunks")} == {"Tid Range Scan"}


async def test_latest_reads_across_segments(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, [1, 2], key="ada")
    await log.segments.roll(await log.catalog.refresh(QUEUE))
    assert data(await log.latest(QUEUE, 10)) == [2, 1]
    await push(log, [3], key="ada")
    assert data(await log.latest(QUEUE, 2)) == [3, 2]


async def test_browsing_ends_at_a_segment_that_retention_drops_meanwhile(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, ["old"], key="ada")
    await roll(log)
    await push(log, ["new"], key="ada")
    queue = await log.queue(QUEUE)

    def drop_the_first_segment(event: Event) -> bool:
        ask(database_url, "SELECT penstock.drop_chunks(%s, 1)", queue.id)
        return True

    assert data(await log.browse(QUEUE, matching=drop_the_first_segment)) == ["new"]
