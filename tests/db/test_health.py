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
from tests.frozen_process import freeze_process


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(Settings(database_url=database_url, pool_size=2)) as database:
        yield database


@contextmanager
def frozen(home: Path) -> Iterator[None]:
    pid = embedded.status(home).pid
    assert pid is not None
    with freeze_process(pid):
        yield


@pytest.mark.slow
async def test_the_check_keeps_to_its_timeout_on_a_hanging_server_and_recovers_with_it(home: Path) -> None:
    with EmbeddedPostgres(home) as postgres:
        async with Database(Settings(database_url=postgres.url, pool_size=2)) as database:
            # Once with an open connection, once without.
            for _ in range(2):
                await database.check()
                with frozen(home):
                    for _ in range(2):
                        # Cancelling the statement would take longer than this.
                        async with asyncio.timeout(4):
                            with pytest.raises(DatabaseUnavailable, match="does not respond within"):
                                await database.check(0.2)
                await database.check()


async def test_concurrent_checks_use_one_connection_outside_of_the_pool(database: Database) -> None:
    async with database.connection(), database.connection():
        await asyncio.gather(*(database.check() for _ in range(20)))
    async with database.connection() as conn:
        row = await (
            await conn.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        ).fetchone()
    # Two of the pool and one for all checks.
    assert row == (3,)


async def test_a_connection_lost_since_the_last_check_is_replaced(database: Database, database_url: str) -> None:
    await database.check()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await database.check()


async def test_a_cancelled_check_does_not_cancel_concurrent_ones(database: Database) -> None:
    one, other = (asyncio.create_task(database.check()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await other
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_a_check_reports_another_schema(database: Database) -> None:
    async with database.connection() as conn:
        await conn.execute(
            "DELETE FROM penstock.migrations WHERE version = (SELECT max(version) FROM penstock.migrations)"
        )
    with pytest.raises(SchemaError, match="penstock db upgrade"):
        await database.check()
