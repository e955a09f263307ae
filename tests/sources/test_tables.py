"""A PostgreSQL table as a source."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg
import pytest

from penstock.core.errors import InvalidRequest
from penstock.log.log import Log
from penstock.sources import Feed, Table
from tests.log.logs import drain, eventually


@pytest.fixture
def table(sinks_url: str) -> str:
    name = f"source_{uuid.uuid4().hex[:8]}"
    run(sinks_url, f"CREATE TABLE {name} (id serial PRIMARY KEY, who text, at timestamptz DEFAULT clock_timestamp())")
    return name


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement.encode())


async def numbers(log: Log, queue: str) -> list[Any]:
    return [event.data["id"] for event in await drain(log, queue)]


async def test_new_rows_are_read_once_in_order(log: Log, queue: str, table: str, sinks_url: str) -> None:
    run(sinks_url, f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, 25)")  # noqa: S608
    for _ in range(2):
        source = Table(table, column="id", url=sinks_url, follow=False)
        await Feed(log, source, queue, name=queue, key_field="who", batch=7).run()
        run(sinks_url, f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, 5)")  # noqa: S608
    await Feed(log, Table(table, column="id", url=sinks_url, follow=False), queue, name=queue, key_field="who").run()

    assert await numbers(log, queue) == list(range(1, 36))


async def test_changed_rows_are_read_again(log: Log, queue: str, table: str, sinks_url: str) -> None:
    run(sinks_url, f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, 3)")  # noqa: S608

    async def look() -> None:
        await Feed(log, Table(table, column="at", url=sinks_url, follow=False), queue, name=queue).run()

    await look()
    run(sinks_url, f"UPDATE {table} SET who = 'b', at = clock_timestamp() WHERE id = 2")  # noqa: S608
    await look()

    assert [(e.data["id"], e.data["who"]) for e in await drain(log, queue)] == [(1, "a"), (2, "a"), (3, "a"), (2, "b")]


async def test_a_row_that_commits_late_is_not_passed_over(log: Log, queue: str, table: str, sinks_url: str) -> None:
    async def look() -> None:
        await Feed(log, Table(table, column="id", url=sinks_url), queue, name=queue).run(idle_seconds=0)

    with psycopg.connect(sinks_url) as slow:
        slow.execute(f"INSERT INTO {table} (who) VALUES ('slow')".encode())  # noqa: S608
        run(sinks_url, f"INSERT INTO {table} (who) VALUES ('quick')")  # noqa: S608
        await look()
        assert await numbers(log, queue) == []  # the second is there, and the first may still come
        slow.commit()
    await look()
    assert await numbers(log, queue) == [1, 2]


async def test_a_notification_brings_the_next_look_at_once(
    log: Log, queue: str, table: str, sinks_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.feed._LOOK_SECONDS", 3600.0)
    channel = f"changed_{table}"
    feed = Feed(log, Table(table, column="id", url=sinks_url, notify=channel), queue, name=queue)
    running = asyncio.create_task(feed.run())

    async def listening() -> object:
        with psycopg.connect(sinks_url) as conn:
            row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s", [f'%FROM "{table}%'])
            return (row.fetchone() or [0])[0]

    await eventually(listening)
    run(sinks_url, f"INSERT INTO {table} (who) VALUES ('a')")  # noqa: S608

    async def pushed() -> object:
        run(sinks_url, f"NOTIFY {channel}")
        return feed.pushed == 1

    await eventually(pushed)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(("name", "column", "says"), [("nowhere", "id", "no table"), (None, "size", "no column")])
async def test_what_is_not_there_is_named(
    log: Log, queue: str, table: str, sinks_url: str, name: str | None, column: str, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        await Feed(log, Table(name or table, column=column, url=sinks_url), queue, name=queue).run()
