"""Processes of Penstock's need no more rights than `penstock db roles` gives them, and have no more."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import InsufficientPrivilege

from penstock.core.clock import Clock
from penstock.core.errors import DatabaseError, InvalidName
from penstock.core.settings import Settings
from penstock.db import migrate
from penstock.db.pool import Database
from penstock.db.roles import Roles
from penstock.engine.compile.aggregate_columns import Kept, ResultColumn
from penstock.engine.joins.state import WaitingTable
from penstock.engine.registry import Registry
from penstock.engine.result_tables import ResultTables
from penstock.log.dead_letters import Filter
from penstock.log.log import Batch, Log
from penstock.server.http.endpoint import Role
from tests.log.logs import QUEUE, data, drain, letters, opened, pop, push
from tests.roles import Guarded, apply, guarded
from tests.server.keys import make_key
from tests.server.serving import serving
from tests.servers import Server


@pytest.fixture(scope="module")
def database(pg18: Server) -> Iterator[Guarded]:
    with guarded(pg18) as found:
        yield found


def refused(url: str, *statements: str) -> None:
    for statement in statements:
        with psycopg.connect(url, autocommit=True) as conn, pytest.raises(InsufficientPrivilege):
            conn.execute(statement.encode())


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(statement.encode()).fetchall()


async def test_the_server_s_role_can_live_the_whole_life_of_a_queue(database: Guarded) -> None:
    clock = Clock()
    async with opened(database.server, clock=clock) as log:
        queue = await log.configure(QUEUE, {"retry_limit": 0, "retention_seconds": 3600, "dedup_window_seconds": 60})
        await push(log, [1, 2, 3], key="ada", ids=["a", "b", "c"], idempotency_key="once")
        events = await pop(log, batch=1)
        assert all(await log.ack(events, "dead_letter", error="on purpose"))
        assert data(await drain(log)) == [2, 3]
        assert (await log.redrive(Filter(queue=QUEUE))).replayed == 1
        assert data(await drain(log)) == [1]
        # Segments are rolled and dropped, by whoever comes first.
        await log.segments.roll(await log.catalog.refresh(QUEUE))
        await push(log, [4], key="ada")
        clock.skew = timedelta(days=2)
        assert (await log.segments.upkeep()).dropped == 1
        tables = f"SELECT count(*) FROM pg_tables WHERE tablename = 'chunks_{queue.id}_1'"  # noqa: S608 - a number
        assert rows(database.owner, tables) == [(0,)]
        await log.segments.repartition(await log.catalog.refresh(QUEUE), "hash", 2)
        await push(log, [5], key="ada")
        assert data(await drain(log)) == [4, 5]
        assert not await letters(log)
        # Who makes them may not matter: they are the owner's.
        owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'penstock'"
        assert rows(database.owner, owners) == [("app",)]
        assert await log.delete_queue(QUEUE)
        left = "SELECT count(*) FROM pg_tables WHERE schemaname = 'penstock' AND tablename ~ '^(chunks|ids)_'"
        assert rows(database.owner, left) == [(0,)]


async def test_a_server_process_does_its_work_and_refuses_what_its_role_may_not(database: Guarded) -> None:
    key = await asyncio.to_thread(make_key, database.server, Role.ADMIN)
    with serving(database.server, ["--require-access"]) as running:
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
            # A query's results are the engine's, so they are not the server's to drop.
            log = await Log(Database(Settings(database_url=database.engine))).open()
            try:
                none: Any = None
                count = ResultColumn("n", "bigint", (Kept("a0", "bigint", none, "{s} + {p}"),), "{a0}")
                query = await Registry(log).register("totals", ["from: web"], "abc", sink=None, history_seconds=60)
                await Registry(log).make_tables(ResultTables(query.id, "totals", [count]))
                deleted = await http.delete("/v1/queries/totals")
                assert (deleted.status_code, deleted.json()["type"].rpartition("/")[2]) == (403, "forbidden")
                assert "role" in deleted.json()["detail"]
                assert rows(database.server, "SELECT n FROM penstock_live.totals") == []
                assert rows(database.reader, "SELECT n FROM penstock_history.totals") == []
                assert rows(database.reader, "SELECT * FROM penstock.state WHERE query = 'totals'") == []
                assert await Registry(log).delete("totals")
            finally:
                await log.close()


def test_the_server_s_role_can_change_limits_pause_queries_and_keep_the_plane_s_books(database: Guarded) -> None:
    with psycopg.connect(database.server, autocommit=True) as conn:
        for statement in (
            "UPDATE penstock.gate_lanes SET wakes_at = NULL WHERE false",
            "DELETE FROM penstock.gate_limits WHERE false",
            "UPDATE penstock.queries SET is_paused = true WHERE false",
            "DELETE FROM penstock.shared_state WHERE false",
            "DELETE FROM penstock.traces WHERE false",
            "DELETE FROM penstock.rule_states WHERE false",
            "DELETE FROM penstock.audit WHERE false",
            "SELECT FROM penstock.gate_states FOR UPDATE",
            "INSERT INTO penstock.gate_states SELECT * FROM penstock.gate_states WHERE false",
        ):
            conn.execute(statement.encode())


#: What `penstock db roles` gave the server's role of the tables of gates, up to version 16 of the schema.
GIVEN_BEFORE = """
GRANT USAGE ON SCHEMA penstock TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO {role};
REVOKE INSERT, DELETE ON penstock.gate_lanes, penstock.gate_states FROM {role}
"""
LANE = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0);
INSERT INTO penstock.gate_lanes (query_id, partition_id, key, wants, decided_at)
SELECT id, 1, 'ada', 10, now() FROM penstock.queries;
INSERT INTO penstock.gate_rules (query_id, gate, kind, amount, rate, shared)
SELECT id, 1, 'token_bucket', 10, 1, false FROM penstock.queries
"""


