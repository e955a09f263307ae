"""A PostgreSQL table as a source."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from typing import Any

import psycopg
import pytest

from penstock.core.errors import InvalidRequest
from penstock.log.log import Log
from penstock.sources import SourceRunner, Table
from tests.conditions import eventually_async
from tests.log.logs import drain


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
        await SourceRunner(log, source, queue, name=queue, key_field="who", batch=7).run()
        run(sinks_url, f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, 5)")  # noqa: S608
    source = Table(table, column="id", url=sinks_url, follow=False)
    await SourceRunner(log, source, queue, name=queue, key_field="who").run()

    assert await numbers(log, queue) == list(range(1, 36))


async def test_changed_rows_are_read_again(log: Log, queue: str, table: str, sinks_url: str) -> None:
    run(sinks_url, f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, 3)")  # noqa: S608

    async def look() -> None:
        await SourceRunner(log, Table(table, column="at", url=sinks_url, follow=False), queue, name=queue).run()

    await look()
    run(sinks_url, f"UPDATE {table} SET who = 'b', at = clock_timestamp() WHERE id = 2")  # noqa: S608
    await look()

    assert [(e.data["id"], e.data["who"]) for e in await drain(log, queue)] == [(1, "a"), (2, "a"), (3, "a"), (2, "b")]


async def test_a_row_committed_late_is_not_skipped(log: Log, queue: str, table: str, sinks_url: str) -> None:
    async def look() -> None:
        await SourceRunner(log, Table(table, column="id", url=sinks_url), queue, name=queue).run(idle_seconds=0)

    with psycopg.connect(sinks_url) as slow:
        slow.execute(f"INSERT INTO {table} (who) VALUES ('slow')".encode())  # noqa: S608
        run(sinks_url, f"INSERT INTO {table} (who) VALUES ('quick')")  # noqa: S608
        await look()
        assert await numbers(log, queue) == []  # the second is there, and the first may still come
        slow.commit()
    await look()
    assert await numbers(log, queue) == [1, 2]


async def test_a_row_of_a_transaction_without_an_id_is_not_skipped(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    # Between taking the number and writing the row, a transaction has no id: a trigger makes that last. Whoever takes
    # the first number of a sequence has one.
    run(sinks_url, f"INSERT INTO {table} (who) VALUES ('first')")  # noqa: S608
    run(
        sinks_url,
        f"CREATE FUNCTION wait_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" PERFORM pg_advisory_xact_lock_shared(hashtext('{table}')); RETURN NEW; END $$;"
        f" CREATE TRIGGER slow BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.who = 'slow')"
        f" EXECUTE FUNCTION wait_{table}()",
    )
    insert = f"INSERT INTO {table} (who) VALUES (%s)".encode()  # noqa: S608

    async def look() -> list[Any]:
        await SourceRunner(log, Table(table, column="id", url=sinks_url), queue, name=queue).run(idle_seconds=0)
        return await numbers(log, queue)

    async with await psycopg.AsyncConnection.connect(sinks_url) as holds:
        await holds.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [table])
        async with await psycopg.AsyncConnection.connect(sinks_url, autocommit=True) as slow:
            writing = asyncio.create_task(slow.execute(insert, ["slow"]))

            async def waits() -> object:
                asked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = %s"
                return await (await holds.execute(asked, [slow.info.backend_pid])).fetchone()

            await eventually_async(waits)
            with psycopg.connect(sinks_url, autocommit=True) as quick:
                quick.execute(insert, ["quick"])
            meanwhile = await look()
            await holds.rollback()
            await writing
    assert [meanwhile, await look()] == [[], [1, 2, 3]]


async def test_a_row_of_a_prepared_transaction_is_not_skipped(table: str, sinks_url: str) -> None:
    source = Table(table, column="id", url=sinks_url)

    async def look() -> list[Any]:
        return [json.loads(line)["id"] for line in (await source.read(None, 10)).lines]

    with psycopg.connect(sinks_url) as slow:
        slow.execute(f"INSERT INTO {table} (who) VALUES ('slow')".encode())  # noqa: S608
        run(sinks_url, f"INSERT INTO {table} (who) VALUES ('quick')")  # noqa: S608
        found = [await look()]
        slow.execute(f"PREPARE TRANSACTION '{table}'".encode())
    found.append(await look())
    run(sinks_url, f"COMMIT PREPARED '{table}'")
    found.append(await look())
    await source.close()
    assert found == [[], [], [1, 2]]


@pytest.mark.long
@pytest.mark.parametrize("column", ["id", "at"])
async def test_rows_of_concurrent_writers_are_read_once_in_order(
    log: Log, queue: str, table: str, sinks_url: str, column: str
) -> None:
    insert = f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, %s)".encode()  # noqa: S608

    async def write(until: float) -> None:
        async with await psycopg.AsyncConnection.connect(sinks_url) as conn:
            while time.monotonic() < until:
                for _ in range(random.randint(1, 3)):
                    await conn.execute(insert, [random.randint(1, 4)])
                    await asyncio.sleep(random.expovariate(100))
                await (conn.rollback() if random.random() < 0.2 else conn.commit())

    feed = SourceRunner(log, Table(table, column=column, url=sinks_url), queue, name=queue, batch=20)
    reading = asyncio.create_task(feed.run())
    await asyncio.gather(*(write(time.monotonic() + 10) for _ in range(6)))
    with psycopg.connect(sinks_url) as conn:
        rows = conn.execute(f"SELECT id FROM {table} ORDER BY {column}, id".encode()).fetchall()  # noqa: S608

    async def all_of_them() -> object:
        return feed.pushed >= len(rows) or (reading.done() and reading.result())

    await eventually_async(all_of_them)
    feed.stop()
    await reading
    assert await numbers(log, queue) == [id for (id,) in rows]


async def test_rows_with_equal_values_need_a_key(log: Log, queue: str, table: str, sinks_url: str) -> None:
    run(sinks_url, f"INSERT INTO {table} (who, at) SELECT 'a', now() FROM generate_series(1, 25)")  # noqa: S608
    source = Table(table, column="at", url=sinks_url, follow=False)
    await SourceRunner(log, source, queue, name=queue, batch=7).run()
    assert await numbers(log, queue) == list(range(1, 26))

    run(sinks_url, f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey")
    with pytest.raises(InvalidRequest, match="no primary key"):
        await SourceRunner(log, Table(table, column="at", url=sinks_url), queue, name=f"{queue} again").run()

    run(sinks_url, f"CREATE UNIQUE INDEX ON {table} (id)")
    source = Table(table, column="id", url=sinks_url, follow=False)
    await SourceRunner(log, source, queue, name=f"{queue} by index", batch=7).run()
    assert await numbers(log, queue) == list(range(1, 26))


async def test_a_position_without_a_key_is_continued(log: Log, queue: str, table: str, sinks_url: str) -> None:
    run(sinks_url, f"INSERT INTO {table} (who) SELECT 'a' FROM generate_series(1, 3)")  # noqa: S608
    with psycopg.connect(sinks_url) as conn:
        first = conn.execute(f"SELECT min(at)::text FROM {table}".encode()).fetchone()  # noqa: S608
    source = Table(table, column="at", url=sinks_url)
    read = await source.read({"after": list(first or ())}, 10)
    await source.close()
    assert [json.loads(line)["id"] for line in read.lines] == [2, 3]


async def test_rows_younger_than_behind_seconds_are_read_later(
    log: Log, queue: str, table: str, sinks_url: str
) -> None:
    run(sinks_url, f"INSERT INTO {table} (who, at) VALUES ('old', now() - interval '1 hour'), ('new', now())")  # noqa: S608
    source = Table(table, column="at", url=sinks_url, behind_seconds=600)
    await SourceRunner(log, source, queue, name=queue).run(idle_seconds=0)
    assert await numbers(log, queue) == [1]
    source = Table(table, column="id", url=sinks_url, behind_seconds=5)
    with pytest.raises(InvalidRequest, match="needs a date"):
        await SourceRunner(log, source, queue, name=f"{queue} 2").run()


@pytest.mark.parametrize(
    ("kind", "behind"), [("timestamp(0)", 1), ("timestamptz(3)", 0.001), ("date", 180_000), ("second", 1)]
)
async def test_a_coarse_time_column_needs_behind_seconds(
    log: Log, queue: str, table: str, sinks_url: str, kind: str, behind: float
) -> None:
    run(sinks_url, "DROP DOMAIN IF EXISTS second CASCADE; CREATE DOMAIN second AS timestamptz(0)")
    run(sinks_url, f"ALTER TABLE {table} ALTER at TYPE {kind}")
    run(sinks_url, f"INSERT INTO {table} (at) VALUES ('2026-01-31 12:00')")  # noqa: S608

    async def look(**options: Any) -> None:
        source = Table(table, column="at", url=sinks_url, follow=False, **options)
        await SourceRunner(log, source, queue, name=queue).run()

    for told in ({}, {"behind_seconds": behind / 2}):
        with pytest.raises(InvalidRequest, match=f"so coarse .* behind_seconds={behind:g} or more"):
            await look(**told)
    await look(behind_seconds=behind)
    run(sinks_url, f"CREATE UNIQUE INDEX ON {table} (at)")
    await look()
    assert await numbers(log, queue) == [1]


async def test_a_notification_starts_the_next_read(log: Log, queue: str, table: str, sinks_url: str) -> None:
    channel = f"changed_{table}"
    source = Table(table, column="id", url=sinks_url, notify=channel)
    feed = SourceRunner(log, source, queue, name=queue, poll_seconds=3600.0)
    running = asyncio.create_task(feed.run())

    async def listening() -> object:
        with psycopg.connect(sinks_url) as conn:
            row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s", [f'%FROM %"{table}" t%'])
            return (row.fetchone() or [0])[0]

    await eventually_async(listening)
    run(sinks_url, f"INSERT INTO {table} (who) VALUES ('a')")  # noqa: S608

    async def pushed() -> object:
        run(sinks_url, f"NOTIFY {channel}")
        return feed.pushed == 1

    await eventually_async(pushed)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(("name", "column", "says"), [("nowhere", "id", "no table"), (None, "size", "no column")])
async def test_a_missing_table_or_column_is_refused(
    log: Log, queue: str, table: str, sinks_url: str, name: str | None, column: str, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        await SourceRunner(log, Table(name or table, column=column, url=sinks_url), queue, name=queue).run()
