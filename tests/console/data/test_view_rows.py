"""The rows of views: exact values, order, search, and which rows changed."""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from penstock.console.data.view_rows import ViewRowsReader, ViewRowsRequest
from penstock.console.data.views import VisibleColumn, find_view, read_view, read_views
from penstock.engine.views.view_reader import ViewColumn
from penstock.engine.views.view_table import ViewTable
from penstock.log.log import Log
from tests.console.scripted_view import ScriptedView
from tests.log.logs import opened

STATEMENTS = (
    "CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*) AS orders, sum(paid) AS total, max(at) AS last_order "
    "FROM orders GROUP BY customer"
)
HOSTILE = ('key "%(x)s {id}', "value %s; --")


async def start_totals(log: Log) -> tuple[ScriptedView, ViewRowsRequest]:
    await log.configure("orders")
    view = await ScriptedView.start(log, STATEMENTS, "totals")
    definition = await find_view(log, "totals")
    assert definition is not None
    request = ViewRowsRequest(definition.query_id, definition.columns, definition.key, definition.visible_key)
    return view, request


async def test_rows_that_changed_since_the_last_read_are_marked(database_url: str) -> None:
    async with opened(database_url) as log:
        view, request = await start_totals(log)
        reader = ViewRowsReader(log.database, request)
        assert (await reader.read()).rows == []
        await view.cycle(log, {"ada": (1, "0.10"), "bob": (2, "7")})
        assert {row.values[0]: row.is_changed for row in (await reader.read()).rows} == {"ada": True, "bob": True}
        await view.cycle(log, {"bob": (3, "12345678901234567890.000001")})
        changed = await reader.read()
        assert [(row.values[:3], row.is_changed) for row in changed.rows] == [
            (["bob", "3", "12345678901234567890.000001"], True),
            (["ada", "1", "0.1"], False),
        ]
        assert await reader.read() is changed
        first_look = await ViewRowsReader(log.database, request).read()
        assert not any(row.is_changed for row in first_look.rows)


async def test_rows_are_sorted_searched_and_paged(database_url: str) -> None:
    async with opened(database_url) as log:
        view, request = await start_totals(log)
        await view.cycle(log, {f"c{i:03}": (i % 10, str(i)) for i in range(250)})

        async def customers(request: ViewRowsRequest) -> tuple[list[str | None], int]:
            read = await ViewRowsReader(log.database, request).read()
            return [row.values[0] for row in read.rows], read.matching

        by_orders = replace(request, sort="orders", is_descending=False, limit=3)
        assert await customers(by_orders) == (["c000", "c010", "c020"], 250)
        assert await customers(replace(by_orders, offset=24)) == (["c240", "c001", "c011"], 250)
        assert await customers(replace(by_orders, search="C24")) == (["c240", "c241", "c242"], 10)
        assert await customers(replace(by_orders, search="%")) == ([], 0)


async def test_names_of_columns_are_quoted(database_url: str) -> None:
    async with opened(database_url) as log:
        view, _ = await start_totals(log)
        key, value = HOSTILE
        # The table of another view: its columns were not known when the statement was written.
        columns = (ViewColumn(key, "string", "text"), ViewColumn(value, "bigint", "bigint"))
        table = ViewTable(view.query.id + 1, "hostile", columns, (key,))
        async with log.database.connection() as conn:
            for statement in table.create_statements():
                await conn.execute(statement.encode(), prepare=False)
            insert = sql.SQL("INSERT INTO {} VALUES ('a', 1, now()), ('b', NULL, now())")
            await conn.execute(insert.format(sql.Identifier("penstock", f"view_{table.query_id}")))
        fields = tuple(VisibleColumn(column.name, column.pg_type) for column in columns)
        request = ViewRowsRequest(table.query_id, fields, (key,), (key,), sort=value, search="b")
        (row,) = (await ViewRowsReader(log.database, request).read()).rows
        assert row.values == ["b", None]


async def test_sizes_and_rates_are_those_of_the_cycles(database_url: str) -> None:
    async with opened(database_url) as log:
        assert await read_views(log) == []
        view, _ = await start_totals(log)
        await view.store_state(log, 1, 40, 1000)
        await view.cycle(log, {f"c{i}": (1, "1") for i in range(40)})
        await view.cycle(log, {"c1": (2, "2")}, deleted=["c2"])
        async with log.database.connection() as conn:
            # The rate is that of the last seconds, however long the test takes.
            await conn.execute("UPDATE penstock.cycles SET committed_at = clock_timestamp() + interval '1 hour'")
        (summary,) = await read_views(log)
        assert summary.size[2:] == (summary.size.bytes, 40, 1000, 42)
        details = await read_view(log, "totals")
        assert details is not None
        assert details.changes_per_second == summary.size.changes_per_second == 4.2
        assert list(details.status.operators) == [(1, "aggregate by orders.customer", 40, 1000)]
        assert await read_view(log, "other") is None
