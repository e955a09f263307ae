"""The rights that the documentation tells people to grant are enough."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from penstock import Penstock, Stream
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.compile.windows.window_output import window_output
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.log.log import Log
from tests.docs.pages import ROOT, blocks_of
from tests.servers import Server

_PAGE = ROOT / "docs/how-to/own-postgresql.md"
_APP, _DASHBOARDS, _OPERATIONS = "orders_app", "dashboards", "operations"
#: In place of Spark's columns, which this test does not compute.
_NO_SPARK: Any = None
_TYPES = ("INT", "DECIMAL(18, 2)", "DOUBLE", "STRING", "BOOLEAN", "TIMESTAMP", "DATE")


@pytest.fixture
def database(pg18: Server) -> Iterator[str]:
    """An empty database in which the page's SQL was run, by its name."""
    with pg18.fresh_database("template0") as url:
        name = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
        with pg18.superuser(name) as connection:
            # The commit of a cycle needs a temporary table, which every role may create by default.
            connection.execute(f"REVOKE CREATE ON DATABASE {name} FROM PUBLIC".encode())
            for block in blocks_of(_PAGE, "sql"):
                connection.execute(block.text.encode())
        yield name
    with pg18.superuser() as connection:
        connection.execute(f"DROP ROLE {_APP}, {_DASHBOARDS}, {_OPERATIONS}".encode())


async def test_the_role_of_the_application_can_do_everything(database: str, pg18: Server) -> None:
    async with Penstock(pg18.url(database, _APP)) as q:
        orders = q.queue("orders")
        await orders.config(retry_limit=0).create()
        await orders.push([{"data": 1, "id": "a"}, {"data": 2, "id": "b"}])
        events = await orders.batch(10).pop()
        await q.ack(events, "dead_letter", error="on purpose")
        await orders.dlq().redrive(all=True)
        await orders.repartition("hash", 2)
        await q.upkeep()

        assert await orders.lag() == 2
        assert await orders.delete()


async def test_operations_can_read_tables_that_are_made_later(database: str, pg18: Server) -> None:
    async with Penstock(pg18.url(database, _APP)) as q:
        await q.queue("orders").create()
        await q.queue("orders").push({"data": 1})

    with psycopg.connect(pg18.url(database, _OPERATIONS)) as connection:
        (chunks,) = connection.execute("SELECT sum(event_count) FROM penstock.chunks_1_1").fetchall()

        assert chunks == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM penstock.queues")


async def test_dashboards_can_read_results_of_queries_that_come_later_and_nothing_else(
    database: str, pg18: Server
) -> None:
    count = ResultColumn("count", "bigint", (StateColumn("a0", "bigint", _NO_SPARK, "{state} + {partial}"),), "{a0}")
    mean = ResultColumn(
        "mean",
        "numeric",
        (StateColumn("a1", "numeric", _NO_SPARK, "{state} + {partial}"),),
        "penstock.mean({a1}, {a0})",
    )
    median = "penstock.bucket_percentile({a2}, 0.5)"
    middle = ResultColumn("median", "double precision", (StateColumn("a2", "jsonb", _NO_SPARK, "{p}"),), median)
    stream = Stream.from_("orders").window_tumbling(seconds=5).aggregate({"count": "count(*)"})
    casts = {f"as_{place}": f"CAST(count AS {kind})" for place, kind in enumerate(_TYPES)}
    shape = window_output(stream.select(casts), [count])
    computed = [ResultColumn(name, "jsonb", (), final) for name, final in shape.fields]
    log = await Log(Database(Settings(database_url=pg18.url(database, _APP)))).open()
    try:
        registry = Registry(log)
        query = await registry.register("orders_5s", ["from: orders"], "abc", sink=None, history_seconds=60)
        await registry.create_tables(ResultTables(query.id, "orders_5s", [count, mean, middle, *computed]))
        async with log.database.connection() as conn:
            await conn.execute(
                "INSERT INTO penstock.state_1 (key, window_start, window_end, partition_id, a0, a1, a2, updated_at) "
                "VALUES ('ada', now(), now(), 1, 4, 10, '{\"10000\": 1}', now())"
            )
    finally:
        await log.close()

    with psycopg.connect(pg18.url(database, _DASHBOARDS), autocommit=True) as connection:
        for view in ("penstock_live.orders_5s", "penstock_history.orders_5s"):
            rows = connection.execute(f"SELECT key, count, mean, median > 0 FROM {view}".encode()).fetchall()  # noqa: S608
            assert rows == [("ada", 4, Decimal("2.5"), True)]
            assert connection.execute(f"SELECT * FROM {view}".encode()).fetchone() is not None  # noqa: S608
        for hidden in ("penstock.queries", "penstock.state_1", "penstock.dead_letters"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {hidden}".encode())  # noqa: S608
