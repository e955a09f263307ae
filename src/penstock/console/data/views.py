"""Materialized views: their list with sizes and rates, and the definition and the readers of one view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.engine.query_registry import QueryInfo, Registry
from penstock.engine.views.operator_graph import OperatorNode, graph_from_json
from penstock.engine.views.view_size import ViewStatus, read_view_status
from penstock.log.log import Log
from penstock.log.queue_info import GroupInfo

_sql = Statements("penstock.console.data", "views.sql")

#: Changes per second are averaged over this time.
_PERIOD = timedelta(seconds=10)


class ViewSize(NamedTuple):
    query_id: int
    #: The number of rows, as PostgreSQL estimates it, and the size of the table with its indexes.
    rows: int
    bytes: int
    #: The state of all operators.
    state_rows: int
    state_bytes: int
    #: The changes of the last seconds.
    changes: int

    @property
    def changes_per_second(self) -> float:
        return self.changes / _PERIOD.total_seconds()


@dataclass(frozen=True, slots=True)
class ViewSummary:
    info: QueryInfo
    size: ViewSize
    #: The number of events that it has not read.
    lag: int


class VisibleColumn(NamedTuple):
    name: str
    #: The type in PostgreSQL.
    type: str


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view as it was stored when it first ran."""

    query_id: int
    columns: tuple[VisibleColumn, ...]
    #: The columns that identify a row. Those that are not among the columns are hidden.
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...]
    #: Empty for a view that an earlier version started.
    operators: Sequence[OperatorNode]

    @property
    def visible_key(self) -> tuple[str, ...]:
        visible = {column.name for column in self.columns}
        return tuple(name for name in self.key if name in visible)


@dataclass(frozen=True, slots=True)
class ViewDetails:
    info: QueryInfo
    status: ViewStatus
    changes_per_second: float
    #: Its groups on the queues that it reads.
    sources: Sequence[GroupInfo]
    #: The groups that read its changes: views, other queries, sinks.
    readers: Sequence[GroupInfo]
    #: The names of the readers that are views.
    reading_views: frozenset[str]


async def read_views(log: Log) -> list[ViewSummary]:
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["sizes"], {"period": _PERIOD})).fetchall()
    sizes = {size.query_id: size for size in map(ViewSize._make, rows)}
    if not sizes:
        return []
    lags: dict[str, int] = {}
    for group in await log.groups():
        if group.query_id is not None:
            lags[group.query_id] = lags.get(group.query_id, 0) + group.lag
    return [
        ViewSummary(info, sizes[info.id], lags.get(info.name, 0))
        for info in await Registry(log).list()
        if info.id in sizes
    ]


async def find_view(log: Log, name: str) -> ViewDefinition | None:
    """Return the definition of a view; None if there is none, or if it has not run yet."""
    async with log.database.connection() as conn:
        row: tuple[int, dict[str, Any]] | None = await (
            await conn.execute(_sql["definition"], {"name": name})
        ).fetchone()
    if row is None:
        return None
    query_id, view = row
    return ViewDefinition(
        query_id,
        tuple(VisibleColumn(each["name"], each["type"]) for each in view["columns"] if not each["is_hidden"]),
        tuple(view["key"]),
        tuple(map(tuple, view.get("indexes", ()))),
        graph_from_json(view.get("operators", ())),
    )


async def read_view(log: Log, name: str) -> ViewDetails | None:
    """Return the sizes, the rate and the readers of a view; None if it was deleted."""
    info = next((query for query in await Registry(log).list() if query.name == name), None)
    status = None if info is None else await read_view_status(log.database, info.id)
    if info is None or status is None:
        return None
    groups = await log.groups()
    readers = [group for group in groups if group.queue == info.sink]
    params = {"query": info.id, "period": _PERIOD, "names": [group.query_id for group in readers]}
    async with log.database.connection() as conn:
        changes = await fetch_scalar(conn, _sql["changes"], params)
        names = await (await conn.execute(_sql["names"], params)).fetchall() if readers else []
    return ViewDetails(
        info,
        status,
        (changes or 0) / _PERIOD.total_seconds(),
        sources=[group for group in groups if group.query_id == name],
        readers=readers,
        reading_views=frozenset(name for (name,) in names),
    )
