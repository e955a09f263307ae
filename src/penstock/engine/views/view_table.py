"""The table of a view's result, and the statements that apply the changes of a cycle to it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import AsyncConnection, sql

from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.results.arrow_csv import to_csv
from penstock.engine.views.operator_graph import OperatorNode, graph_to_json
from penstock.engine.views.view_changes import ViewChanges
from penstock.engine.views.view_reader import ViewColumn

_sql = Statements("penstock.engine.views", "view_table.sql")
_state_sql = Statements("penstock.engine.state", "run_store.sql")

#: PostgreSQL converts microseconds faster than text. It multiplies intervals as doubles, which hold whole seconds of
#: every year, and microseconds only until 2255.
_MICROS_TO_TIME = (
    "'epoch'::timestamptz + c.{0} / 1000000 * interval '1 second' + c.{0} % 1000000 * interval '1 microsecond'"
)


@dataclass(frozen=True)
class ViewTable:
    """The table of one view."""

    query_id: int
    name: str
    columns: Sequence[ViewColumn]
    #: The names of the columns that identify a row.
    key: tuple[str, ...]
    indexes: Sequence[Sequence[str]] = ()
    #: True if rows only appear, so that no stored row changes.
    is_append_only: bool = False
    operators: Sequence[OperatorNode] = ()
    #: The columns that it reads of other views, by view.
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Whether the result is shown in ``penstock_live``. A new version of a view is not while it is computed.
    is_shown: bool = True

    def create_statements(self) -> list[str]:
        statements = [
            self._fill("create_table", definitions=",\n    ".join(map(self._definition, self.columns))),
            self._fill("create_key", key=_identifiers(self.key)),
        ]
        return [*statements, show_statement(self.query_id, self.name, self.columns)] if self.is_shown else statements

    def index_statements(self) -> dict[str, str]:
        return index_statements(self.query_id, self.indexes)

    def to_json(self) -> dict[str, Any]:
        """The description of the view in the row of its query."""
        columns = [
            {"name": each.name, "spark_type": each.spark_type, "type": each.pg_type, "is_hidden": each.is_hidden}
            for each in self.columns
        ]
        return {
            "columns": columns,
            "key": list(self.key),
            "is_append_only": self.is_append_only,
            "indexes": [list(index) for index in self.indexes],
            "reads": {view: list(fields) for view, fields in self.reads.items()},
            "operators": graph_to_json(self.operators),
            "is_shown": self.is_shown,
        }

    def create_staging_table(self) -> str:
        return self._fill("create_staging_table", staged=", ".join(map(_staged_definition, self.columns)))

    async def stage(self, conn: AsyncConnection[Any], changes: ViewChanges) -> None:
        """Copy the changes of a cycle to a temporary table."""
        rows = pa.concat_tables(
            [self._staged_rows(changes.rows_to_delete, True), self._staged_rows(changes.rows_to_store, False)]
        )
        if rows.num_rows:
            async with conn.cursor().copy(self._fill("copy_changes", names=self._names)) as copy:
                await copy.write(to_csv(rows))

    async def apply(self, conn: AsyncConnection[Any], changes: ViewChanges, token: str, now: datetime) -> None:
        """Apply the staged changes, and make the state of the Spark job with this token current."""
        for mask in pc.unique(_null_masks(changes.rows_to_delete, self.key)).to_pylist():
            await conn.execute(self._fill_with_params("delete_rows", same_key=self._same_key(mask)), {"mask": mask})
        if changes.rows_to_store.num_rows:
            await conn.execute(self._store_statement(), {"now": now})
        await conn.execute(_state_sql["apply_runs"], {"query": self.query_id, "token": token})

    def _store_statement(self) -> str:
        values = ", ".join(map(_stored_value, self.columns))
        if self.is_append_only:
            return self._fill_with_params("insert_rows", names=self._names, values=values)
        updated = [column.name for column in self.columns if column.name not in self.key] or [self.key[0]]
        return self._fill_with_params(
            "upsert_rows",
            names=self._names,
            values=values,
            order=", ".join(f"c.{_identifier(name)}" for name in self.key),
            key=_identifiers(self.key),
            updates=", ".join(f"{_identifier(name)} = excluded.{_identifier(name)}" for name in updated),
        )

    @property
    def _names(self) -> str:
        return _identifiers(column.name for column in self.columns)

    def _same_key(self, mask: int) -> str:
        """SQL that is true for the row of a change whose key has nulls where the mask has bits."""
        types = {column.name: column for column in self.columns}
        return " AND ".join(
            f"t.{_identifier(name)} IS NULL"
            if mask >> number & 1
            else f"t.{_identifier(name)} = {_stored_value(types[name])}"
            for number, name in enumerate(self.key)
        )

    def _staged_rows(self, rows: pa.Table, is_delete: bool) -> pa.Table:
        arrays = [_to_staged(rows.column(column.name)) for column in self.columns]
        flags = pa.array(np.full(rows.num_rows, is_delete))
        names = [*(column.name for column in self.columns), "__mask", "__is_delete"]
        return pa.table([*arrays, _null_masks(rows, self.key), flags], names=names)

    def _definition(self, column: ViewColumn) -> str:
        # Texts of the key are compared by their bytes, which is faster and needs no collation.
        collation = ' COLLATE "C"' if column.pg_type == "text" and column.name in self.key else ""
        return f"{_identifier(column.name)} {column.pg_type}{collation}"

    def _fill_with_params(self, statement: str, **values: str) -> str:
        """Fill in a statement with parameters, in which the names of columns must not look like one."""
        return self._fill(statement, **{name: value.replace("%", "%%") for name, value in values.items()})

    def _fill(self, statement: str, **values: Any) -> str:
        return fill_placeholders(_sql[statement], id=self.query_id, **values)


def show_statement(query_id: int, name: str, columns: Sequence[ViewColumn]) -> str:
    """The statement that shows the result as ``penstock_live.<name>``."""
    visible = [f"t.{_identifier(column.name)}" for column in columns if not column.is_hidden]
    return fill_placeholders(_sql["create_view"], id=query_id, view=_identifier(name), columns=", ".join(visible))


def index_statements(query_id: int, indexes: Sequence[Sequence[str]]) -> dict[str, str]:
    """The statements that create additional indexes, by names that depend on the columns of an index alone."""
    names = {f"view_{query_id}_index_{_digest(columns)}": columns for columns in indexes}
    return {
        name: fill_placeholders(_sql["create_index"], id=query_id, name=name, columns=_identifiers(columns))
        for name, columns in names.items()
    }


def _digest(columns: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(columns).encode()).hexdigest()[:12]


def _null_masks(rows: pa.Table, key: Sequence[str]) -> pa.Array[Any]:
    masks = np.zeros(rows.num_rows, np.int64)
    for number, name in enumerate(key):
        if rows.column(name).null_count:
            masks |= pc.is_null(rows.column(name)).to_numpy().astype(np.int64) << number
    return pa.array(masks)


def _to_staged(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _staged_definition(column: ViewColumn) -> str:
    kind = "bigint" if column.pg_type == "timestamptz" else column.pg_type
    return f"{_identifier(column.name)} {kind}"


def _stored_value(column: ViewColumn) -> str:
    name = _identifier(column.name)
    if column.pg_type == "timestamptz":
        return _MICROS_TO_TIME.format(name)
    # Spark's decimals have trailing zeros.
    return f"trim_scale(c.{name})" if column.pg_type == "numeric" else f"c.{name}"


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string()


def _identifiers(names: Any) -> str:
    return ", ".join(map(_identifier, names))
