"""Upgrade of a database of release 0.1.0 by the first of several processes, while others push and pop."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from penstock.core.clock import Clock
from penstock.core.errors import SchemaError
from penstock.db import migrate
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.event import Event
from tests.db.schema_snapshot import schema_snapshot
from tests.log.logs import by_key, drain, held, letters, opened, push, waiting
from tests.migrations import copy_with_one_more
from tests.servers import Server

DUMP = Path(__file__).parent / "upgrades" / "0018.sql"

#: The events of each key of queue `jobs`, in order.
JOBS = {
    key: [{"part": part, "i": i} for part in range(parts) for i in range(5)] for key, parts in (("ada", 4), ("bob", 3))
}


@pytest.fixture
def database_of_0_1(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database("template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(DUMP.read_bytes(), prepare=False)
        yield url


async def work(url: str, name: str) -> list[Event]:
    """Open the log, which upgrades the schema if no other worker has, then push and pop."""
    async with opened(url) as log:
        for n in range(5):
            await push(log, [{"by": name, "n": n}], queue="clicks", key=name)
            await push(log, [{"by": name, "n": n}], queue="jobs", key=name, ids=[f"{name}-{n}"])
        return await drain(log, "jobs", group="mail", batch=3, partitions=2)


async def test_an_upgrade_under_load_neither_loses_nor_repeats_events(
    database_of_0_1: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = copy_with_one_more(tmp_path)
    monkeypatch.setattr(migrate, "MIGRATIONS_DIR", tmp_path)
    names = [f"worker {i}" for i in range(4)]
    # A push of 0.1.0 is in progress when the upgrade starts.
    locks_of_a_push = "SELECT id FROM penstock.partitions ORDER BY id FOR NO KEY UPDATE"
    async with asyncio.TaskGroup() as group, held(database_of_0_1, locks_of_a_push):
        working = [group.create_task(work(database_of_0_1, name)) for name in names]
        await waiting(database_of_0_1)
    async with opened(database_of_0_1) as log:
        async with log.database.connection() as conn:
            await migrate.verify(conn)
            assert (await migrate.status(conn)).current == version
        popped = [event for task in working for event in task.result()] + await drain(log, "jobs", group="mail")
        mail = by_key(sorted(popped, key=lambda event: event.offset))
        # The group resumes at its positions, after four and two events. One event of ada was replayed before part 3.
        assert mail.pop("ada") == [*JOBS["ada"][4:15], JOBS["ada"][3], *JOBS["ada"][15:]]
        assert mail.pop("bob") == JOBS["bob"][2:]
        pushed = {name: [{"by": name, "n": n} for n in range(5)] for name in names}
        assert mail == pushed
        # A new group reads every event.
        assert by_key(await drain(log, "jobs", group="new")) == {**JOBS, **pushed}
        clicks = by_key(await drain(log, "clicks", group="sums"))
        assert {name: clicks.pop(name) for name in names} == pushed
        assert sorted(event["n"] for events in clicks.values() for event in events) == list(range(50))
        assert all(events == sorted(events, key=lambda event: event["n"]) for events in clicks.values())
        dead = await letters(log, "jobs")
        assert [(letter.key, letter.data, letter.error) for letter in dead] == [
            ("bob", JOBS["bob"][0], "sent back"),
            ("bob", JOBS["bob"][1], "sent back"),
        ]
        assert (await log.redrive(DeadLetterFilter(queue="jobs"))).replayed == 2
        assert by_key(await drain(log, "jobs", group="mail")) == {"bob": JOBS["bob"][:2]}


async def test_event_ids_that_0_1_stored_are_still_duplicates(database_of_0_1: str) -> None:
    soon_after = datetime(2025, 11, 15, 19, 12, tzinfo=UTC)
    async with opened(database_of_0_1, clock=Clock(soon_after - datetime.now(UTC))) as log:
        (again,) = await push(log, [{}], queue="jobs", key="ada", ids=["ada-3-0"])
        assert again.duplicate
        (new,) = await push(log, [{}], queue="jobs", key="ada", ids=["ada-4-0"])
        assert (new.duplicate, new.offset) == (False, 21)


async def test_an_upgrade_lets_existing_readers_read_new_relations(database_of_0_1: str, pg18: Server) -> None:
    reader = f"reader of {uuid.uuid4().hex[:8]}"
    with pg18.superuser() as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(reader)))
    async with await AsyncConnection.connect(database_of_0_1, autocommit=True) as conn:
        await conn.execute(sql.SQL("GRANT SELECT ON penstock.lag TO {}").format(sql.Identifier(reader)))
        await migrate.upgrade(conn)
        relations = await (
            await conn.execute(
                "SELECT relname FROM pg_class CROSS JOIN LATERAL aclexplode(relacl)"
                " WHERE grantee = (SELECT oid FROM pg_roles WHERE rolname = %s) ORDER BY relname",
                (reader,),
            )
        ).fetchall()
        assert relations == [("lag",), ("vitals",)]
        await conn.execute(
            sql.SQL("REVOKE SELECT ON penstock.lag, penstock.vitals FROM {}").format(sql.Identifier(reader))
        )
    with pg18.superuser() as conn:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(reader)))


def remove_sql_comments(text: str) -> str:
    return re.sub(r"\s*--[^\n]*", "", text)


def recreate_views(conn: psycopg.Connection[TupleRow]) -> None:
    """Normalize the text of views, as pg_dump and a restore do."""
    views = conn.execute(
        "SELECT oid::regclass::text, pg_get_viewdef(oid) FROM pg_class "
        "WHERE relnamespace = 'penstock'::regnamespace AND relkind = 'v'"
    ).fetchall()
    for name, definition in views:
        conn.execute(f"CREATE OR REPLACE VIEW {name} AS {definition}".encode())


def test_the_baseline_creates_the_schema_of_0_1(database_of_0_1: str, pg18: Server) -> None:
    """Apart from the tables and functions of the queues in it."""
    with psycopg.connect(database_of_0_1) as conn:
        conn.execute(
            """
            DO $$
            DECLARE _statement text;
            BEGIN
                FOR _statement IN
                    SELECT format('DROP TABLE %s', oid::regclass) FROM pg_class
                    WHERE relnamespace = 'penstock'::regnamespace AND relkind = 'r' AND relname ~ '^(chunks|ids)_[0-9]'
                    UNION ALL
                    SELECT format('DROP FUNCTION %s', oid::regprocedure) FROM pg_proc
                    WHERE pronamespace = 'penstock'::regnamespace AND proname ~ '^append_[0-9]'
                LOOP
                    EXECUTE _statement;
                END LOOP;
            END
            $$
            """
        )
        recreate_views(conn)
        schema_of_0_1 = schema_snapshot(conn)
        conn.rollback()
    with pg18.fresh_database("template0") as url, psycopg.connect(url) as conn:
        conn.execute(migrate.BOOKKEEPING)
        conn.execute(migrate.load_migrations()[0].sql.encode())
        recreate_views(conn)
        baseline = schema_snapshot(conn)
    assert remove_sql_comments(baseline) == remove_sql_comments(schema_of_0_1)


async def test_a_schema_older_than_the_baseline_is_refused(database_of_0_1: str) -> None:
    async with await AsyncConnection.connect(database_of_0_1, autocommit=True) as conn:
        await conn.execute("DELETE FROM penstock.migrations WHERE version = 18")
        for operation in (migrate.upgrade, migrate.verify):
            with pytest.raises(SchemaError, match=r"schema 17, .* older than 18, .* of Penstock 0\.1\.0 first"):
                await operation(conn)
        assert (await migrate.status(conn)).current == 17
