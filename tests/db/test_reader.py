"""The login for statements that people type: what it may not do, however it is asked."""

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
from penstock.db.adhoc_query import Answer, Limits, Questions, StatementRefused
from penstock.db.pool import Database
from penstock.db.readonly_login import READER, ReaderLogin, ReaderMissing, reader_statements
from tests.servers import ROLE, TEMPLATE, Server

_NAME = "reader_of_tests"

#: What a query may try. None of it does anything, or tells anything.
_TRIED = [
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

#: What is no query at all.
_STATEMENTS = [
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
    """A database with a queue in it and the login, which an administrator made."""
    with pg18.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        with pg18.superuser(name) as conn:
            conn.execute(reader_statements(owner=ROLE, database=name, reader=_NAME).encode())
        with SyncPenstock(url) as q:
            q.queue("orders").create()
            q.queue("orders").push({"data": {"secret": 1}})
        yield url
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE {_NAME}".encode())


@pytest.fixture
async def questions(store: str) -> AsyncIterator[Questions]:
    settings = Settings(database_url=store, reader_url=make_conninfo(store, user=_NAME))
    async with Database(settings) as database:
        yield Questions(ReaderLogin(database), Limits(seconds=5, rows=50))


async def _state(store: str) -> object:
    async with await psycopg.AsyncConnection.connect(store) as conn:
        cursor = await conn.execute(
            "SELECT (SELECT count(*) FROM penstock.queues), (SELECT count(*) FROM pg_largeobject_metadata), "
            "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711), "
            "(SELECT last_value FROM penstock.queues_id_seq)"
        )
        return await cursor.fetchone()


async def test_results_standing_and_the_ledger_can_be_looked_at(questions: Questions) -> None:
    answer = await questions.ask("SELECT queue, events, now() AS at, true AS is_so FROM depth;")

    assert [(c.name, c.kind) for c in answer.columns] == [
        ("queue", "text"),
        ("events", "number"),
        ("at", "time"),
        ("is_so", "truth"),
    ]
    assert answer.rows[0][:2] == ("orders", "1")
    assert answer.cut is None


async def test_what_may_be_seen_is_listed_and_each_of_it_can_be(questions: Questions) -> None:
    seen = await questions.seen()

    names = {f"{each.schema}.{each.name}" for each in seen}
    assert {"penstock.lag", "penstock.gates", "penstock.cycles"} <= names
    assert not names & {"penstock.api_keys", "penstock.positions", "penstock.requests"}
    for each in seen:
        columns = ", ".join(f'"{name}"' for name, _ in each.columns)
        await questions.ask(f"SELECT {columns} FROM {each.schema}.{each.name}")  # noqa: S608


async def test_nothing_else_can_be_done_by_what_is_typed(questions: Questions, store: str) -> None:
    before = await _state(store)

    answered = [tried for tried in (*_TRIED, *_STATEMENTS) if not await _is_refused(questions, tried)]

    assert answered == []
    assert await _state(store) == before


async def _is_refused(questions: Questions, tried: str) -> bool:
    try:
        await questions.ask(tried)
    except StatementRefused:
        return True
    return False


async def test_what_a_function_does_to_its_session_ends_with_the_statement(questions: Questions, store: str) -> None:
    before = await _state(store)
    async with await psycopg.AsyncConnection.connect(store, autocommit=True) as listener:
        await listener.execute("LISTEN penstock")
        await questions.ask(
            "SELECT pg_advisory_lock(4711), pg_notify('penstock', '1'), set_config('statement_timeout', '0', false)"
        )
        # Ours comes after anything that was sent before it.
        await listener.execute("NOTIFY penstock, 'ours'")
        async for heard in listener.notifies(timeout=30, stop_after=1):
            assert heard.payload == "ours"

    assert await _state(store) == before
    assert (await questions.ask("SELECT current_setting('statement_timeout')")).rows == [("15s",)]


async def _sessions(store: str, wanted: bool) -> None:
    """Wait until the login has a session, or until it has none."""
    async with await psycopg.AsyncConnection.connect(store, autocommit=True) as conn:
        count = "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = %s"
        while (await (await conn.execute(count, (_NAME,))).fetchall()) != [(wanted,)]:
            pass


async def test_a_statement_that_lifts_its_own_limit_of_time_is_ended_from_outside(
    questions: Questions, store: str
) -> None:
    questions.limits = Limits(seconds=0.3)
    with pytest.raises(StatementRefused, match="longer than"):
        await questions.ask("SELECT set_config('statement_timeout', '0', false), pg_sleep(600)")

    await _sessions(store, wanted=False)


async def test_who_goes_away_takes_his_statement_along(questions: Questions, store: str) -> None:
    asked = asyncio.create_task(questions.ask("SELECT pg_sleep(600)"))
    await _sessions(store, wanted=True)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    await _sessions(store, wanted=False)


async def test_huge_answers_are_cut(questions: Questions) -> None:
    many = await questions.ask("SELECT n, m FROM generate_series(1, 10000) n, generate_series(1, 10000) m")
    assert (len(many.rows), many.cut) == (50, "rows")
    wide = await questions.ask("SELECT repeat('ä', 5000000) AS long")
    assert wide.rows[0][0] is not None
    assert len(wide.rows[0][0]) == questions.limits.value + 1
    columns = ", ".join(f"{n} AS c{n}" for n in range(500))
    assert (await questions.ask(f"SELECT {columns}")).cut == "columns"
    questions.limits = Limits(whole=10_000)
    heavy = await questions.ask("SELECT repeat('x', 1999) FROM generate_series(1, 1000)")
    assert (heavy.cut, len(heavy.rows) < 20) == ("size", True)


async def test_columns_of_the_same_name_and_of_none_are_told_apart(questions: Questions) -> None:
    answer = await questions.ask("SELECT 1 AS a, 'x' AS a, ARRAY[1, 2], NULL::int -- that is all")

    assert [(c.name, c.kind) for c in answer.columns][:3] == [("a", "number"), ("a", "text"), ("array", "text")]
    assert answer.rows == [("1", "x", "{1,2}", None)]


async def test_no_rows_and_no_columns_are_an_answer(questions: Questions) -> None:
    assert (await questions.ask("SELECT queue FROM lag WHERE false")).rows == []
    assert (await questions.ask("SELECT FROM lag")).columns == []


async def test_an_error_says_where(questions: Questions) -> None:
    with pytest.raises(StatementRefused, match="does not exist") as refused:
        await questions.ask("SELECT queue,\n       nonsense FROM lag")

    assert (refused.value.line, refused.value.column) == (2, 8)


def test_the_login_itself_has_no_right_to_write_or_to_be_somebody_else(store: str) -> None:
    """Also where somebody connects with it and not through us, and makes his session writable."""
    with psycopg.connect(make_conninfo(store, user=_NAME), autocommit=True) as conn:
        conn.execute("SET default_transaction_read_only = off")
        for tried in (
            "INSERT INTO penstock.shed VALUES (1, 1, now())",
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
                conn.execute(tried.encode())


async def test_a_login_that_can_do_more_is_refused(store: str) -> None:
    async with Database(Settings(database_url=store, reader_url=store)) as database:
        with pytest.raises(ConfigurationError, match="may write to Penstock's tables"):
            await ReaderLogin(database).connect()


async def test_where_there_is_no_login_it_says_what_to_run(store: str, tmp_path: Path) -> None:
    async with Database(Settings(database_url=store, data_dir=tmp_path)) as database:
        with pytest.raises(ReaderMissing, match="PENSTOCK_READER_URL") as missing:
            await ReaderLogin(database).connect()

    assert missing.value.can_make is False
    assert f'CREATE ROLE "{READER}" LOGIN' in missing.value.statements


async def test_a_role_that_may_create_roles_makes_it_and_keeps_its_password(pg18: Server, tmp_path: Path) -> None:
    with pg18.fresh_database(TEMPLATE) as url:
        with pg18.superuser() as conn:
            conn.execute(f"ALTER ROLE {ROLE} CREATEROLE".encode())
        try:
            settings = Settings(database_url=url, data_dir=tmp_path)
            async with Database(settings) as database:
                with pytest.raises(ReaderMissing) as missing:
                    await ReaderLogin(database).connect()
                assert missing.value.can_make is True
                await ReaderLogin(database).make()
            async with Database(settings) as database:
                answer = await Questions(ReaderLogin(database)).ask("SELECT session_user")
            assert answer.rows == [(READER,)]
            assert _modes(tmp_path) == [0o600]
        finally:
            with pg18.superuser() as conn:
                conn.execute(f"ALTER ROLE {ROLE} NOCREATEROLE".encode())
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE IF EXISTS {READER}".encode())


def _modes(directory: Path) -> list[int]:
    return [stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()]


async def test_the_embedded_postgresql_has_one_without_being_asked(home: Path) -> None:
    async with Database(Settings(data_dir=home)) as database:
        first, second = await asyncio.gather(*(_asked(database) for _ in range(2)))

        assert first.rows == second.rows == [(READER,)]
        with pytest.raises(StatementRefused, match="permission denied"):
            await Questions(ReaderLogin(database)).ask("SELECT pg_logical_emit_message(false, 'x', 'y')")


async def _asked(database: Database) -> Answer:
    return await Questions(ReaderLogin(database)).ask("SELECT session_user")
