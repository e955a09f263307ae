"""SQL and clients consume the events of one group together, with the same leases, retries and dead letters."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import dict_row

from penstock.core.errors import ConfigurationError, InvalidOption
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.log.logs import GROUP, QUEUE, by_key, data, drain, lag, letters, pop, push, roll

READABLE = {"readable_from_sql": True}


def pop_sql(sql: Connection[Any], events: int = 1000, seconds: float | None = None) -> list[dict[str, Any]]:
    with sql.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM penstock.pop(%s, %s, %s, %s)", (QUEUE, GROUP, events, seconds)).fetchall()


def ack_sql(sql: Connection[Any], events: list[dict[str, Any]]) -> int:
    row = sql.execute(
        "SELECT penstock.ack(%s, %s, VARIADIC %s)", (QUEUE, GROUP, [event["receipt"] for event in events])
    ).fetchone()
    assert row is not None
    return int(row[0])


def nack_sql(sql: Connection[Any], event: dict[str, Any], error: str = "on purpose") -> None:
    sql.execute("SELECT penstock.nack(%s, %s, %s, error => %s)", (QUEUE, GROUP, event["receipt"], error))


def subscribe(sql: Connection[Any]) -> None:
    assert sql.execute("SELECT penstock.subscribe(%s, %s)", (QUEUE, GROUP)).fetchone() == (True,)
    assert sql.execute("SELECT penstock.subscribe(%s, %s)", (QUEUE, GROUP)).fetchone() == (False,)


@pytest.mark.parametrize("partitions", [None, 3])
async def test_an_event_has_what_was_pushed(log: Log, sql: Connection[Any], partitions: int | None) -> None:
    await log.configure(QUEUE, READABLE, partitioning="hash" if partitions else "key", partitions=partitions)
    time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    value = {"text": 'a "quoted" line\nand ünï©ødé \u0000', "numbers": [1, 2.5]}
    headers = {"from": "te\u0000st"}
    await log.push(
        [Batch(QUEUE, [{"data": value, "key": "ada", "id": "i", "time": time, "headers": headers}, {"data": None}])]
    )
    subscribe(sql)
    found = sorted(pop_sql(sql), key=lambda event: str(event["key"]))
    assert [(event["data"], event["key"], event["event_id"], event["headers"]) for event in found] == [
        (None, None, None, None),
        (value, "ada", "i", headers),
    ]
    assert found[1]["event_time"] == time
    assert ack_sql(sql, found) == 2
    assert await lag(log) == 0


async def test_a_lease_is_exclusive_and_ends(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, READABLE)
    await push(log, [1, 2, 3], key="ada")
    subscribe(sql)
    events = pop_sql(sql, 2, seconds=60)
    assert [event["data"] for event in events] == [1, 2]
    assert pop_sql(sql) == []
    assert await pop(log) == []
    assert ack_sql(sql, events) == 2
    assert ack_sql(sql, events) == 0  # a repetition
    late = pop_sql(sql, 1, seconds=0.001)
    again = await pop(log)
    assert data(again) == [3]
    with pytest.raises(psycopg.Error, match="the lease on offset 2 of partition") as refused:
        ack_sql(sql, late)
    assert refused.value.sqlstate == "PS003"
    assert all(await log.ack(again))


async def test_a_transaction_that_rolls_back_has_leased_nothing(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, READABLE)
    await push(log, [1, 2], key="ada")
    subscribe(sql)
    with sql.transaction(force_rollback=True):
        assert ack_sql(sql, pop_sql(sql, 1)) == 1
    with sql.transaction():
        assert ack_sql(sql, pop_sql(sql, 1)) == 1
        assert await pop(log) == []
    assert data(await drain(log)) == [2]


async def test_failures_are_retried_and_become_dead_letters(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, {**READABLE, "retry_limit": 1, "retry_delay_ms": 0})
    await log.push([Batch(QUEUE, [{"data": n, "key": "ada", "id": f"id {n}"} for n in range(4)])])
    subscribe(sql)
    first = pop_sql(sql)
    nack_sql(sql, first[1])
    assert [(event["data"], event["attempts"]) for event in pop_sql(sql, 1)] == [(0, 0)]
    sql.execute("UPDATE penstock.positions SET available_at = 'epoch'")
    events = pop_sql(sql)
    assert [(event["data"], event["attempts"]) for event in events] == [(0, 0), (1, 1), (2, 0), (3, 0)]
    nack_sql(sql, events[1], "the second time")
    ack_sql(sql, [events[0], events[3]])
    (letter,) = await letters(log)
    assert (letter.data, letter.error, letter.attempts, letter.key, letter.event_id, letter.group) == (
        1,
        "the second time",
        2,
        "ada",
        "id 1",
        GROUP,
    )
    assert await lag(log) == 0
    # A redriven event is for this group, and updates its dead letter if it fails again.
    await log.subscribe(QUEUE, "other")
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 1
    for _ in range(2):
        (event,) = pop_sql(sql)
        assert event["data"] == 1
        nack_sql(sql, event, "still")
    (again,) = await letters(log)
    assert (again.id, again.error, len(again.history)) == (letter.id, "still", 1)


async def test_sql_and_a_client_share_a_group(log: Log, sql: Connection[Any]) -> None:
    """Random pops, acks and failures of both: each event is completed once, in order per key."""
    chance = random.Random(3)
    await log.configure(QUEUE, {**READABLE, "retry_limit": 100, "retry_delay_ms": 0}, partitioning="hash", partitions=3)
    keys = [f"key {n}" for n in range(7)]
    pushed = 0
    subscribe(sql)
    completed: dict[str, list[int]] = {}
    for _ in range(120):
        if pushed < 400:
            events = [{"data": pushed + n, "key": chance.choice(keys)} for n in range(chance.randint(1, 8))]
            await log.push([Batch(QUEUE, events)])
            pushed += len(events)
        if chance.random() < 0.05:
            await roll(log)
        size = chance.randint(1, 9)
        if chance.random() < 0.5:
            for event in (popped := pop_sql(sql, size)):
                if chance.random() < 0.1:
                    nack_sql(sql, event)
                    break
                ack_sql(sql, [event])
                completed.setdefault(event["key"], []).append(event["data"])
            assert len(popped) <= size
            sql.execute("UPDATE penstock.positions SET available_at = 'epoch' WHERE lease_id IS NOT NULL")
        else:
            for native in await pop(log, batch=size, partitions=2):
                failed = chance.random() < 0.1
                (result,) = await log.ack([native], not failed)
                if not result:
                    break
                if not failed:
                    completed.setdefault(str(native.key), []).append(native.data)
            sql.execute("UPDATE penstock.positions SET available_at = 'epoch' WHERE lease_id IS NOT NULL")
    for key, rest in by_key(await drain(log)).items():
        completed.setdefault(str(key), []).extend(rest)
    assert sorted(n for numbers in completed.values() for n in numbers) == list(range(pushed))
    for key, numbers in completed.items():
        assert numbers == sorted(numbers), key


async def test_events_of_every_segment_and_epoch_are_read(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, READABLE)
    subscribe(sql)
    for number in range(3):
        await push(log, [number], key="ada")
        await roll(log)
    await log.repartition(QUEUE, "hash", 2)
    await push(log, [3], key="ada")
    found: list[int] = []
    while events := pop_sql(sql):
        found += [event["data"] for event in events]
        ack_sql(sql, events)
    assert found == [0, 1, 2, 3]


async def test_an_event_that_kills_its_consumers_becomes_a_dead_letter(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, {**READABLE, "expiry_limit": 2})
    await push(log, [1, 2], key="ada")
    subscribe(sql)
    for expected in ([1, 2], [1]):
        assert [event["data"] for event in pop_sql(sql, seconds=0.001)] == expected
        sql.execute("SELECT pg_sleep(0.01)")
    events = pop_sql(sql)
    assert [event["data"] for event in events] == [2]
    (letter,) = await letters(log)
    assert (letter.data, letter.stage) == (1, "lease")


async def test_delays_hold_for_sql(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE, {**READABLE, "delay_seconds": 3600})
    await push(log, [1], key="ada")
    subscribe(sql)
    assert pop_sql(sql) == []
    await log.configure(QUEUE, {"delay_seconds": 0, "quiet_seconds": 3600})
    assert pop_sql(sql) == []
    await log.configure(QUEUE, {"quiet_seconds": 0})
    assert len(pop_sql(sql)) == 1


async def test_what_cannot_be_read_is_refused_by_name(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no queue 'none'"):
        sql.execute("SELECT * FROM penstock.pop('none', 'g')")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="is not readable from SQL"):
        pop_sql(sql)
    await log.configure(QUEUE, READABLE)
    with pytest.raises(psycopg.errors.UndefinedObject, match="has no group 'workers'"):
        pop_sql(sql)
    subscribe(sql)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="were stored before the queue was readable"):
        pop_sql(sql)
    await drain(log)
    log.catalog._forget(QUEUE)
    await push(log, [2], key="ada")
    assert [event["data"] for event in pop_sql(sql)] == [2]
    for receipt in ("", "x", "1-2-3", None):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not a receipt"):
            sql.execute("SELECT penstock.ack(%s, %s, %s)", (QUEUE, GROUP, receipt))
    with pytest.raises((InvalidOption, ConfigurationError)):
        await log.configure(QUEUE, {"encrypted": True})
