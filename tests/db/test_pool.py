from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import penstock
from penstock.core.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseVersionError,
    SchemaError,
)
from penstock.core.settings import LIBPQ_VARIABLES, Settings
from penstock.db import migrate, pool
from penstock.db.embedded.server import EmbeddedPostgres
from penstock.db.pool import Database, open_pool
from tests.db.embedded_server import kill_server
from tests.servers import Server

PASSWORD = "s3cret"  # noqa: S105
VARIABLES = {"PGHOST": "host", "PGPORT": "port", "PGDATABASE": "dbname", "PGUSER": "user"}


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in ("penstock", "psycopg", "psycopg.pool"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


@pytest.fixture
def no_libpq_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    for name in ("DATABASE_URL", "PENSTOCK_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def shown(error: BaseException) -> str:
    """Everything of an error that may end up on a screen or in a log."""
    return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


async def ask(database: Database, question: str, timeout: float | None = None) -> object:
    async with database.connection(timeout) as conn:
        row = await (await conn.execute(question.encode())).fetchone()
        return row[0] if row else None


async def ask_until_answered(database: Database) -> int:
    """Return how many connections were found dead before one answered."""
    for dead in range(database.settings.pool_size + 1):
        try:
            assert await ask(database, "SELECT 1") == 1
        except OperationalError:
            continue
        return dead
    raise AssertionError("every connection of the pool was dead, and then one more")


class TestOpening:
    async def test_a_database_is_brought_up_to_date(self, empty_database_url_any: str) -> None:
        async with Database(Settings(database_url=empty_database_url_any)) as database:
            async with database.connection() as conn:
                status = await migrate.status(conn)
            assert status.current == status.target > 0
            assert database.conninfo == empty_database_url_any

    async def test_connections_commit_by_themselves_in_utc_and_prepare_at_first_use(
        self, database_url_any: str
    ) -> None:
        url = f"{database_url_any}&options=-c%20timezone%3DAsia/Tokyo"
        async with Database(Settings(database_url=url)) as database, database.connection() as conn:
            assert conn.autocommit
            assert conn.prepare_threshold == 0
            names = ("TimeZone", "client_encoding", "application_name")
            shown = [await (await conn.execute(f"SHOW {name}".encode())).fetchone() for name in names]
            assert shown == [("UTC",), ("UTF8",), ("penstock",)]

    async def test_a_name_in_the_connection_string_is_kept(self, database_url: str) -> None:
        settings = Settings(database_url=f"{database_url}&application_name=billing")
        async with Database(settings) as database:
            assert await ask(database, "SHOW application_name") == "billing"

    async def test_no_more_connections_than_the_pool_may_have(self, database_url: str) -> None:
        settings = Settings(database_url=database_url, pool_size=1)
        async with Database(settings) as database, database.connection():
            with pytest.raises(DatabaseUnavailable, match="connections to spare"):
                await database.connection(timeout=0.05).__aenter__()

    async def test_a_pool_needs_a_database_to_be_named(self) -> None:
        with pytest.raises(ConfigurationError, match="no database is named"):
            await open_pool(Settings(database_url=None))

    async def test_a_closed_database_says_so(self, database_url: str) -> None:
        database = await Database(Settings(database_url=database_url)).open()
        await database.close()
        await database.close()
        with pytest.raises(DatabaseError, match="not open"):
            _ = database.pool


class TestVersion:
    async def test_a_server_that_is_too_old_is_refused(
        self, database_url_any: str, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = server.label.removeprefix("pg")
        monkeypatch.setattr(pool, "OLDEST_SERVER", 99)
        with pytest.raises(DatabaseVersionError) as caught:
            await Database(Settings(database_url=f"{database_url_any}&password={PASSWORD}")).open()
        assert f"is PostgreSQL {version}, and Penstock needs 99 or later: upgrade it, or set" in str(caught.value)
        assert f"host={conninfo_to_dict(database_url_any)['host']}" in str(caught.value)
        assert PASSWORD not in shown(caught.value)

    async def test_a_server_newer_than_tested_is_used_with_a_warning(
        self, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(pool, "NEWEST_TESTED_SERVER", 17)
        with caplog.at_level(logging.WARNING, "penstock"):
            async with Database(Settings(database_url=database_url)) as database:
                assert await ask(database, "SELECT 1") == 1
        assert "PostgreSQL 18 is newer than any that this Penstock was tested with (17)" in caplog.messages

    async def test_the_servers_of_this_machine_are_neither(
        self, database_url_any: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with Database(Settings(database_url=database_url_any)):
            assert "newer" not in caplog.text


class TestOutOfReach:
    @pytest.mark.parametrize(
        "url",
        [
            f"host={{tmp_path}} user=app password={PASSWORD} dbname=events",
            f"postgresql://app:{PASSWORD}@127.0.0.1:1/events",
            f"postgresql://app:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/events",
            f"postgresql://app@127.0.0.1:1/events?password={PASSWORD}&sslpassword={PASSWORD}",
            f"host=127.0.0.1 port=1 user=app dbname=events password={PASSWORD} sslmode=nonsense",
            f"host=127.0.0.1 port=1 user=app dbname=events password={PASSWORD} connect_timeout=soon",
        ],
    )
    async def test_it_is_named_and_its_password_is_not(
        self, url: str, tmp_path: Path, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        database = Database(Settings(database_url=url.format(tmp_path=tmp_path)))
        with pytest.raises(DatabaseUnavailable, match=r"^PostgreSQL cannot be reached \(.*dbname=events") as caught:
            await database.open()
        assert "PENSTOCK_DATABASE_URL" in str(caught.value)
        assert "password=***" in str(caught.value)
        assert PASSWORD not in shown(caught.value) + everything_logged.text + f"{database!r} {database.settings!r}"

    async def test_a_wrong_password_is_not_shown_either(
        self, home: Path, postgres: EmbeddedPostgres, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        postgres.start()
        with psycopg.connect(postgres.url, autocommit=True) as superuser:
            superuser.execute("CREATE ROLE app LOGIN PASSWORD 'another'")
            (home / "pg18" / "pg_hba.conf").write_text("local all penstock trust\nlocal all all scram-sha-256\n")
            superuser.execute("SELECT pg_reload_conf()")
        where = make_conninfo(postgres.url, user="app", password=PASSWORD)
        database = Database(Settings(database_url=where))
        with pytest.raises(DatabaseUnavailable, match='password authentication failed for user "app"') as caught:
            await database.open()
        assert PASSWORD not in shown(caught.value) + everything_logged.text

    async def test_a_server_that_goes_away_is_missed_without_its_password(
        self, home: Path, postgres: EmbeddedPostgres, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        url = make_conninfo(postgres.start(), password=PASSWORD)
        async with Database(Settings(database_url=url)) as database:
            kill_server(home)
            with pytest.raises(OperationalError):
                await ask(database, "SELECT 1")
            with pytest.raises(DatabaseUnavailable) as caught:
                await ask(database, "SELECT 1", timeout=0.5)
            assert "error connecting in 'penstock'" in everything_logged.text
            assert PASSWORD not in shown(caught.value) + everything_logged.text + f"{database.pool!r}"


class TestRecovery:
    async def test_a_connection_that_the_server_ended_is_replaced(self, database_url_any: str, server: Server) -> None:
        async with Database(Settings(database_url=database_url_any)) as database:
            ended = await ask(database, "SELECT pg_backend_pid()")
            with server.superuser() as superuser:
                superuser.execute("SELECT pg_terminate_backend(%s, 5000)", [ended])
            assert await ask_until_answered(database) == 1
            assert await ask(database, "SELECT pg_backend_pid()") != ended

    async def test_all_connections_ended_at_once_are_replaced(self, database_url: str, pg18: Server) -> None:
        async with Database(Settings(database_url=database_url, pool_size=3)) as database:
            everyone = asyncio.Barrier(3)

            async def borrow() -> int:
                async with database.connection() as conn:
                    await everyone.wait()
                    return conn.info.backend_pid

            pids = await asyncio.gather(*(borrow() for _ in range(3)))
            with pg18.superuser() as superuser:
                superuser.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) AS pid", [pids])
            assert await ask_until_answered(database) <= 3

    async def test_a_new_connection_is_set_up_like_the_first(self, database_url: str, pg18: Server) -> None:
        names = ("TimeZone", "plan_cache_mode", "enable_seqscan", "jit")
        async with Database(Settings(database_url=database_url, pool_size=1)) as database:
            before = [await ask(database, f"SHOW {name}") for name in names]
            with pg18.superuser() as superuser:
                ended = await ask(database, "SELECT pg_backend_pid()")
                superuser.execute("SELECT pg_terminate_backend(%s, 5000)", [ended])
            await ask_until_answered(database)
            assert [await ask(database, f"SHOW {name}") for name in names] == before

    async def test_a_server_that_was_restarted_is_used_again(self, home: Path, postgres: EmbeddedPostgres) -> None:
        async with Database(Settings(database_url=postgres.start())) as database:
            started = "SELECT pg_postmaster_start_time()"
            before = await ask(database, started)
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
            await ask_until_answered(database)
            assert await ask(database, started) != before

    async def test_a_server_that_was_long_gone_is_found_again_soon(
        self, home: Path, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pool, "_RECONNECT_SECONDS", 1.0)
        async with Database(Settings(database_url=postgres.start())) as database:
            await asyncio.to_thread(postgres.stop)
            with pytest.raises(DatabaseUnavailable):
                await ask(database, "SELECT 1", timeout=0.5)
            # Left to itself, the pool would be at a pause of 16 seconds by then.
            while database.pool.get_stats().get("connections_errors", 0) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await asyncio.to_thread(postgres.start)
            assert await ask(database, "SELECT 1", timeout=5) == 1


class TestWithoutAutoUpgrade:
    @pytest.fixture
    def newer_package(self, tmp_path: Path) -> Path:
        """This package with one more migration."""
        copy = tmp_path / "newer"
        shutil.copytree(Path(penstock.__file__).parent, copy / "penstock")
        number = len(migrate.load_migrations()) + 1
        migration = copy / "penstock" / "db" / "migrations" / f"{number:04}_more.sql"
        migration.write_text("CREATE TABLE penstock.more (id int);\n")
        return copy

    async def test_a_missing_schema_is_refused_and_nothing_is_made(self, empty_database_url_any: str) -> None:
        settings = Settings(database_url=empty_database_url_any, auto_upgrade=False)
        with pytest.raises(SchemaError) as caught:
            await Database(settings).open()
        assert str(caught.value) == "this database has no Penstock schema yet: run `penstock db upgrade`"
        async with await AsyncConnection.connect(empty_database_url_any) as conn:
            assert await (await conn.execute("SELECT to_regnamespace('penstock')")).fetchone() == (None,)

    @pytest.mark.parametrize("auto_upgrade", [False, True])
    def test_an_old_schema_is_refused(self, database_url: str, newer_package: Path, auto_upgrade: bool) -> None:
        program = """
import asyncio, sys
from penstock.core.errors import SchemaError
from penstock.core.settings import Settings
from penstock.db.pool import Database

async def main():
    try:
        async with Database(Settings(database_url=sys.argv[1], auto_upgrade=sys.argv[2] == "True")):
            print("open")
    except SchemaError as error:
        print(error)

asyncio.run(main())
"""
        command = [sys.executable, "-c", program, database_url, str(auto_upgrade)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(newer_package), os.environ.get("PYTHONPATH", "")])}
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()
        has = len(migrate.load_migrations())
        refused = f"this database has Penstock schema {has} and this package needs {has + 1}: run `penstock db upgrade`"
        assert said == ("open" if auto_upgrade else refused)

    @pytest.mark.parametrize("auto_upgrade", [False, True])
    async def test_a_newer_schema_is_refused_either_way(self, database_url: str, auto_upgrade: bool) -> None:
        newer = len(migrate.load_migrations()) + 1
        with psycopg.connect(database_url, autocommit=True) as conn:
            conn.execute("INSERT INTO penstock.migrations (version, name, checksum) VALUES (%s, 'x', 'x')", [newer])
        with pytest.raises(SchemaError, match=rf"upgraded by a newer Penstock \(schema {newer}\).*upgrade the package"):
            await Database(Settings(database_url=database_url, auto_upgrade=auto_upgrade)).open()

    async def test_an_up_to_date_schema_is_fine(self, database_url: str) -> None:
        async with Database(Settings(database_url=database_url, auto_upgrade=False)) as database:
            assert await ask(database, "SELECT 1") == 1


class TestLibpqVariables:
    async def test_they_are_enough(self, database_url_any: str, no_libpq_variables: pytest.MonkeyPatch) -> None:
        parts = conninfo_to_dict(database_url_any)
        for name, key in VARIABLES.items():
            no_libpq_variables.setenv(name, str(parts[key]))
        async with Database(Settings.from_env()) as database, database.connection() as conn:
            assert conn.info.dbname == parts["dbname"]
            assert database.conninfo == ""

    async def test_a_service_is_enough(
        self, database_url: str, no_libpq_variables: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        parts = conninfo_to_dict(database_url)
        lines = "\n".join(f"{key}={value}" for key, value in parts.items())
        (tmp_path / "services").write_text(f"[events]\n{lines}\napplication_name=from the service\n")
        no_libpq_variables.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        no_libpq_variables.setenv("PGSERVICE", "events")
        async with Database(Settings.from_env()) as database, database.connection() as conn:
            assert conn.info.dbname == parts["dbname"]
            assert conn.info.get_parameters()["application_name"] == "from the service"

    async def test_what_they_say_about_a_connection_counts(
        self, database_url: str, no_libpq_variables: pytest.MonkeyPatch
    ) -> None:
        no_libpq_variables.setenv("PGAPPNAME", "billing")
        async with Database(Settings(database_url=database_url)) as database:
            assert await ask(database, "SHOW application_name") == "billing"

    async def test_a_server_out_of_reach_is_called_theirs(
        self, no_libpq_variables: pytest.MonkeyPatch, tmp_path: Path, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        for name, value in {"PGHOST": str(tmp_path), "PGUSER": "app", "PGPASSWORD": PASSWORD}.items():
            no_libpq_variables.setenv(name, value)
        with pytest.raises(DatabaseUnavailable, match="the PostgreSQL that PGHOST, PGSERVICE and") as caught:
            await Database(Settings.from_env()).open()
        assert str(tmp_path) in str(caught.value)
        assert PASSWORD not in shown(caught.value) + everything_logged.text

    def test_without_any_the_database_is_embedded(self, no_libpq_variables: pytest.MonkeyPatch) -> None:
        assert not set(LIBPQ_VARIABLES) & set(os.environ)
        assert Settings.from_env().database_url is None


async def test_who_is_called_off_as_a_connection_comes_is_called_off(database_url: str) -> None:
    async with Database(Settings(database_url=database_url, pool_size=1)) as database:

        async def use() -> None:
            async with database.connection():
                await asyncio.Event().wait()

        for steps in range(12):
            async with database.connection():
                waiting = asyncio.create_task(use())
                while not database.pool.get_stats().get("requests_waiting"):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting], timeout=20)
            assert waiting.cancelled(), f"after {steps} steps"
        assert await ask(database, "SELECT 1") == 1
