"""Consumer groups: independent positions, subscriptions and seeks."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import GroupBusy, NotFound
from penstock.log.log import Log
from tests.log.logs import (
    GROUP,
    QUEUE,
    ask,
    by_key,
    data,
    drain,
    pop,
    push,
    roll,
)


async def test_groups_are_independent(log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    await push(log, range(10))
    names = [f"group {i}" for i in range(20)]
    await log.ack(await pop(log, group="the slow one", batch=4))
    await log.ack(await pop(log, group="the failing one"), False)
    drained = await asyncio.gather(*(drain(log, group=name) for name in names))
    assert [data(events) for events in drained] == [list(range(10))] * 20
    lags = {info.group: info.lag for info in await log.groups(QUEUE)}
    assert lags == dict.fromkeys(names, 0) | {"the slow one": 6, "the failing one": 10}


async def test_a_group_from_now_reads_new_partitions_from_their_start(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, ["old"], key="ada")
    await log.subscribe(QUEUE, GROUP, "now")
    await push(other_log, ["new"], key="ada")
    await push(other_log, ["first", "second"], key="bob")
    assert by_key(await drain(log)) == {"ada": ["new"], "bob": ["first", "second"]}


async def test_partitions_created_during_a_subscription_are_read(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    names = [f"group {i}" for i in range(10)]

    async def subscribe() -> None:
        for name in names:
            await log.subscribe(QUEUE, name)

    async def make() -> None:
        for i in range(50):
            await push(other_log, [i], key=f"key {i}")

    await asyncio.gather(subscribe(), make())
    for name in names:
        assert sorted(data(await drain(log, group=name))) == list(range(50))


async def test_a_new_group_is_listed_before_its_first_pop(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, GROUP)
    await push(log, range(3), key="ada")
    (position,) = await log.group_positions(QUEUE, GROUP)
    assert (position.partition, position.next_offset, position.end_offset, position.lag, position.leased) == (
        "ada",
        0,
        3,
        3,
        False,
    )


async def test_an_ack_after_a_seek_is_late(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(3))
    events = await pop(log)
    await log.seek(QUEUE, GROUP, "beginning")
    for status in ("completed", "failed"):
        results = await log.ack(events, status)
        assert all("late" in str(result.error) for result in results)
    assert data(await drain(log)) == [0, 1, 2]


async def test_events_keep_their_keys(log: Log) -> None:
    await log.configure("by key")
    await log.configure("by hash", partitioning="hash", partitions=2)
    for queue in ("by key", "by hash"):
        await push(log, ["with"], key="ada", queue=queue)
        await push(log, ["without"], queue=queue)
        assert {event.data: event.key for event in await pop(log, queue)} == {"with": "ada", "without": None}


@pytest.mark.parametrize("partitioning", [("key", None), ("hash", 2)])
async def test_seek_moves_a_group(
    log: Log, clock: Clock, database_url: str, partitioning: tuple[str, int | None]
) -> None:
    await log.configure(QUEUE, partitioning=partitioning[0], partitions=partitioning[1])
    moments = []
    for i in range(6):
        moments.append(ask(database_url, "SELECT clock_timestamp()") + clock.skew)
        clock.advance(10)
        for key in ("ada", "bob"):
            await push(log, [i], key=key)
        clock.advance(10)
        if i % 2:
            await roll(log)
    everything = await drain(log)
    places: list[tuple[Any, int]] = [("beginning", 0), ("end", 6), ("now", 6), *zip(moments, range(6), strict=True)]
    random.Random(3).shuffle(places)
    for place, first in places:
        assert await log.seek(QUEUE, GROUP, place) == 2
        assert by_key(await drain(log)) == ({k: list(range(first, 6)) for k in ("ada", "bob")} if first < 6 else {})
    position = everything[0].partition
    of_partition = [event for event in everything if event.partition == position]
    for offset in (0, 3, len(of_partition), 1000):
        assert await log.seek(QUEUE, GROUP, offset, partition=position) == 1
        assert data(await drain(log)) == data(of_partition[offset:])
    with pytest.raises(NotFound):
        await log.seek(QUEUE, GROUP, "end", partition="nowhere")
    with pytest.raises(NotFound):
        await log.seek(QUEUE, "nobody", "end")


async def test_the_group_of_a_query_is_reserved(log: Log) -> None:
    queue = await log.configure(QUEUE)
    group = await log.consumer_groups.subscribe(queue, "sums", query_id="sums")
    await push(log, [1, 2], key="ada", ids=["one", "two"])
    with pytest.raises(GroupBusy, match=r"belongs to the query 'sums'.*use another"):
        await pop(log, group="sums")
    with pytest.raises(GroupBusy, match="count events twice; stop the query"):
        await log.seek(QUEUE, "sums", "end")
    with pytest.raises(GroupBusy, match="delete the query instead"):
        await log.delete_group(QUEUE, "sums")
    assert [partition.next_offset for partition in await log.group_positions(QUEUE, group.name)] == [0]


async def test_a_deleted_group_starts_over(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(3))
    await drain(log)
    assert await log.delete_group(QUEUE, GROUP)
    assert not await log.delete_group(QUEUE, GROUP)
    assert await log.groups(QUEUE) == []
    assert data(await drain(log)) == [0, 1, 2]


async def test_positions_behind_are_ordered_by_lag(log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, GROUP)
    await push(log, [1], key="ada")
    await push(log, [1, 2, 3], key="bob")

    assert [(position.partition, position.lag) for position in await log.positions_behind(QUEUE, GROUP)] == [
        ("bob", 3),
        ("ada", 1),
    ]
    await drain(log)
    assert await log.positions_behind(QUEUE, GROUP) == []
    with pytest.raises(NotFound):
        await log.positions_behind(QUEUE, "nobody")
