"""Materialized views without Spark: tests provide the changes, and the engine's SQL applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.db.statements import Statements
from penstock.engine.query_registry import Registry
from penstock.engine.views.operator_graph import operator_graph
from penstock.engine.views.view_changes import ViewChanges
from penstock.engine.views.view_reader import ViewColumn
from penstock.engine.views.view_size import ViewState
from penstock.engine.views.view_table import ViewTable
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.statements.statement_parser import parse_application
from penstock.stream.views.describe import name_operators
from penstock.stream.views.view import columns_read
from penstock.stream.views.view_plan import Aggregate, Join, walk
from tests.console.scripted_query import ScriptedQuery

_commit = Statements("penstock.engine.cycle", "commit.sql")
_state = Statements("penstock.engine.state", "run_store.sql")

#: The columns of every view.
COLUMNS = (
    ViewColumn("customer", "string", "text"),
    ViewColumn("orders", "bigint", "bigint"),
    ViewColumn("total", "decimal(38,6)", "numeric"),
    ViewColumn("last_order", "timestamp", "timestamptz"),
)
_SCHEMA = pa.schema(
    [
        ("customer", pa.string()),
        ("orders", pa.int64()),
        ("total", pa.decimal128(38, 6)),
        ("last_order", pa.timestamp("us", "UTC")),
    ]
)
#: The time of all orders.
ORDERED_AT = datetime(2026, 1, 15, 12, tzinfo=UTC)


@dataclass
class ScriptedView:
    """A view whose cycles a test runs. Its rows are totals by customer."""

    query: ScriptedQuery
    table: ViewTable

    @classmethod
    async def start(cls, log: Log, statements: str, name: str) -> ScriptedView:
        """Register a view of a file of statements. Joins and aggregates have state, in the order of the plan."""
        statement = parse_application(Definition, statements).queries[name]
        view = statement.stream.view
        assert view is not None
        query = await ScriptedQuery.start(log, name, statement.stream)
        stateful = [each for each in dict.fromkeys(walk(view.root)) if isinstance(each, Aggregate | Join)]
        graph = operator_graph(view.root, dict(enumerate(stateful, 1)))
        table = ViewTable(
            query.id, name, COLUMNS, ("customer",), view.indexes, operators=graph, reads=columns_read(view.root)
        )
        names = name_operators(list(stateful))
        await Registry(log).create_view_table(table, ViewState(names, None, None))
        return cls(query, table)

    async def cycle(self, log: Log, totals: Mapping[str, tuple[int, str]], deleted: Sequence[str] = ()) -> None:
        """Commit rows that appear or change, by customer, and delete others."""
        stored = _rows([(name, orders, Decimal(total), ORDERED_AT) for name, (orders, total) in totals.items()])
        empty = stored.slice(0, 0)
        removed = _rows([(name, None, None, None) for name in deleted])
        changes = ViewChanges(stored, empty, empty, removed)
        cycle, begun = await self.query.begin(log, 1), datetime.now(UTC)
        async with log.database.connection() as conn, conn.transaction():
            now = datetime.now(UTC)
            await conn.execute(self.table.create_staging_table())
            await self.table.stage(conn, changes)
            await self.table.apply(conn, changes, "job", now)
            counts = {"events_in": 1, "events_out": 0, "windows": 0, "late": 0, "dead": 0, "dropped": 0}
            times = {"started": begun, "oldest": now, "watermark": None, "took": "{}"}
            finished = {"query": self.query.id, "cycle": cycle, "changes": changes.count, **counts, **times}
            await conn.execute(_commit["finish_cycle"], finished)

    async def store_state(self, log: Log, operator: int, rows: int, size: int) -> None:
        """Stage state of an operator. The next cycle makes it current."""
        run = {"query": self.query.id, "operator": operator, "shard": 0, "part": 0, "run_id": f"run-{operator}"}
        stored = {**run, "token": "job", "attempt": 1, "replaces": [], "rows": rows, "data": bytes(size)}
        stored |= {"min_us": None, "median_us": None, "max_us": None}
        async with log.database.connection() as conn:
            await conn.execute(_state["stage_run"], stored)


def _rows(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    return pa.table(
        [pa.array(values, kind.type) for values, kind in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
