"""Whether the database answers is known in time, also when it stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from penstock.core.errors import DatabaseUnavailable, SchemaError
from penstock.core.settings import Settings
from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from penstock.db.pool import Database
from tests.db.standing_still import standing_still


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(Settings(database_url=database_url, pool_size=2)) as database:
        yield database


@contextmanager
def frozen(home: Path) -> Iterator[None]:
    pid = embedded.status(home).pid
    assert pid is not None
    with standing_still(pid):
        yield


async def test_a_server_that_stands_still_is_told_of_in_time_and_one_that_goes_on_is_well(home: Path) -> None:
    with EmbeddedPostgres(home) as postgres:
        async with Database(Settings(database_url=postgres.url, pool_size=2)) as database:
            # With a connection from before, and with none.
            for _ in range(2):
                await database.check()
                with frozen(home):
                    for _ in range(2):
                        # Cancelling what it was asked would take longer than this.
                        async with asyncio.timeout(4):
                            with pytest.raises(DatabaseUnavailable, match="does not answer within"):
                                await database.check(0.2)
                await database.check()


async def test_looking_takes_no_connection_of_the_pool(database: Database) -> None:
    async with database.connection(), database.connection():
        await asyncio.gather(*(database.check() for _ in range(20)))
    async with database.connection() as conn:
        row = await (
            await conn.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        ).fetchone()
    # The two of the pool and one more, however many looked at the same time.
    assert row == (3,)


async def test_a_connection_that_was_lost_meanwhile_says_nothing_of_now(database: Database, database_url: str) -> None:
    await database.check()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await database.check()


async def test_who_hangs_up_takes_the_answer_from_nobody_else(database: Database) -> None:
    one, other = (asyncio.create_task(database.check()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await other
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_another_schema_is_told_of_as_such(database: Database) -> None:
    async with database.connection() as conn:
        await conn.execute(
            "DELETE FROM penstock.migrations WHERE version = (SELECT max(version) FROM penstock.migrations)"
        )
    with pytest.raises(SchemaError, match="penstock db upgrade"):
        await database.check()
