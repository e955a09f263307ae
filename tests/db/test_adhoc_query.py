"""Queries that people type, over the read-only login, including attempts to do more than read."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock import SyncPenstock
from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings
from penstock.db.adhoc_query import AdhocLimits, AdhocQueries, AdhocResult, StatementRefused
from penstock.db.pool import Database
from penstock.db.readonly_login import READER_ROLE, ReadOnlyLogin, ReadOnlyLoginMissing, render_reader_role
from tests.servers import ROLE, TEMPLATE, Server

_NAME = "reader_of_tests"

#: Queries that would read secrets or change something.
_FORBIDDEN_QUERIES = [
    "SELECT * FROM penstock.api_keys",
    "SELECT body FROM penstock.chunks_1_1",
    "SELECT data FROM penstock.dead_letters",
    "SELECT * FROM penstock.requests",
    "SELECT plan FROM penstock.cycles",
    "SELECT rolpassword FROM pg_authid",
    "SELECT pg_read_file('postgresql.conf')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/x')",
    "SELECT lo_create(4711)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT set_config('role', 'app', false)",
    "SELECT set_config('session_authorization', 'penstock', false)",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "SELECT dblink('dbname=postgres', 'SELECT 1')",
    "SELECT nextval('penstock.queues_id_seq')",
    "SELECT query_to_xml('DELETE FROM penstock.queues', true, true, '')",
    "SELECT database_to_xml(true, true, '')",
    "WITH gone AS (DELETE FROM penstock.queues RETURNING id) SELECT * FROM gone",
    "SELECT * FROM penstock.queues FOR UPDATE",
]

#: Texts that are not one query.
_OTHER_STATEMENTS = [
    "SET ROLE app",
    "RESET ROLE",
    "RESET SESSION AUTHORIZATION",
    "SET statement_timeout = 0",
    "SELECT 1; DROP TABLE penstock.queues",
    "COMMIT; DELETE FROM penstock.queues",
    "DO $$ BEGIN PERFORM 1; END $$",
    "COPY penstock.queues TO '/tmp/x'",
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "CREATE TEMP TABLE mine (n int)",
    "SELECT 1 INTO mine",
    "CREATE EXTENSION dblink",
    "ALTER ROLE reader_of_tests PASSWORD 'mine'",
    "NOTIFY penstock",
    "LISTEN penstock",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1) AS q, (SELECT 2",
    "DELETE FROM penstock.queues",
    "CALL nothing()",
    "VACUUM",
    "",
    ";",
    "SELECT '\x00'",
]


@pytest.fixture(scope="module")
def store(pg18: Server) -> Iterator[str]:
    """A database with a queue, and the login that an administrator created."""
    with pg18.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        with pg18.superuser(name) as conn:
            conn.execute(render_reader_role(owner=ROLE, database=name, reader=_NAME).encode())
        with SyncPenstock(url) as q:
            q.queue("orders").create()
            q.queue("orders").push({"data": {"secret": 1}})
        yield url
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE {_NAME}".encode())


@pytest.fixture
async def queries(store: str) -> AsyncIterator[AdhocQueries]:
    settings = Settings(database_url=store, reader_url=make_conninfo(store, user=_NAME))
    async with Database(settings) as database:
        yield AdhocQueries(ReadOnlyLogin(database), AdhocLimits(seconds=5, rows=50))


async def _state(store: str) -> object:
    async with await psycopg.AsyncConnection.connect(store) as conn:
        cursor = await conn.execute(
            "SELECT (SELECT count(*) FROM penstock.queues), (SELECT count(*) FROM pg_largeobject_metadata), "
            "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711), "
            "(SELECT last_value FROM penstock.queues_id_seq)"
        )
        return await cursor.fetchone()


async def test_a_query_returns_columns_and_rows_as_text(queries: AdhocQueries) -> None:
    result = await queries.run("SELECT queue, events, now() AS at, true AS yes FROM depth;")

    assert [(c.name, c.kind) for c in result.columns] == [
        ("queue", "text"),
        ("events", "number"),
        ("at", "time"),
        ("yes", "boolean"),
    ]
    assert result.rows[0][:2] == ("orders", "1")
    assert result.truncation is None


async def test_every_listed_table_can_be_read(queries: AdhocQueries) -> None:
    tables = await queries.list_tables()

    names = {f"{table.schema}.{table.name}" for table in tables}
    assert {"penstock.lag", "penstock.gates", "penstock.cycles"} <= names
    assert not names & {"penstock.api_keys", "penstock.positions", "penstock.requests"}
    for table in tables:
        columns = ", ".join(f'"{name}"' for name, _ in table.columns)
        await queries.run(f"SELECT {columns} FROM {table.schema}.{table.name}")  # noqa: S608


@pytest.mark.slow
async def test_forbidden_statements_are_refused_and_change_nothing(queries: AdhocQueries, store: str) -> None:
    before = await _state(store)

    accepted = [text for text in (*_FORBIDDEN_QUERIES, *_OTHER_STATEMENTS) if not await _is_refused(queries, text)]

    assert accepted == []
    assert await _state(store) == before


async def _is_refused(queries: AdhocQueries, text: str) -> bool:
    try:
        await queries.run(text)
    except StatementRefused:
        return True
    return False


async def test_locks_notifications_and_settings_of_a_query_do_not_survive_it(queries: AdhocQueries, store: str) -> None:
    before = await _state(store)
    async with await psycopg.AsyncConnection.connect(store, autocommit=True) as listener:
        await listener.execute("LISTEN penstock")
        await queries.run(
            "SELECT pg_advisory_lock(4711), pg_notify('penstock', '1'), set_config('statement_timeout', '0', false)"
        )
        # Notifications arrive in order.
        await listener.execute("NOTIFY penstock, 'last'")
        async for notice in listener.notifies(timeout=30, stop_after=1):
            assert notice.payload == "last"

    assert await _state(store) == before
    assert (await queries.run("SELECT current_setting('statement_timeout')")).rows == [("15s",)]


async def _wait_for_sessions(store: str, *, expected: bool) -> None:
    """Wait until the login has a session, or until it has none."""
    async with await psycopg.AsyncConnection.connect(store, autocommit=True) as conn:
        count = "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = %s"
        while (await (await conn.execute(count, (_NAME,))).fetchall()) != [(expected,)]:
            pass


async def test_a_query_that_disables_its_timeout_is_terminated(queries: AdhocQueries, store: str) -> None:
    queries.limits = AdhocLimits(seconds=0.3)
    with pytest.raises(StatementRefused, match="longer than"):
        await queries.run("SELECT set_config('statement_timeout', '0', false), pg_sleep(600)")

    await _wait_for_sessions(store, expected=False)


async def test_a_cancelled_query_is_terminated(queries: AdhocQueries, store: str) -> None:
    running = asyncio.create_task(queries.run("SELECT pg_sleep(600)"))
    await _wait_for_sessions(store, expected=True)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await _wait_for_sessions(store, expected=False)


async def test_large_results_are_truncated(queries: AdhocQueries) -> None:
    many = await queries.run("SELECT n, m FROM generate_series(1, 10000) n, generate_series(1, 10000) m")
    assert (len(many.rows), many.truncation) == (50, "rows")
    wide = await queries.run("SELECT repeat('ä', 5000000) AS long")
    assert wide.rows[0][0] is not None
    assert len(wide.rows[0][0]) == queries.limits.value_chars + 1
    columns = ", ".join(f"{n} AS c{n}" for n in range(500))
    assert (await queries.run(f"SELECT {columns}")).truncation == "columns"
    queries.limits = AdhocLimits(total_chars=10_000)
    heavy = await queries.run("SELECT repeat('x', 1999) FROM generate_series(1, 1000)")
    assert (heavy.truncation, len(heavy.rows) < 20) == ("size", True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT repeat('x', 1000000000), repeat('y', 1000000000), repeat('z', 1000000000)",
        "SELECT lpad('x', 200000000)",
        "SELECT format('%1000000000s', 'x')",
        "SELECT array_fill(1, ARRAY[100000000])",
        "SELECT string_agg(repeat('x', 1000000), '') FROM generate_series(1, 900)",
        "SELECT array_agg(n) FROM generate_series(1, 30000000) n",
        "WITH RECURSIVE t (x) AS (SELECT 'x' UNION ALL SELECT x || x FROM t WHERE length(x) < 1e9) TABLE t",
        "SELECT count(*) FROM (SELECT set_config('work_mem', '8GB', false)) s, "
        "LATERAL (SELECT n FROM generate_series(1, 100000000) n ORDER BY random()) o",
    ],
    ids=["repeat", "lpad", "format", "array_fill", "string_agg", "array_agg", "concatenation", "sort"],
)
@pytest.mark.slow
async def test_a_query_cannot_use_more_memory_than_the_limit(queries: AdhocQueries, text: str) -> None:
    limits = AdhocLimits(seconds=30, memory_bytes=64 << 20)

    with pytest.raises(StatementRefused, match="needs more than 64 MiB of memory"):
        await AdhocQueries(queries.login, limits).run(text)


async def test_the_memory_limit_leaves_room_for_usual_queries(queries: AdhocQueries) -> None:
    text = "SELECT n % 10, count(*), max(length(repeat('x', 1000))) FROM generate_series(1, 200000) n GROUP BY 1"

    assert len((await queries.run(text)).rows) == 10


async def test_columns_may_share_a_name_or_have_none(queries: AdhocQueries) -> None:
    result = await queries.run("SELECT 1 AS a, 'x' AS a, ARRAY[1, 2], NULL::int -- that is all")

    assert [(c.name, c.kind) for c in result.columns][:3] == [("a", "number"), ("a", "text"), ("array", "text")]
    assert result.rows == [("1", "x", "{1,2}", None)]


async def test_a_result_may_have_no_rows_or_no_columns(queries: AdhocQueries) -> None:
    assert (await queries.run("SELECT queue FROM lag WHERE false")).rows == []
    assert (await queries.run("SELECT FROM lag")).columns == []


async def test_an_error_has_a_line_and_a_column(queries: AdhocQueries) -> None:
    with pytest.raises(StatementRefused, match="does not exist") as refused:
        await queries.run("SELECT queue,\n       nonsense FROM lag")

    assert (refused.value.line, refused.value.column) == (2, 8)


def test_the_login_has_no_right_to_write_or_to_change_roles(store: str) -> None:
    """Even on a direct connection that is set to read-write."""
    with psycopg.connect(make_conninfo(store, user=_NAME), autocommit=True) as conn:
        conn.execute("SET default_transaction_read_only = off")
        for statement in (
            "INSERT INTO penstock.shed_events VALUES (1, 1, now())",
            "UPDATE penstock.queues SET name = 'mine'",
            "DELETE FROM penstock.groups",
            "TRUNCATE penstock.queues",
            "DROP VIEW penstock.lag",
            "ALTER TABLE penstock.queues ADD mine int",
            "CREATE TABLE penstock.mine (n int)",
            "CREATE TABLE penstock_live.mine (n int)",
            "CREATE TABLE public.mine (n int)",
            "CREATE SCHEMA mine",
            "CREATE FUNCTION penstock_live.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE ROLE mine",
            "ALTER ROLE reader_of_tests SUPERUSER",
            "SET ROLE app",
            "SET SESSION AUTHORIZATION app",
            "COPY penstock.queues FROM PROGRAM 'id'",
            "COPY (SELECT 1) TO '/tmp/x'",
            "SELECT * FROM penstock.api_keys",
            "SELECT * FROM penstock.chunks_1_1",
            "SELECT traceback FROM penstock.dead_letters",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())


async def test_a_login_that_can_write_is_refused(store: str) -> None:
    async with Database(Settings(database_url=store, reader_url=store)) as database:
        with pytest.raises(ConfigurationError, match="may write to Penstock's tables"):
            await ReadOnlyLogin(database).connect()


async def test_a_missing_login_is_reported_with_the_statements_that_create_it(store: str, tmp_path: Path) -> None:
    async with Database(Settings(database_url=store, data_dir=tmp_path)) as database:
        with pytest.raises(ReadOnlyLoginMissing, match="PENSTOCK_READER_URL") as missing:
            await ReadOnlyLogin(database).connect()

    assert missing.value.can_create is False
    assert f'CREATE ROLE "{READER_ROLE}" LOGIN' in missing.value.statements


async def test_a_role_that_may_create_roles_creates_the_login_and_stores_its_password(
    pg18: Server, tmp_path: Path
) -> None:
    with pg18.fresh_database(TEMPLATE) as url:
        with pg18.superuser() as conn:
            conn.execute(f"ALTER ROLE {ROLE} CREATEROLE".encode())
        try:
            settings = Settings(database_url=url, data_dir=tmp_path)
            async with Database(settings) as database:
                with pytest.raises(ReadOnlyLoginMissing) as missing:
                    await ReadOnlyLogin(database).connect()
                assert missing.value.can_create is True
                await ReadOnlyLogin(database).create()
            async with Database(settings) as database:
                result = await AdhocQueries(ReadOnlyLogin(database)).run("SELECT session_user")
            assert result.rows == [(READER_ROLE,)]
            assert _modes(tmp_path) == [0o600]
        finally:
            with pg18.superuser() as conn:
                conn.execute(f"ALTER ROLE {ROLE} NOCREATEROLE".encode())
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE IF EXISTS {READER_ROLE}".encode())


def _modes(directory: Path) -> list[int]:
    return [stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()]


@pytest.mark.slow
async def test_the_embedded_postgresql_gets_the_login_automatically(home: Path) -> None:
    async with Database(Settings(data_dir=home)) as database:
        first, second = await asyncio.gather(*(_get_user(database) for _ in range(2)))

        assert first.rows == second.rows == [(READER_ROLE,)]
        with pytest.raises(StatementRefused, match="permission denied"):
            await AdhocQueries(ReadOnlyLogin(database)).run("SELECT pg_logical_emit_message(false, 'x', 'y')")


async def _get_user(database: Database) -> AdhocResult:
    return await AdhocQueries(ReadOnlyLogin(database)).run("SELECT session_user")
