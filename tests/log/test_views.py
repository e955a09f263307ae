"""The views of lag and depth."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, drain, pop, push, roll
from tests.servers import Server


def select(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(question).fetchall()


async def lags(url: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    question = "SELECT queue, group_name, lag, partitions_behind, leases FROM penstock.lag"
    rows = await asyncio.to_thread(select, url, question)
    return {(queue, group): (lag, behind, leases) for queue, group, lag, behind, leases in rows}


@pytest.mark.parametrize("partitions", [None, 3])
async def test_the_views_agree_with_the_log(log: Log, database_url: str, clock: Clock, partitions: int | None) -> None:
    await log.configure(QUEUE, partitioning="key" if partitions is None else "hash", partitions=partitions)
    await log.configure("other")
    await log.subscribe("other", "idle")
    for step in range(4):
        for key in ("ada", "bob", "cy"):
            await push(log, range(step * 5), key=key)
        events = await pop(log, batch=7)
        await log.ack(events[: len(events) // 2])
        if step == 2:
            await roll(log)
        info = await log.describe(QUEUE)
        (group,) = info.groups
        assert await lags(database_url) == {
            (QUEUE, GROUP): (group.lag, group.partitions_behind, group.leases),
            ("other", "idle"): (0, 0, 0),
        }
        assert await asyncio.to_thread(select, database_url, "SELECT * FROM penstock.depth WHERE queue = 'orders'") == [
            (QUEUE, info.size.partitions, info.size.events, info.size.appended, info.queue.max_depth_events, 0, 0)
        ]
        positions = await log.group_positions(QUEUE, GROUP)
        question = "SELECT partition, next_offset, end_offset, lag FROM penstock.partition_lag ORDER BY partition_id"
        assert await asyncio.to_thread(select, database_url, question) == [
            (position.partition, position.next_offset, position.end_offset, position.lag) for position in positions
        ]


async def test_parked_partitions_have_no_lag(log: Log, database_url: str, clock: Clock) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob"):
        await push(log, [1], key=key)
    await drain(log)
    clock.advance(60)
    assert (await log.upkeep()).parked == 2
    question = "SELECT partitions, partitions_behind, lag FROM penstock.lag"
    assert await asyncio.to_thread(select, database_url, question) == [(2, 0, 0)]
    await push(log, [2], key="ada")
    assert await asyncio.to_thread(select, database_url, question) == [(2, 1, 1)]


async def test_the_views_need_no_right_to_read_events(log: Log, database_url: str, pg18: Server) -> None:
    await log.configure(QUEUE)
    await push(log, [1, 2])
    await pop(log)
    name = str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    with pg18.superuser(name) as conn:
        conn.execute("CREATE ROLE watcher LOGIN")
        conn.execute("GRANT USAGE ON SCHEMA penstock TO watcher")
        conn.execute("GRANT SELECT ON penstock.lag, penstock.depth, penstock.partition_lag TO watcher")
        try:
            conn.execute("SET ROLE watcher")
            assert conn.execute("SELECT lag FROM penstock.lag").fetchall() == [(2,)]
            assert conn.execute("SELECT events FROM penstock.depth").fetchall() == [(2,)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("SELECT * FROM penstock.chunks_1_1")
        finally:
            conn.execute("RESET ROLE")
            conn.execute("DROP OWNED BY watcher")
            conn.execute("DROP ROLE watcher")
