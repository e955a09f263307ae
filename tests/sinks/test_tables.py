"""A PostgreSQL table as a sink."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.log.log import Log
from penstock.sinks import Backoff, Sinks, Table
from tests.log.logs import ask, eventually, letters, push

QUICK = Backoff(first=0.01, longest=0.05)


@pytest.fixture
def table(sinks_url: str) -> str:
    name = f"windows_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(
            f"CREATE TABLE {name} (customer text, at timestamptz, total numeric, writes int DEFAULT 7,"
            " PRIMARY KEY (customer, at))"
        )
    return name


async def deliver(log: Log, queue: str, sink: Table, **pace: Any) -> None:
    await Sinks(log=log).add(queue, sink, backoff=QUICK, **pace).run(idle_seconds=0.2)


def rows(url: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        found = conn.execute(f"SELECT customer, total FROM {table} ORDER BY at, customer".encode()).fetchall()  # noqa: S608
    return [(customer, str(total)) for customer, total in found]


async def test_the_last_event_for_a_key_is_the_row_that_stays(log: Log, queue: str, table: str, sinks_url: str) -> None:
    at = "2026-01-31T12:00:00Z"
    await push(log, [{"customer": "ada", "at": at, "total": n, "other": 1} for n in (1, 2)], queue=queue, key="ada")
    await push(log, [{"customer": "bob", "at": at, "total": 5.5}], queue=queue, key="bob")
    await deliver(log, queue, Table(table))
    await push(log, [{"customer": "ada", "at": at, "total": 3}], queue=queue, key="ada")
    await deliver(log, queue, Table(table))

    assert rows(sinks_url, table) == [("ada", "3"), ("bob", "5.5")]


async def test_columns_are_taken_from_where_they_are_said_to_be(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    await push(log, [{"sum": {"total": 4}}], queue=queue, key="ada")
    sink = Table(table, columns={"customer": "$key", "at": "$time", "total": "sum.total"})
    await deliver(log, queue, sink)
    assert rows(sinks_url, table) == [("ada", "4")]
    assert ask(sinks_url, f"SELECT writes FROM {table}") == 7  # noqa: S608


async def test_an_event_that_does_not_fit_is_a_dead_letter_and_the_others_are_rows(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    at = "2026-01-31T12:00:00Z"
    good = [{"customer": f"c{n}", "at": at, "total": n} for n in range(4)]
    await push(
        log, [good[0], {**good[1], "total": "many"}, good[2], [1], {"customer": None}, good[3]], queue=queue, key="a"
    )
    await deliver(log, queue, Table(table))

    assert rows(sinks_url, table) == [("c0", "0"), ("c2", "2"), ("c3", "3")]
    assert len(await letters(log, queue)) == 3


async def test_rows_are_counted_once_although_the_process_is_cut_off(log: Log, queue: str, sinks_url: str) -> None:
    name = f"sums_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(f"CREATE TABLE {name} (n int)")
    await push(log, [{"n": n} for n in range(300)], queue=queue, key="a")
    for _ in range(6):
        sinks = Sinks(log=log).add(queue, Table(name), batch=10, lease_seconds=0.3)
        task = asyncio.create_task(sinks.outlets[0].run(idle_seconds=0.2))

        async def some(sinks: Sinks = sinks, task: Any = task) -> object:
            return sinks.outlets[0].counters.batches >= 2 or task.done()

        await eventually(some)
        task.cancel()
        await asyncio.wait([task])
    await Sinks(log=log).add(queue, Table(name)).run(idle_seconds=0.5)

    once = f"SELECT array_agg(n ORDER BY n) = array_agg(DISTINCT n) AND count(*) = 300 FROM {name}"  # noqa: S608
    assert ask(sinks_url, once)


async def test_a_table_that_is_not_there_is_waited_for(log: Log, queue: str, sinks_url: str) -> None:
    name = f"later_{uuid.uuid4().hex[:8]}"
    await push(log, [{"n": 1}], queue=queue, key="a")
    sinks = Sinks(log=log).add(queue, Table(name), backoff=QUICK, attempts=1)
    running = asyncio.create_task(sinks.run())
    counters = sinks.outlets[0].counters

    async def told() -> object:
        return counters.error is not None and "there is no table" in counters.error

    await eventually(told)
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(f"CREATE TABLE {name} (n int PRIMARY KEY)")

    async def written() -> object:
        return counters.written == 1

    await eventually(written)
    sinks.stop()
    await running
    assert await letters(log, queue) == []


async def test_columns_of_any_name_are_columns_and_nothing_else(log: Log, queue: str, sinks_url: str) -> None:
    hostile = ['a"; DROP TABLE x; --', "50%", "%s", "{key}", "select", "a'b", "$1"]
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in hostile)
    name = f"Weird % {uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(
            sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
                sql.Identifier(name), columns, sql.Identifier(hostile[0])
            )
        )
    await push(log, [{each: f"{each} {n}" for each in hostile} for n in range(2)], queue=queue, key="a")
    await deliver(log, queue, Table(f'"{name}"'))
    with psycopg.connect(sinks_url) as conn:
        found = conn.execute(sql.SQL("SELECT * FROM {} ORDER BY 1").format(sql.Identifier(name))).fetchall()
    assert found == [tuple(f"{each} {n}" for each in hostile) for n in range(2)]
