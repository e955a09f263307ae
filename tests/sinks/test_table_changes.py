"""The table sink applies the changes of a materialized view."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import random
import uuid
from typing import Any

import psycopg
import pytest

from penstock.core.errors import InvalidOption, SinkRejected
from penstock.log.log import Log
from penstock.sinks import Backoff, Sinks, Table
from penstock.sinks.spec import read_sink
from penstock.sinks.table_changes import read_change
from tests.log.logs import letters, push

QUICK = Backoff(first=0.01, longest=0.05)

Row = dict[str, Any]


@pytest.fixture
def table(sinks_url: str) -> str:
    name = f"totals_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(
            f"CREATE TABLE {name} (city text, day int, total numeric, note text DEFAULT 'new', PRIMARY KEY (city, day))"
        )
    return name


def change(before: Row | None, after: Row | None) -> Row:
    op = "insert" if before is None else "delete" if after is None else "update"
    return {"op": op, "before": before, "after": after, "cycle": 1, "time": "2026-01-31T12:00:00+00:00"}


async def deliver(log: Log, queue: str, sink: Table, **options: Any) -> None:
    await Sinks(log=log).add(queue, sink, backoff=QUICK, **options).run(idle_seconds=0.2)


def rows(url: str, table: str, columns: str = "city, day, total") -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(f"SELECT {columns} FROM {table} ORDER BY city, day".encode()).fetchall()


async def test_the_table_has_the_rows_that_the_changes_leave(log: Log, queue: str, table: str, sinks_url: str) -> None:
    chance = random.Random(1)
    stored: dict[tuple[str, int], Row] = {}
    for _ in range(4):
        for _ in range(60):
            key = chance.choice(["rome", "oslo"]), chance.randrange(4)
            before = stored.get(key)
            after = (
                None
                if before is not None and chance.random() < 0.4
                else {
                    "city": key[0],
                    "day": key[1],
                    "total": chance.randrange(100),
                    "other": [1],
                }
            )
            await push(log, [change(before, after)], queue=queue, key=f"{key}")
            stored.pop(key, None)
            if after is not None:
                stored[key] = after
        await deliver(log, queue, Table(table, changes=True), batch=chance.choice([1, 7, 500]))
        expected = sorted((city, day, row["total"]) for (city, day), row in stored.items())
        assert rows(sinks_url, table) == expected
    assert await letters(log, queue) == []


async def test_a_row_that_changes_its_key_moves(log: Log, queue: str, table: str, sinks_url: str) -> None:
    first, second = {"city": "rome", "day": 1, "total": 5}, {"city": "oslo", "day": 1, "total": 6}
    await push(log, [change(None, first), change(first, second)], queue=queue, key="k")
    await deliver(log, queue, Table(table, changes=True))
    assert rows(sinks_url, table) == [("oslo", 1, 6)]


async def test_a_row_that_comes_back_has_the_defaults_of_the_table(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    row = {"city": "rome", "day": 1, "total": 5}
    noted = row | {"note": "old"}
    await push(log, [change(None, noted), change(noted, row)], queue=queue, key="k")
    await deliver(log, queue, Table(table, changes=True))
    assert rows(sinks_url, table, "note") == [("old",)]
    await push(log, [change(row, None), change(None, row)], queue=queue, key="k")
    await deliver(log, queue, Table(table, changes=True))
    assert rows(sinks_url, table, "note") == [("new",)]


async def test_columns_are_mapped_from_the_fields_of_rows(log: Log, queue: str, table: str, sinks_url: str) -> None:
    mapping = {"city": "place.name", "day": "day", "total": "sum", "note": "$key"}
    one, two = ({"place": {"name": name}, "day": 1, "sum": 2} for name in ("rome", "oslo"))
    await push(log, [change(None, one), change(None, two), change(one, None)], queue=queue, key="k")
    await deliver(log, queue, Table(table, columns=mapping, changes=True))
    assert rows(sinks_url, table, "city, day, total, note") == [("oslo", 1, 2, "k")]


async def test_events_that_are_no_changes_and_rows_without_a_key_are_dead_letters(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    good = {"city": "rome", "day": 1, "total": 5}
    events = [{"total": 1}, change(None, good), change(None, {"city": None, "day": 1, "total": 1}), {"op": "update"}]
    await push(log, events, queue=queue, key="k")
    await deliver(log, queue, Table(table, changes=True), batch=1)
    assert rows(sinks_url, table) == [("rome", 1, 5)]
    errors = [letter.error for letter in await letters(log, queue)]
    assert sum("the event is no change of a row" in error for error in errors) == 2
    assert sum("no value for the column 'city' of the table's key" in error for error in errors) == 1
    assert len(errors) == 3


async def test_a_table_without_a_key_is_refused(log: Log, queue: str, sinks_url: str) -> None:
    name = f"keyless_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(f"CREATE TABLE {name} (city text)".encode())
        async with await psycopg.AsyncConnection.connect(sinks_url) as own:
            await push(log, [change(None, {"city": "rome"})], queue=queue)
            events = await log.browse(queue)
            with pytest.raises(Exception, match="has no primary key, which changes of rows need"):
                await Table(name, changes=True).write_in(own, events)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"op": "move", "before": {}, "after": {}},
        {"op": "insert", "before": {}, "after": {}},
        {"op": "delete"},
    ],
)
def test_a_change_has_the_rows_of_its_operation(data: Any) -> None:
    with pytest.raises(SinkRejected, match="the event is no change of a row"):
        read_change(data)


def test_the_text_of_a_sink_names_the_table_for_changes() -> None:
    sink = read_sink("changes:app.totals")
    assert isinstance(sink, Table)
    assert sink.name == "table:app.totals"
    with pytest.raises(InvalidOption, match="changes must be True or False"):
        Table("totals", changes="yes")  # type: ignore[arg-type]  # the mistake of a user
