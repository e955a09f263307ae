"""An outbox pushes every change of a table, in the transaction of the change."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import Connection

from penstock.log.log import Log
from tests.log.logs import QUEUE, by_key, data, drain

TABLE = """
CREATE SCHEMA "My shop";
CREATE TABLE "My shop"."Customers" (
    "Id" int PRIMARY KEY, name text, tags text[], price numeric(10, 2), document json,
    total int GENERATED ALWAYS AS ("Id" * 2) STORED
)
"""
NAME = '"My shop"."Customers"'


def outbox(sql: Connection[Any], table: str = NAME, queue: str = QUEUE) -> None:
    sql.execute("SELECT penstock.outbox(%s, %s)", (queue, table))


async def moved(log: Log) -> list[Any]:
    await log.inbox.move()
    return await drain(log)


async def test_each_change_is_an_event_with_the_row_before_and_after(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    sql.execute(TABLE)
    outbox(sql)
    with sql.transaction():
        sql.execute("""INSERT INTO "My shop"."Customers" VALUES (1, 'Ada', '{a,b}', 1.50, '{"x": [1]}')""")
        sql.execute("""UPDATE "My shop"."Customers" SET name = 'Bob' WHERE "Id" = 1""")
        sql.execute("""UPDATE "My shop"."Customers" SET name = 'Bob'""")
        sql.execute("""DELETE FROM "My shop"."Customers" """)
    ada = {"Id": 1, "name": "Ada", "tags": ["a", "b"], "price": 1.5, "document": {"x": [1]}, "total": 2}
    bob = ada | {"name": "Bob"}
    events = await moved(still_log)
    assert by_key(events) == {
        "1": [
            {"op": "insert", "before": None, "after": ada},
            {"op": "update", "before": ada, "after": bob},
            {"op": "delete", "before": bob, "after": None},
        ]
    }


async def test_a_change_that_is_rolled_back_pushes_nothing(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    outbox(sql, "t")
    with sql.transaction(force_rollback=True):
        sql.execute("INSERT INTO t VALUES (1)")
    assert await moved(still_log) == []


async def test_a_changed_key_is_a_deletion_and_an_insertion(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    sql.execute("CREATE TABLE t (region text, id int, n int, PRIMARY KEY (region, id))")
    sql.execute("INSERT INTO t VALUES ('eu', 1, 7)")
    outbox(sql, "t")
    sql.execute("UPDATE t SET id = 2")
    before, after = ({"region": "eu", "id": id, "n": 7} for id in (1, 2))
    assert by_key(await moved(still_log)) == {
        '["eu", 1]': [{"op": "delete", "before": before, "after": None}],
        '["eu", 2]': [{"op": "insert", "before": None, "after": after}],
    }


async def test_a_truncation_is_an_event(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    sql.execute("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id)")
    sql.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)")
    outbox(sql, "t")
    sql.execute("INSERT INTO t VALUES (1)")
    sql.execute("TRUNCATE t")
    assert [event["op"] for event in data(await moved(still_log))] == ["insert", "truncate"]


async def test_keys_can_be_named(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    sql.execute("CREATE TABLE t (a text, b int)")
    with pytest.raises(psycopg.errors.UndefinedColumn, match="has no primary key"):
        outbox(sql, "t")
    with pytest.raises(psycopg.errors.UndefinedColumn, match="has no column c"):
        sql.execute("SELECT penstock.outbox('orders', 't', '{a,c}')")
    sql.execute("SELECT penstock.outbox('orders', 't', key_columns => '{a}')")
    sql.execute("INSERT INTO t VALUES ('x', 1), ('', 2), (NULL, 3)")
    assert {event.key for event in await moved(still_log)} == {"x", '[""]', "[null]"}
    sql.execute("ALTER TABLE t RENAME a TO z")
    with pytest.raises(psycopg.errors.UndefinedColumn, match="does not exist any more"):
        sql.execute("INSERT INTO t VALUES ('x', 1)")


async def test_a_dropped_outbox_leaves_nothing_behind(still_log: Log, sql: Connection[Any]) -> None:
    long = "q" * 200
    for queue in (QUEUE, long):
        await still_log.configure(queue)
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    for queue in (QUEUE, long):
        outbox(sql, "t", queue)
    with pytest.raises(psycopg.errors.DuplicateFunction):
        outbox(sql, "t")
    await still_log.delete_queue(long)
    for queue in (QUEUE, long):
        dropped = "SELECT penstock.drop_outbox(%s, 't')"
        assert sql.execute(dropped, (queue,)).fetchone() == (True,)
        assert sql.execute(dropped, (queue,)).fetchone() == (False,)
    assert sql.execute("SELECT count(*) FROM pg_proc WHERE proname ~ '^penstock_outbox'").fetchone() == (0,)
    sql.execute("INSERT INTO t VALUES (1)")
    assert await moved(still_log) == []


async def test_an_outbox_needs_a_queue_and_a_table(still_log: Log, sql: Connection[Any]) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS TABLE t")
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no queue 'orders'"):
        outbox(sql, "t")
    await still_log.configure(QUEUE)
    with pytest.raises(psycopg.errors.WrongObjectType, match="is not a table"):
        outbox(sql, "v")
