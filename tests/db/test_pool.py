from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import traceback
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

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
from tests.db.embedded.server_process import kill_server
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


def render(error: BaseException) -> str:
    """Return everything of an error that may be printed or logged."""
    return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


async def ask(database: Database, question: str, timeout: float | None = None) -> object:
    async with database.connection(timeout) as conn:
        row = await (await conn.execute(question.encode())).fetchone()
        return row[0] if row else None


async def count_dead_connections(database: Database) -> int:
    """Return how many connections failed before one worked."""
    for dead in range(database.settings.pool_size + 1):
        try:
            assert await ask(database, "SELECT 1") == 1
        except OperationalError:
            continue
        return dead
    raise AssertionError("more connections were dead than the pool has")


class TestOpening:
    async def test_open_upgrades_the_schema(self, empty_database_url_any: str) -> None:
        async with Database(Settings(database_url=empty_database_url_any)) as database:
            async with database.connection() as conn:
                status = await migrate.status(conn)
            assert status.current == status.target > 0
            assert database.conninfo == empty_database_url_any

    async def test_connections_autocommit_in_utc_and_prepare_at_first_use(self, database_url_any: str) -> None:
        url = f"{database_url_any}&options=-c%20timezone%3DAsia/Tokyo"
        async with Database(Settings(database_url=url)) as database, database.connection() as conn:
            assert conn.autocommit
            assert conn.prepare_threshold == 0
            names = ("TimeZone", "client_encoding", "application_name")
            values = [await (await conn.execute(f"SHOW {name}".encode())).fetchone() for name in names]
            assert values == [("UTC",), ("UTF8",), ("penstock",)]

    async def test_the_connection_string_sets_the_application_name(self, database_url: str) -> None:
        settings = Settings(database_url=f"{database_url}&application_name=billing")
        async with Database(settings) as database:
            assert await ask(database, "SHOW application_name") == "billing"

    async def test_a_full_pool_raises_after_the_timeout(self, database_url: str) -> None:
        settings = Settings(database_url=database_url, pool_size=1)
        async with Database(settings) as database, database.connection():
            with pytest.raises(DatabaseUnavailable, match="has free connections"):
                await database.connection(timeout=0.05).__aenter__()

    async def test_a_pool_needs_a_database_url(self) -> None:
        with pytest.raises(ConfigurationError, match="no database is configured"):
            await open_pool(Settings(database_url=None))

    async def test_a_closed_database_raises(self, database_url: str) -> None:
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
        assert PASSWORD not in render(caught.value)

    async def test_a_server_newer_than_tested_is_used_with_a_warning(
        self, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(pool, "NEWEST_TESTED_SERVER", 17)
        with caplog.at_level(logging.WARNING, "penstock"):
            async with Database(Settings(database_url=database_url)) as database:
                assert await ask(database, "SELECT 1") == 1
        assert (
            "PostgreSQL 18 is newer than the newest version that this Penstock was tested with (17)" in caplog.messages
        )

    async def test_supported_servers_cause_no_warning(
        self, database_url_any: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with Database(Settings(database_url=database_url_any)):
            assert "newer" not in caplog.text


class TestUnreachable:
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
    async def test_the_error_names_the_server_without_its_password(
        self, url: str, tmp_path: Path, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        database = Database(Settings(database_url=url.format(tmp_path=tmp_path)))
        with pytest.raises(DatabaseUnavailable, match=r"^PostgreSQL cannot be reached \(.*dbname=events") as caught:
            await database.open()
        assert "PENSTOCK_DATABASE_URL" in str(caught.value)
        assert "password=***" in str(caught.value)
        assert PASSWORD not in render(caught.value) + everything_logged.text + f"{database!r} {database.settings!r}"

    async def test_the_error_says_that_the_connection_was_refused(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        database = Database(Settings(database_url=f"postgresql://app@127.0.0.1:{port}/events"))
        with pytest.raises(DatabaseUnavailable, match=rf"port {port} failed.*refused. Check that it runs"):
            await database.open()

    async def test_the_error_does_not_show_a_wrong_password(
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
        assert PASSWORD not in render(caught.value) + everything_logged.text

    async def test_the_error_after_a_crash_does_not_show_the_password(
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
            assert PASSWORD not in render(caught.value) + everything_logged.text + f"{database.pool!r}"


class TestRecovery:
    async def test_a_connection_that_the_server_closed_is_replaced(self, database_url_any: str, server: Server) -> None:
        async with Database(Settings(database_url=database_url_any)) as database:
            ended = await ask(database, "SELECT pg_backend_pid()")
            with server.superuser() as superuser:
                superuser.execute("SELECT pg_terminate_backend(%s, 5000)", [ended])
            assert await count_dead_connections(database) == 1
            assert await ask(database, "SELECT pg_backend_pid()") != ended

    async def test_all_connections_closed_at_once_are_replaced(self, database_url: str, pg18: Server) -> None:
        async with Database(Settings(database_url=database_url, pool_size=3)) as database:
            barrier = asyncio.Barrier(3)

            async def get_pid() -> int:
                async with database.connection() as conn:
                    await barrier.wait()
                    return conn.info.backend_pid

            pids = await asyncio.gather(*(get_pid() for _ in range(3)))
            with pg18.superuser() as superuser:
                superuser.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) AS pid", [pids])
            assert await count_dead_connections(database) <= 3

    async def test_a_replaced_connection_has_the_same_settings(self, database_url: str, pg18: Server) -> None:
        names = ("TimeZone", "plan_cache_mode", "enable_seqscan", "jit")
        async with Database(Settings(database_url=database_url, pool_size=1)) as database:
            before = [await ask(database, f"SHOW {name}") for name in names]
            with pg18.superuser() as superuser:
                ended = await ask(database, "SELECT pg_backend_pid()")
                superuser.execute("SELECT pg_terminate_backend(%s, 5000)", [ended])
            await count_dead_connections(database)
            assert [await ask(database, f"SHOW {name}") for name in names] == before

    async def test_a_restarted_server_is_used_again(self, home: Path, postgres: EmbeddedPostgres) -> None:
        async with Database(Settings(database_url=postgres.start())) as database:
            started = "SELECT pg_postmaster_start_time()"
            before = await ask(database, started)
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
            await count_dead_connections(database)
            assert await ask(database, started) != before

    @pytest.mark.slow
    async def test_a_server_that_was_down_for_long_is_used_again_soon(
        self, home: Path, postgres: EmbeddedPostgres
    ) -> None:
        pool = await open_pool(Settings(database_url=postgres.start()), reconnect_seconds=1.0)
        async with pool:
            await asyncio.to_thread(postgres.stop)
            with pytest.raises(PoolTimeout):
                await pool.getconn(timeout=0.5)
            # By default, the pauses of the pool would have grown to 16 seconds by then.
            while pool.get_stats().get("connections_errors", 0) < 5:  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(0.05)
            await asyncio.to_thread(postgres.start)
            async with pool.connection(timeout=5) as conn:
                assert await (await conn.execute("SELECT 1")).fetchone() == (1,)


class TestWithoutAutoUpgrade:
    @pytest.fixture
    def newer_package(self, tmp_path: Path) -> Path:
        """This package with one more migration."""
        copy = tmp_path / "newer"
        shutil.copytree(Path(penstock.__file__).parent, copy / "penstock")
        number = migrate.load_migrations()[-1].version + 1
        migration = copy / "penstock" / "db" / "migrations" / f"{number:04}_more.sql"
        migration.write_text("CREATE TABLE penstock.more (id int);\n")
        return copy

    async def test_a_missing_schema_is_refused_and_not_created(self, empty_database_url_any: str) -> None:
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
        output = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()
        has = migrate.load_migrations()[-1].version
        refused = f"this database has Penstock schema {has} and this package needs {has + 1}: run `penstock db upgrade`"
        assert output == ("open" if auto_upgrade else refused)

    @pytest.mark.parametrize("auto_upgrade", [False, True])
    async def test_a_newer_schema_is_refused_either_way(self, database_url: str, auto_upgrade: bool) -> None:
        newer = migrate.load_migrations()[-1].version + 1
        with psycopg.connect(database_url, autocommit=True) as conn:
            conn.execute("INSERT INTO penstock.migrations (version, name, checksum) VALUES (%s, 'x', 'x')", [newer])
        with pytest.raises(SchemaError, match=rf"upgraded by a newer Penstock \(schema {newer}\).*upgrade the package"):
            await Database(Settings(database_url=database_url, auto_upgrade=auto_upgrade)).open()

    async def test_an_up_to_date_schema_is_accepted(self, database_url: str) -> None:
        async with Database(Settings(database_url=database_url, auto_upgrade=False)) as database:
            assert await ask(database, "SELECT 1") == 1


class TestLibpqVariables:
    async def test_they_select_the_database(
        self, database_url_any: str, no_libpq_variables: pytest.MonkeyPatch
    ) -> None:
        parts = conninfo_to_dict(database_url_any)
        for name, key in VARIABLES.items():
            no_libpq_variables.setenv(name, str(parts[key]))
        async with Database(Settings.from_env()) as database, database.connection() as conn:
            assert conn.info.dbname == parts["dbname"]
            assert database.conninfo == ""

    async def test_a_service_file_selects_the_database(
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

    async def test_they_set_connection_options(self, database_url: str, no_libpq_variables: pytest.MonkeyPatch) -> None:
        no_libpq_variables.setenv("PGAPPNAME", "billing")
        async with Database(Settings(database_url=database_url)) as database:
            assert await ask(database, "SHOW application_name") == "billing"

    async def test_the_error_of_an_unreachable_server_names_them(
        self, no_libpq_variables: pytest.MonkeyPatch, tmp_path: Path, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        for name, value in {"PGHOST": str(tmp_path), "PGUSER": "app", "PGPASSWORD": PASSWORD}.items():
            no_libpq_variables.setenv(name, value)
        with pytest.raises(DatabaseUnavailable, match="the PostgreSQL of PGHOST, PGSERVICE and") as caught:
            await Database(Settings.from_env()).open()
        assert str(tmp_path) in str(caught.value)
        assert PASSWORD not in render(caught.value) + everything_logged.text

    def test_without_any_the_database_is_embedded(self, no_libpq_variables: pytest.MonkeyPatch) -> None:
        assert not set(LIBPQ_VARIABLES) & set(os.environ)
        assert Settings.from_env().database_url is None


async def test_a_cancellation_is_kept_when_a_connection_arrives_at_the_same_time(database_url: str) -> None:
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