async def test_who_could_change_limits_before_an_upgrade_can_after_it(pg18: Server) -> None:
    role = f"server_{uuid.uuid4().hex[:8]}"
    with pg18.superuser() as superuser, pg18.fresh_database("template0") as url:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            await migrate.upgrade(conn, target=16)
            await conn.execute(sql.SQL(GIVEN_BEFORE).format(role=sql.Identifier(role)))
            await conn.execute(LANE.encode())
            await migrate.upgrade(conn)
        server = pg18.url(str(conninfo_to_dict(url)["dbname"]), role)
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(
                "INSERT INTO penstock.gate_limits (query, key, gate, hold_until) "
                "VALUES ('q', 'ada', 0, now() + interval '1 hour')"
            )
            assert conn.execute("SELECT level FROM penstock.gate_states").fetchall() == [(0,)]
        refused(server, "DELETE FROM penstock.gate_states", "INSERT INTO penstock.gate_lanes DEFAULT VALUES")
    with pg18.superuser() as superuser:
        superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_the_server_s_role_can_do_no_more(database: Guarded) -> None:
    refused(
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


def test_the_engine_s_role_reads_no_keys_and_owns_its_results_alone(database: Guarded) -> None:
    refused(
        database.engine,
        "SELECT * FROM penstock.api_keys",
        "SELECT * FROM penstock.audit",
        "DELETE FROM penstock.audit",
        "DROP TABLE penstock.queues",
        "ALTER TABLE penstock.queues ADD COLUMN x int",
        "UPDATE penstock.migrations SET version = 1",
        "SET ROLE app",
    )


def test_what_the_owner_ran_before_there_were_roles_is_the_engine_s_to_go_on_with(pg18: Server) -> None:
    none: Any = None
    count = ResultColumn("n", "bigint", (Kept("a0", "bigint", none, "{s} + {p}"),), "{a0}")

    async def start(url: str) -> None:
        async with opened(url) as log:
            registry = Registry(log)
            windows = await registry.register("windows", ["from: web"], "abc", sink=None, history_seconds=60)
            # Of sessions, a start makes an index that a version before did not.
            await registry.make_tables(ResultTables(windows.id, "windows", [count], by_key=True))
            pairs = await registry.register("pairs", ["from: web"], "abc", sink=None, history_seconds=60)
            await registry.make_waiting(WaitingTable(pairs.id, 0, 0, sends_alone=True))

    async def delete(url: str) -> None:
        async with opened(url) as log:
            assert [await Registry(log).delete(name) for name in ("windows", "pairs")] == [True, True]

    with guarded(pg18, before=start) as database:
        # As a version before left it.
        with psycopg.connect(database.superuser) as conn:
            conn.execute("DROP INDEX penstock.waiting_2_rest")
            conn.execute("DROP INDEX penstock.history_1_key")
        asyncio.run(start(database.engine))
        made = "SELECT count(*) FROM pg_indexes WHERE indexname IN ('waiting_2_rest', 'history_1_key')"
        assert rows(database.server, made) == [(2,)]
        assert rows(database.server, "SELECT * FROM penstock.waiting_2") == []
        asyncio.run(delete(database.engine))
        left = "SELECT tablename FROM pg_tables WHERE tablename ~ '^(state|history|waiting)_[0-9]'"
        assert rows(database.server, left) == []


def test_the_reader_s_role_can_look_at_results_alone(database: Guarded) -> None:
    refused(
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


def test_segments_are_made_for_queues_that_are_there_alone(database: Guarded) -> None:
    with (
        psycopg.connect(database.server, autocommit=True) as conn,
        pytest.raises(psycopg.errors.RaiseException, match="queue 999 has no segment 1"),
    ):
        conn.execute("SELECT penstock.make_segment(999, 1)")


async def test_the_grants_can_be_given_again_but_not_by_the_owner(database: Guarded) -> None:
    await apply(database.superuser, database.roles)
    with pytest.raises(DatabaseError, match="let a superuser run"):
        await apply(database.owner, Roles(f"x{database.roles.server}", database.roles.engine, database.roles.reader))


@pytest.mark.parametrize(
    "name", ['a"; DROP TABLE x; --', "$$;", "Robert'); --", "", "a" * 64, "pg_monitor", "1st", "a b", "a\0b", "ümlaut"]
)
def test_what_is_no_plain_name_is_no_role(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot be called"):
        Roles(server=name)


def test_roles_have_different_names() -> None:
    with pytest.raises(InvalidName, match="three roles"):
        Roles(server="x", engine="x")


async def test_pushing_with_the_client_takes_the_server_s_role(database: Guarded) -> None:
    async with opened(database.server) as log:
        await log.configure("uploads")
        (result,) = await log.push([Batch("uploads", [{"data": i} for i in range(100)])])
        assert result.accepted == 100
