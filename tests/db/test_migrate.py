from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from penstock.core.errors import (
    DatabaseError,
    InvalidOption,
    SchemaError,
)
from penstock.core.settings import Settings
from penstock.db import migrate
from penstock.db.embedded import server as embedded
from penstock.db.embedded.postmaster import USER
from penstock.db.pool import open_pool
from tests.db.schema_snapshot import schema_snapshot
from tests.servers import ROLE, Server

STEPS = {
    "0001_first.sql": "CREATE TABLE penstock.a (id int PRIMARY KEY);\nCREATE TABLE penstock.b (id int);\n",
    "0002_second.sql": "-- 100 % sure\nALTER TABLE penstock.a ADD COLUMN note text DEFAULT 'it''s';\n",
    "0003_third.sql": "CREATE VIEW penstock.v AS SELECT id FROM penstock.a;\n",
}


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    for name, text in STEPS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def connect(url: str) -> AsyncConnection[TupleRow]:
    return await AsyncConnection.connect(url, autocommit=True)


async def applied(conn: AsyncConnection[TupleRow]) -> list[tuple[int, str]]:
    cursor = await conn.execute("SELECT version, name FROM penstock.migrations ORDER BY applied_at")
    return [(version, name) for version, name in await cursor.fetchall()]


def psql(url: str, script: str, *, stop_on_error: bool, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a database administrator would. By default psql goes on after an error."""
    options = ["-X", "-q", "-o", "/dev/null", *(["-v", "ON_ERROR_STOP=1"] if stop_on_error else [])]
    command = [str(embedded.bundled_bin_dir() / "psql"), *options, "-d", url]
    env = {**os.environ, **environment}
    return subprocess.run(command, input=script, check=False, capture_output=True, encoding="utf-8", env=env)


def snapshot(url: str) -> str:
    with psycopg.connect(url) as conn:
        return schema_snapshot(conn)


class TestUpgrade:
    async def test_an_empty_database_gets_every_migration_in_order(
        self, empty_database_url_any: str, steps: Path
    ) -> None:
        async with await connect(empty_database_url_any) as conn:
            before = await migrate.status(conn, directory=steps)
            assert (before.current, before.target, len(before.pending)) == (0, 3, 3)
            done = await migrate.upgrade(conn, directory=steps)
            assert [str(migration) for migration in done] == ["0001_first", "0002_second", "0003_third"]
            assert await applied(conn) == [(1, "first"), (2, "second"), (3, "third")]
            assert await migrate.status(conn, directory=steps) == migrate.MigrationStatus(3, 3, ())
            await migrate.verify(conn, directory=steps)
            assert await migrate.upgrade(conn, directory=steps) == []

    async def test_single_steps_give_the_same_schema_as_one_upgrade(
        self, empty_database_url: str, pg18: Server, steps: Path
    ) -> None:
        async with await connect(empty_database_url) as conn:
            for version in (1, 2, 3):
                done = await migrate.upgrade(conn, target=version, directory=steps)
                assert [migration.version for migration in done] == [version]
        with pg18.fresh_database("template0") as other_url:
            async with await connect(other_url) as conn:
                await migrate.upgrade(conn, directory=steps)
            assert snapshot(empty_database_url) == snapshot(other_url)

    async def test_a_connection_without_autocommit_works(self, empty_database_url: str, steps: Path) -> None:
        async with await AsyncConnection.connect(empty_database_url) as conn:
            await migrate.upgrade(conn, directory=steps)
            await conn.rollback()
            await migrate.verify(conn, directory=steps)

    async def test_many_connections_at_once_apply_each_migration_once(
        self, empty_database_url_any: str, steps: Path
    ) -> None:
        async def upgrade() -> list[migrate.Migration]:
            async with await connect(empty_database_url_any) as conn:
                return await migrate.upgrade(conn, directory=steps)

        done = await asyncio.gather(*(upgrade() for _ in range(12)))
        assert sorted(migration.version for applied_here in done for migration in applied_here) == [1, 2, 3]

    @pytest.mark.slow
    async def test_concurrent_upgrades_override_the_isolation_level_and_timeouts_of_the_role(
        self, empty_database_url: str, steps: Path
    ) -> None:
        # Long enough for every statement that does not wait. The wait for the lock is longer.
        limit_seconds = 3

        async def upgrade() -> list[migrate.Migration]:
            async with await AsyncConnection.connect(
                empty_database_url,
                autocommit=True,
                options=f"-c default_transaction_isolation=serializable -c statement_timeout={limit_seconds}s",
            ) as conn:
                return await migrate.upgrade(conn, directory=steps)

        async with await connect(empty_database_url) as holder:
            # Not in a transaction, which would see one snapshot of pg_stat_activity.
            await holder.execute("SELECT pg_advisory_lock(%s)", [migrate.ADVISORY_LOCK])
            tasks = [asyncio.create_task(upgrade()) for _ in range(4)]
            # Until all of them have waited for longer than the timeout of the role.
            waiting = """
                SELECT count(*) = 4 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                WHERE l.locktype = 'advisory' AND NOT l.granted
                  AND clock_timestamp() - a.query_start > make_interval(secs => %s)
            """
            while await (await holder.execute(waiting, [limit_seconds + 0.1])).fetchone() != (True,):
                assert not any(task.done() for task in tasks), await asyncio.gather(*tasks)
                await asyncio.sleep(0.01)
        done = await asyncio.gather(*tasks)
        assert sorted(migration.version for applied_here in done for migration in applied_here) == [1, 2, 3]

    async def test_a_migration_that_deadlocks_with_other_clients_is_retried(self, pg18: Server, steps: Path) -> None:
        locks = "LOCK TABLE penstock.a; SELECT pg_advisory_xact_lock(77); LOCK TABLE penstock.b"
        (steps / "0003_third.sql").write_text(locks)

        waiting = "SELECT count(*) > 0 FROM pg_locks WHERE pid = %s AND locktype = %s AND NOT granted"

        async def wait_for_lock(conn: AsyncConnection[TupleRow], kind: str) -> None:
            while await (await holder.execute(waiting, [conn.info.backend_pid, kind])).fetchone() != (True,):
                assert not upgrading.done(), await upgrading
                await asyncio.sleep(0.01)

        with pg18.fresh_database("template0") as url:
            url = pg18.url(str(conninfo_to_dict(url)["dbname"]), USER)
            async with (
                await connect(f"{url}&options=-cdeadlock_timeout%3D10ms") as conn,
                await connect(f"{url}&options=-cdeadlock_timeout%3D1min") as other,
                await connect(url) as holder,
            ):
                await migrate.upgrade(conn, target=2, directory=steps)
                await holder.execute("SELECT pg_advisory_lock(77)")
                upgrading = asyncio.create_task(migrate.upgrade(conn, directory=steps))
                await wait_for_lock(conn, "advisory")
                async with other.transaction():
                    await other.execute("LOCK TABLE penstock.b")
                    locking = asyncio.create_task(other.execute("LOCK TABLE penstock.a"))
                    await wait_for_lock(other, "relation")
                    await holder.execute("SELECT pg_advisory_unlock(77)")
                    await locking
                assert [migration.version for migration in await upgrading] == [3]

    def test_many_processes_at_once_apply_each_migration_once(self, empty_database_url: str, steps: Path) -> None:
        program = """
import asyncio, sys
from pathlib import Path
from psycopg import AsyncConnection
from penstock.db import migrate

async def main():
    async with await AsyncConnection.connect(sys.argv[1], autocommit=True) as conn:
        for migration in await migrate.upgrade(conn, directory=Path(sys.argv[2])):
            print(migration.version)

asyncio.run(main())
"""
        command = [sys.executable, "-c", program, empty_database_url, str(steps)]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        outputs = [process.communicate()[0] for process in running]
        assert [process.returncode for process in running] == [0, 0, 0, 0]
        assert sorted("".join(outputs).split()) == ["1", "2", "3"]

    async def test_a_failed_migration_leaves_nothing_and_those_before_it_stay(
        self, empty_database_url: str, steps: Path
    ) -> None:
        (steps / "0003_third.sql").write_text("CREATE TABLE penstock.c (id int);\nSELECT 1 / 0;\n")
        async with await connect(empty_database_url) as conn:
            with pytest.raises(DatabaseError, match=r"0003_third failed.*division by zero"):
                await migrate.upgrade(conn, directory=steps)
            assert await applied(conn) == [(1, "first"), (2, "second")]
            assert await (await conn.execute("SELECT to_regclass('penstock.c')")).fetchone() == (None,)

    async def test_a_target_beyond_the_last_version_is_refused(self, empty_database_url: str, steps: Path) -> None:
        async with await connect(empty_database_url) as conn:
            with pytest.raises(
                InvalidOption, match=r"no schema version 4: this package knows 0 \(no schema\) and 1 to 3"
            ):
                await migrate.upgrade(conn, target=4, directory=steps)

    async def test_a_role_that_owns_the_schema_can_upgrade(
        self, empty_database_url: str, pg18: Server, steps: Path
    ) -> None:
        with psycopg.connect(empty_database_url, autocommit=True) as owner:
            database = owner.info.dbname
        with pg18.superuser(database) as superuser:
            superuser.execute(f"ALTER DATABASE {database} OWNER TO penstock".encode())
            async with await connect(empty_database_url) as conn:
                with pytest.raises(DatabaseError, match=f'CREATE SCHEMA penstock AUTHORIZATION "{ROLE}"'):
                    await migrate.upgrade(conn, directory=steps)
                superuser.execute(f"CREATE SCHEMA penstock AUTHORIZATION {ROLE}".encode())
                assert len(await migrate.upgrade(conn, directory=steps)) == 3

    async def test_an_up_to_date_database_needs_no_create_privilege(self, database_url: str, pg18: Server) -> None:
        async with await connect(database_url) as conn:
            with pg18.superuser(conn.info.dbname) as superuser:
                superuser.execute("ALTER SCHEMA penstock OWNER TO penstock")
                superuser.execute("GRANT USAGE ON SCHEMA penstock TO public")
            assert await migrate.upgrade(conn) == []


class TestSession:
    """Connections of the pool have planner settings for lookups by key, which must not affect migrations."""

    async def test_a_migration_runs_with_the_planner_settings_of_the_server(
        self, empty_database_url_any: str, steps: Path
    ) -> None:
        changed = (
            "SELECT name, setting FROM pg_settings"
            " WHERE source = 'session' AND category LIKE 'Query Tuning%' ORDER BY name"
        )
        (steps / "0003_third.sql").write_text(f"CREATE TABLE penstock.settings_seen AS {changed};\n")
        pool = await open_pool(Settings(database_url=empty_database_url_any))
        async with pool, pool.connection() as conn:
            before = await (await conn.execute(changed.encode())).fetchall()
            assert ("enable_seqscan", "off") in before
            await migrate.upgrade(conn, directory=steps)
            seen = await (await conn.execute("SELECT name, setting FROM penstock.settings_seen")).fetchall()
            plain = await AsyncConnection.connect(empty_database_url_any)
            async with plain:
                for name, setting in seen:
                    assert await (await plain.execute("SELECT current_setting(%s)", [name])).fetchone() == (setting,)
            assert {name for name, _ in seen} == {name for name, _ in before}
            assert await (await conn.execute(changed.encode())).fetchall() == before

    async def test_status_and_verify_work_on_a_pool_connection(self, empty_database_url_any: str) -> None:
        pool = await open_pool(Settings(database_url=empty_database_url_any))
        async with pool, pool.connection() as conn:
            assert (await migrate.status(conn)).current == 0
            newest = (await migrate.upgrade(conn))[-1].version
            await migrate.verify(conn)
            assert await migrate.status(conn) == migrate.MigrationStatus(newest, newest, ())


class TestVerify:
    async def test_a_missing_schema_is_refused(self, empty_database_url: str, steps: Path) -> None:
        async with await connect(empty_database_url) as conn:
            with pytest.raises(SchemaError, match="no Penstock schema yet: run `penstock db upgrade`"):
                await migrate.verify(conn, directory=steps)

    async def test_an_older_schema_is_refused(self, empty_database_url: str, steps: Path) -> None:
        async with await connect(empty_database_url) as conn:
            await migrate.upgrade(conn, target=2, directory=steps)
            with pytest.raises(SchemaError, match="schema 2 and this package needs 3: run `penstock db upgrade`"):
                await migrate.verify(conn, directory=steps)

    async def test_a_newer_schema_is_refused(self, empty_database_url: str, steps: Path) -> None:
        async with await connect(empty_database_url) as conn:
            await migrate.upgrade(conn, directory=steps)
            (steps / "0003_third.sql").unlink()
            newer = r"newer Penstock \(schema 3\); this package knows 2: upgrade the package"
            with pytest.raises(SchemaError, match=newer):
                await migrate.verify(conn, directory=steps)
            with pytest.raises(SchemaError, match=newer):
                await migrate.upgrade(conn, directory=steps)

    async def test_a_migration_changed_after_it_was_applied_is_refused(
        self, empty_database_url: str, steps: Path
    ) -> None:
        async with await connect(empty_database_url) as conn:
            await migrate.upgrade(conn, target=2, directory=steps)
            (steps / "0002_second.sql").write_text("SELECT 1;\n")
            changed = "0002_second of this package did not create this database: it was applied as"
            with pytest.raises(SchemaError, match=changed):
                await migrate.verify(conn, directory=steps)
            with pytest.raises(SchemaError, match=changed):
                await migrate.upgrade(conn, directory=steps)

    async def test_a_gap_in_the_history_is_refused(self, empty_database_url: str, steps: Path) -> None:
        async with await connect(empty_database_url) as conn:
            await migrate.upgrade(conn, directory=steps)
            await conn.execute("DELETE FROM penstock.migrations WHERE version = 2")
            with pytest.raises(SchemaError, match=r"0002_second .* never applied"):
                await migrate.verify(conn, directory=steps)


class TestFiles:
    @pytest.mark.parametrize("name", ["0005_gap.sql", "4_short.sql", "0004-dash.sql", "0003_twice.sql"])
    def test_a_file_with_a_wrong_number_is_refused(self, steps: Path, name: str) -> None:
        (steps / name).write_text("SELECT 1;")
        with pytest.raises(SchemaError, match="is not the next migration"):
            migrate.load_migrations(steps)

    def test_line_endings_do_not_change_a_checksum(self, steps: Path) -> None:
        before = [migration.checksum for migration in migrate.load_migrations(steps)]
        for path in steps.iterdir():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        assert [migration.checksum for migration in migrate.load_migrations(steps)] == before


class TestScript:
    async def test_the_script_creates_the_same_schema_and_records_as_an_upgrade(
        self, empty_database_url_any: str, server: Server, steps: Path
    ) -> None:
        async with await connect(empty_database_url_any) as conn:
            await conn.execute(migrate.render_sql(directory=steps).encode())
            await migrate.verify(conn, directory=steps)
        with server.fresh_database("template0") as other_url:
            async with await connect(other_url) as conn:
                await migrate.upgrade(conn, directory=steps)
            assert snapshot(empty_database_url_any) == snapshot(other_url)

    async def test_the_script_can_start_from_any_version(self, empty_database_url: str, steps: Path) -> None:
        async with await connect(empty_database_url) as conn:
            await migrate.upgrade(conn, target=2, directory=steps)
            script = migrate.render_sql(2, directory=steps)
            await conn.execute(script.encode())
            await migrate.verify(conn, directory=steps)
            with pytest.raises(psycopg.errors.RaiseException, match="0003_third does not come next"):
                await conn.execute(script.encode())

    @pytest.mark.parametrize("stop_on_error", [True, False])
    def test_running_the_script_twice_with_psql_changes_nothing(
        self, empty_database_url_any: str, database_url_any: str, stop_on_error: bool
    ) -> None:
        first = psql(empty_database_url_any, migrate.render_sql(), stop_on_error=stop_on_error)
        assert (first.returncode, first.stderr) == (0, "")
        assert snapshot(empty_database_url_any) == snapshot(database_url_any)
        second = psql(empty_database_url_any, migrate.render_sql(), stop_on_error=stop_on_error)
        assert second.returncode == (3 if stop_on_error else 0)
        assert "does not come next: the schema is at version" in second.stderr
        assert snapshot(empty_database_url_any) == snapshot(database_url_any)

    async def test_a_schema_created_with_psql_is_accepted(self, empty_database_url_any: str) -> None:
        psql(empty_database_url_any, migrate.render_sql(), stop_on_error=True)
        async with await connect(empty_database_url_any) as conn:
            await migrate.verify(conn)
            assert await migrate.upgrade(conn) == []

    def test_the_script_does_not_depend_on_the_client_encoding(self, empty_database_url: str, steps: Path) -> None:
        (steps / "0002_second.sql").write_text("COMMENT ON TABLE penstock.a IS 'größer × 2';\n", encoding="utf-8")
        psql(empty_database_url, migrate.render_sql(directory=steps), stop_on_error=True, PGCLIENTENCODING="LATIN1")
        with psycopg.connect(empty_database_url) as conn:
            comment = conn.execute("SELECT obj_description('penstock.a'::regclass)").fetchone()
        assert comment == ("größer × 2",)

    def test_a_script_from_an_unknown_version_is_refused(self, steps: Path) -> None:
        with pytest.raises(InvalidOption, match="no schema version 9"):
            migrate.render_sql(9, directory=steps)


class TestThisPackage:
    async def test_an_upgrade_creates_the_schema_of_the_test_template(
        self, empty_database_url_any: str, database_url_any: str
    ) -> None:
        async with await connect(empty_database_url_any) as conn:
            await migrate.upgrade(conn)
        assert snapshot(empty_database_url_any) == snapshot(database_url_any)
