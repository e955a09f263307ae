"""The table that the table sink writes, and the statements that write it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row

from penstock.core.errors import InvalidRequest
from penstock.db.statements import Statements, quote_identifier
from penstock.db.table_names import find_table

_sql = Statements("penstock.sinks", "table.sql")


class _TargetColumn(NamedTuple):
    name: str
    is_primary_key: bool
    has_default: bool
    is_writable: bool


@dataclass(frozen=True, slots=True)
class TargetTable:
    """The columns of the table that the sink writes."""

    #: The qualified and quoted name.
    name: sql.SQL
    columns: tuple[str, ...]
    #: Columns with a default. The table sets them if an event has no value for them.
    optional: frozenset[str]
    key: tuple[str, ...]

    def has_key_of(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row has values for the whole key, so that no default is part of it."""
        set_by_table = self.optional.difference(row).union(set(self.key).difference(self.columns))
        return bool(self.key) and set_by_table.isdisjoint(self.key)

    def write_statement(self, missing: Collection[str]) -> sql.Composed:
        """The statement that writes rows without the columns ``missing``, which have a default."""
        columns = [name for name in self.columns if name not in missing]
        insert = sql.SQL(_sql["insert"]).format(
            table=self.name, columns=sql.SQL(", ").join(map(quote_identifier, columns))
        )
        if not self.key:
            return insert
        key = sql.SQL(", ").join(map(quote_identifier, self.key))
        others = [name for name in columns if name not in self.key]
        if not others:
            return sql.Composed([insert, sql.SQL(" "), sql.SQL(_sql["keep"]).format(key=key)])
        replace = sql.SQL(_sql["replace"]).format(
            key=key,
            others=sql.SQL(", ").join(map(quote_identifier, others)),
            excluded=sql.SQL(", ").join(quote_identifier("excluded", name) for name in others),
        )
        return sql.Composed([insert, sql.SQL(" "), replace])

    def delete_statement(self) -> sql.Composed:
        """The statement that deletes the rows of a list of keys."""
        same_key = [
            sql.SQL("{} = {}").format(quote_identifier("t", name), quote_identifier("d", name)) for name in self.key
        ]
        return sql.SQL(_sql["delete"]).format(table=self.name, same_key=sql.SQL(" AND ").join(same_key))


async def read_target(
    connection: AsyncConnection[Any], table_name: str, key: Sequence[str] | None, mapped: Collection[str] | None
) -> TargetTable:
    """Read the columns of the table from the catalog. ``mapped``: the columns that are written, if not all."""
    table = await find_table(connection, table_name)
    if table is None:
        raise InvalidRequest(f"there is no table {table_name!r}: create it first, or name its schema too")
    async with connection.cursor(row_factory=class_row(_TargetColumn)) as cursor:
        rows = await (await cursor.execute(_sql["columns"], [table_name])).fetchall()
    has_default = {row.name: row.has_default for row in rows if row.is_writable}
    primary_key = [row.name for row in rows if row.is_primary_key]
    if key is None:
        key = primary_key if has_default.keys() >= set(primary_key) else []
    columns = tuple(has_default) if mapped is None else tuple(mapped)
    unknown = [name for name in (*columns, *key) if name not in has_default]
    if unknown:
        raise InvalidRequest(
            f"table {table_name!r} has no writable column {unknown[0]!r}; it has {', '.join(has_default)}"
        )
    optional = frozenset(name for name in columns if has_default[name])
    return TargetTable(table, columns, optional, tuple(key))
