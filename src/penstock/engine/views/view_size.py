"""The size of a view: its rows, its table, and the state of its operators. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine.views", "view_size.sql")

#: A state with more than this part of its limit is worth a warning.
WARNING_SHARE = 0.8


@dataclass(frozen=True)
class ViewState:
    """The columns of a query's row about the state of a view."""

    #: The names of the operators with state, in the order of their numbers.
    state_names: Sequence[str]
    state_ttl_seconds: float | None
    max_state_bytes: int | None


class OperatorSize(NamedTuple):
    """The state of an operator. Operators are numbered from 1, inputs first."""

    operator: int
    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ViewStatus:
    #: The visible columns that identify a row.
    key: Sequence[str]
    #: The number of rows, as PostgreSQL estimates it.
    rows: int
    #: The size of the table with its indexes.
    bytes: int
    operators: Sequence[OperatorSize]
    #: The limits of the state, if there are any.
    state_ttl_seconds: float | None
    max_state_bytes: int | None

    @property
    def state_bytes(self) -> int:
        return sum(each.bytes for each in self.operators)

    @property
    def is_near_limit(self) -> bool:
        return self.max_state_bytes is not None and self.state_bytes > WARNING_SHARE * self.max_state_bytes


async def read_view_status(database: Database, query: int) -> ViewStatus | None:
    """Read the size of a view; None if the query is no view or was never prepared."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["view"], {"query": query})).fetchone()
        if row is None:
            return None
        operators = await (await conn.execute(_sql["operators"], {"query": query})).fetchall()
    view, rows, size = row
    hidden = {column["name"] for column in view["columns"] if column["is_hidden"]}
    return ViewStatus(
        [name for name in view["key"] if name not in hidden],
        rows,
        size,
        [OperatorSize(*each) for each in operators],
        # A view that has not run since an upgrade has none of these.
        view.get("state_ttl_seconds"),
        view.get("max_state_bytes"),
    )
