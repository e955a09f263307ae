"""The roles of `penstock db roles` have the rights that Penstock's processes need, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest
from msgspec import Raw
from psycopg.errors import InsufficientPrivilege

from penstock.core.clock import Clock
from penstock.core.errors import DatabaseError, InvalidName
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.roles import Roles
from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.stored.stored_statements import (
    create_stored_statement,
    drop_stored_view,
    list_stored_statements,
    mark_seen,
    set_error,
)
from penstock.engine.views.view_reader import ViewColumn
from penstock.engine.views.view_size import ViewState
from penstock.engine.views.view_table import ViewTable
from penstock.log.coordination.timers import TimerOperation
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.server.auth.identity import Role
from tests.database_roles import RoleUrls, apply_roles, create_roles
from tests.log.logs import QUEUE, data, drain, letters, opened, pop, push
from tests.server.keys import create_key
from tests.server.server_process import run_server
from tests.servers import Server


@pytest.fixture(scope="module")
def database(pg18: Server) -> Iterator[RoleUrls]:
    with create_roles(pg18) as urls:
        yield urls


def assert_refused(url: str, *statements: str) -> None:
    for statement in statements:
        with psycopg.connect(url, autocommit=True) as conn, pytest.raises(InsufficientPrivilege):
            conn.execute(statement.encode())


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(statement.encode()).fetchall()


async def test_the_server_role_can_do_all_operations_of_a_queue(database: RoleUrls) -> None:
    clock = Clock()
    async with opened(database.server, clock=clock) as log:
        queue = await log.configure(QUEUE, {"retry_limit": 0, "retention_seconds": 3600, "dedup_window_seconds": 60})
        await push(log, [1, 2, 3], key="ada", ids=["a", "b", "c"], idempotency_key="once")
        events = await pop(log, batch=1)
        assert all(await log.ack(events, "dead_letter", error="on purpose"))
        assert data(await drain(log)) == [2, 3]
        assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 1
        assert data(await drain(log)) == [1]
        # Any process may roll and drop segments.
        await log.segments.roll(await log.catalog.refresh(QUEUE))
        await push(log, [4], key="ada")
        clock.skew = timedelta(days=2)
        assert (await log.upkeep()).dropped == 1
        tables = f"SELECT count(*) FROM pg_tables WHERE tablename = 'chunks_{queue.id}_1'"  # noqa: S608 - a number
        assert rows(database.owner, tables) == [(0,)]
        await log.segments.repartition(await log.catalog.refresh(QUEUE), "hash", 2)
        await push(log, [5], key="ada")
        assert data(await drain(log)) == [4, 5]
        assert not await letters(log)
        permit = await log.locks.acquire("lock", "me", 60)
        assert permit is not None
        assert await log.locks.release("lock", permit.token)
        await log.timers.apply([TimerOperation("schedule", QUEUE, "timer", Raw(b"6"))])
        await log.due_timers.fire()
        assert data(await drain(log)) == [6]
        # All tables belong to the owner, whatever role created them.
        owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'penstock'"
        assert rows(database.owner, owners) == [("app",)]
        assert await log.delete_queue(QUEUE)
        left = "SELECT count(*) FROM pg_tables WHERE schemaname = 'penstock' AND tablename ~ '^(chunks|ids)_'"
        assert rows(database.owner, left) == [(0,)]


@pytest.mark.slow
async def test_a_server_process_works_with_its_role_and_reports_missing_rights(database: RoleUrls) -> None:
    key = await asyncio.to_thread(create_key, database.server, Role.ADMIN)
    with run_server(database.server, ["--require-access"]) as running:
        async with httpx.AsyncClient(base_url=running.url, headers={"authorization": f"Bearer {key}"}) as http:
            assert (await http.put("/v1/queues/web", json={})).status_code in (200, 201)
            pushed = await http.post("/v1/queues/web/events", json=[{"data": 1, "key": "ada"}])
            assert pushed.status_code in (200, 201), pushed.text
            popped = await http.post("/v1/queues/web/groups/g/pop", json={"batch": 10})
            (event,) = popped.json()["events"]
            ack = {name: event[name] for name in ("partition_id", "offset", "lease_id")}
            acked = await http.post("/v1/queues/web/groups/g/ack", json={"acks": [{**ack, "status": "dead_letter"}]})
            assert acked.json()["results"][0]["success"], acked.text
            assert (await http.post("/v1/dead-letters/redrive", json={"queue": "web"})).status_code == 200
            for path in ("/v1/queues", "/v1/queues/web", "/v1/queries", "/v1/gates", "/metrics", "/health"):
                assert (await http.get(path)).status_code == 200, path
            # The engine owns the results of a query, so the server cannot drop them.
            log = await Log(Database(Settings(database_url=database.engine))).open()
            try:
                none: Any = None
                count = ResultColumn("n", "bigint", (StateColumn("a0", "bigint", none, "{state} + {partial}"),), "{a0}")
                query = await Registry(log).register("totals", ["from: web"], "abc", sink=None, history_seconds=60)
                await Registry(log).create_tables(ResultTables(query.id, "totals", [count]))
                deleted = await http.delete("/v1/queries/totals")
                assert (deleted.status_code, deleted.json()["type"].rpartition("/")[2]) == (403, "forbidden")
                assert "role" in deleted.json()["detail"]
                assert rows(database.server, "SELECT n FROM penstock_live.totals") == []
                assert rows(database.reader, "SELECT n FROM penstock_history.totals") == []
                assert rows(database.reader, "SELECT * FROM penstock.state WHERE query = 'totals'") == []
                assert await Registry(log).delete("totals")
            finally:
                await log.close()


async def test_the_server_stores_views_and_the_engine_deletes_them(database: RoleUrls) -> None:
    async with opened(database.server) as server, opened(database.engine) as engine:
        await create_stored_statement(server.database, "stored", "CREATE MATERIALIZED VIEW stored AS ...", "ada")
        (stored,) = await list_stored_statements(engine.database)
        await mark_seen(engine.database, [stored])
        await set_error(engine.database, stored, "there is no queue")
        await drop_stored_view(server.database, "stored")
        (stored,) = await list_stored_statements(server.database)
        assert (stored.author, stored.error, stored.is_dropped, stored.is_followed) == (
            "ada",
            "there is no queue",
            True,
            True,
        )
        assert_refused(database.reader, "SELECT * FROM penstock.stored_statements")
        assert await Registry(engine).delete("stored")
        assert await list_stored_statements(server.database) == []


def test_the_server_role_can_change_limits_pause_queries_and_write_traces(database: RoleUrls) -> None:
    with psycopg.connect(database.server, autocommit=True) as conn:
        for statement in (
            "UPDATE penstock.gate_keys SET wakes_at = NULL WHERE false",
            "DELETE FROM penstock.gate_limits WHERE false",
            "UPDATE penstock.queries SET is_paused = true WHERE false",
            "DELETE FROM penstock.client_query_state WHERE false",
            "DELETE FROM penstock.traces WHERE false",
            "DELETE FROM penstock.rule_states WHERE false",
            "DELETE FROM penstock.audit WHERE false",
            "SELECT FROM penstock.gate_states FOR UPDATE",
            "INSERT INTO penstock.gate_states SELECT * FROM penstock.gate_states WHERE false",
        ):
            conn.execute(statement.encode())


def test_the_server_role_cannot_change_the_schema_or_the_ledger(database: RoleUrls) -> None:
    assert_refused(
        database.server,
        "CREATE TABLE penstock.mine (a int)",
        "CREATE SCHEMA mine",
        "DROP TABLE penstock.queues",
        "TRUNCATE penstock.audit",
        "UPDATE penstock.audit SET action = 'nothing'",
        "DELETE FROM penstock.cycles",
        "INSERT INTO penstock.migrations VALUES (999, 'x', 'x')",
        f"SET ROLE {database.roles.engine}",
        "SET ROLE app",
        "CREATE ROLE another",
    )


def test_the_engine_role_reads_no_keys_and_owns_only_its_results(database: RoleUrls) -> None:
    assert_refused(
        database.engine,
        "SELECT * FROM penstock.api_keys",
        "SELECT * FROM penstock.audit",
        "DELETE FROM penstock.audit",
        "DROP TABLE penstock.queues",
        "ALTER TABLE penstock.queues ADD COLUMN x int",
        "UPDATE penstock.migrations SET version = 1",
        "SET ROLE app",
    )


def test_the_engine_role_continues_queries_that_the_owner_started(pg18: Server) -> None:
    none: Any = None
    count = ResultColumn("n", "bigint", (StateColumn("a0", "bigint", none, "{state} + {partial}"),), "{a0}")

    async def start(url: str) -> None:
        async with opened(url) as log:
            registry = Registry(log)
            windows = await registry.register("windows", ["from: web"], "abc", sink=None, history_seconds=60)
            await registry.create_tables(ResultTables(windows.id, "windows", [count]))
            pairs = await registry.register("pairs", ["from: web"], "abc", sink=None, history_seconds=60)
            async with log.database.connection() as conn:
                # The table of a join of version 0.1.
                await conn.execute(f"CREATE TABLE IF NOT EXISTS penstock.waiting_{pairs.id} (id bigint)".encode())
            view = await registry.register("view", ["from: web"], "abc", sink=None, history_seconds=60)
            table = ViewTable(view.id, "view", [ViewColumn("n", "bigint", "bigint")], ("n",))
            await registry.create_view_table(table, ViewState([], None, None))

    async def delete(url: str) -> None:
        async with opened(url) as log:
            assert [await Registry(log).delete(name) for name in ("windows", "pairs", "view")] == [True] * 3

    with create_roles(pg18, before=start) as database:
        # A start creates missing indexes, which takes the rights of the owner of the table.
        with psycopg.connect(database.superuser) as conn:
            conn.execute("DROP INDEX penstock.view_3_key")
        asyncio.run(start(database.engine))
        created = "SELECT count(*) FROM pg_indexes WHERE indexname = 'view_3_key'"
        assert rows(database.server, created) == [(1,)]
        asyncio.run(delete(database.engine))
        left = "SELECT tablename FROM pg_tables WHERE tablename ~ '^(state|history|waiting|view)_[0-9]'"
        assert rows(database.server, left) == []


def test_the_reader_role_can_only_read_results(database: RoleUrls) -> None:
    assert_refused(
        database.reader,
        "SELECT * FROM penstock.api_keys",
        "SELECT data FROM penstock.dead_letters",
        "SELECT * FROM penstock.requests",
        "SELECT penstock.make_segment(1, 1)",
        "SELECT penstock.drop_chunks(1, 1)",
    )
    with psycopg.connect(database.reader, autocommit=True) as conn:
        conn.execute("SET default_transaction_read_only = off")
        for statement in ("DELETE FROM penstock.queues", "CREATE TABLE penstock_live.x (a int)"):
            with pytest.raises(InsufficientPrivilege):
                conn.execute(statement.encode())


def test_segments_are_created_only_for_existing_queues(database: RoleUrls) -> None:
    with (
        psycopg.connect(database.server, autocommit=True) as conn,
        pytest.raises(psycopg.errors.RaiseException, match="queue 999 has no segment 1"),
    ):
        conn.execute("SELECT penstock.make_segment(999, 1)")


async def test_grants_can_be_repeated_but_not_by_the_owner(database: RoleUrls) -> None:
    await apply_roles(database.superuser, database.roles)
    with pytest.raises(DatabaseError, match="connect as a superuser"):
        await apply_roles(database.owner, replace(database.roles, server=f"x{database.roles.server}"))


@pytest.mark.parametrize(
    "name", ['a"; DROP TABLE x; --', "$$;", "Robert'); --", "", "a" * 64, "pg_monitor", "1st", "a b", "a\0b", "ümlaut"]
)
def test_names_that_need_quoting_are_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot be named"):
        Roles(server=name)


def test_roles_have_different_names() -> None:
    with pytest.raises(InvalidName, match="different roles"):
        Roles(server="x", engine="x")


async def test_the_server_role_can_push_batches(database: RoleUrls) -> None:
    async with opened(database.server) as log:
        await log.configure("uploads")
        (result,) = await log.push([Batch("uploads", [{"data": i} for i in range(100)])])
        assert result.accepted == 100


def test_a_member_of_the_pusher_role_can_push_and_nothing_else(pg18: Server, database: RoleUrls) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(database.owner)["dbname"])
    app, writer = f"app_{database.roles.pusher}", f"writer_{database.roles.pusher}"

    async def configure() -> None:
        async with opened(database.server) as log:
            await log.configure("pushed")

    asyncio.run(configure())
    with psycopg.connect(database.superuser, autocommit=True) as admin:
        for role in (app, writer):
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        admin.execute(f"GRANT {database.roles.pusher} TO {app}; CREATE SCHEMA shop AUTHORIZATION {app}".encode())
        try:
            with psycopg.connect(pg18.url(name, app), autocommit=True) as conn:
                conn.execute("SELECT penstock.push('pushed', '1', 'ada')")
                conn.execute("SELECT penstock.push_many('pushed', '{2,3}', '{ada,bob}')")
                conn.execute("CREATE TABLE shop.items (id int PRIMARY KEY)")
                conn.execute("SELECT penstock.outbox('pushed', 'shop.items')")
                conn.execute(f"GRANT USAGE ON SCHEMA shop TO {writer}; GRANT INSERT ON shop.items TO {writer}".encode())
            # A role that writes to the table needs no right to push.
            with psycopg.connect(pg18.url(name, writer), autocommit=True) as conn:
                conn.execute("INSERT INTO shop.items VALUES (4)")
            assert_refused(
                pg18.url(name, app),
                "SELECT * FROM penstock.inbox",
                "DELETE FROM penstock.inbox_order",
                "SELECT * FROM penstock.queues",
                "SELECT * FROM penstock.partitions",
                "SELECT nextval('penstock.inbox_sequence')",
                "CREATE TRIGGER mine AFTER INSERT ON shop.items FOR EACH ROW EXECUTE FUNCTION penstock.order_inbox()",
            )
            assert_refused(
                pg18.url(name, writer),
                "SELECT penstock.push('pushed', '1')",
                "SELECT penstock.outbox('pushed', 'shop.items')",
                "SELECT penstock.drop_outbox('pushed', 'shop.items')",
            )
            assert_refused(database.reader, "SELECT penstock.push('pushed', '1')")

            async def read() -> list[Any]:
                async with opened(database.server) as log:
                    await log.inbox.move()
                    return data(await drain(log, "pushed"))

            assert sorted(map(str, asyncio.run(read()))) == [
                "1",
                "2",
                "3",
                "{'op': 'insert', 'after': {'id': 4}, 'before': None}",
            ]
        finally:
            for role in (app, writer):
                admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())
