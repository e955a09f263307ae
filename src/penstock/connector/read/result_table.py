"""``spark.read.format("penstock").option("query", ...)``: the rows of a result, open windows and closed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.connector.database import Conninfo
from penstock.connector.options import Table
from penstock.connector.retrying_connection import Line
from penstock.core.errors import InvalidRequest, NotFound, shown
from penstock.db.statements import Statements
from penstock.db.sync import connect_plainly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_sql = Statements("penstock.connector.read", "result_table.sql")

_ROWS = 10_000
#: Types of results as Spark has them; what is not here comes as text.
_TYPES = {
    "bigint": "bigint",
    "integer": "int",
    "numeric": "decimal(38,18)",
    "double precision": "double",
    "boolean": "boolean",
    "text": "string",
    "timestamp with time zone": "timestamp",
    "date": "date",
}


@dataclass(frozen=True)
class Result:
    """A query's result in a database."""

    database: Conninfo
    table: Table

    @property
    def view(self) -> sql.Identifier:
        """Where its rows are: closed windows and open ones, or the open ones alone."""
        return sql.Identifier("penstock_history" if self.table.history else "penstock_live", self.table.query)

    def columns(self) -> dict[str, str]:
        """Its columns and their types in PostgreSQL."""
        with closing(Line(self.database)) as line:
            return line.ask(self._columns)

    def _columns(self, conn: psycopg.Connection[Any]) -> dict[str, str]:
        found = dict(conn.execute(_sql["columns"], {"view": self.view.as_string(conn)}).fetchall())
        if not found:
            names = [name for (name,) in conn.execute(_sql["queries"]).fetchall()]
            known = f": there are {', '.join(names[:10])}" if names else ", nor any other"
            raise NotFound(f"there is no query {self.table.query!r} with windows, whose rows could be read{known}")
        return found


def ddl(result: Result) -> str:
    """The columns as Spark has them."""
    columns = result.columns().items()
    return ", ".join(f"`{name.replace('`', '``')}` {_TYPES.get(kind, 'string')}" for name, kind in columns)


class ResultReader(DataSourceReader):
    """Reads all rows in one task, as one statement sees them: a result is no longer than its windows are many."""

    def __init__(self, result: Result, schema: StructType) -> None:
        kinds = result.columns()
        for name in schema.fieldNames():
            if name not in kinds:
                raise InvalidRequest(
                    f"query {result.table.query!r} has no column {shown(name)}: it has {', '.join(kinds)}"
                )
        self._database = result.database
        self._schema = schema
        columns = [_shown_as(name, kinds[name]) for name in schema.fieldNames()]
        self._statement = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), result.view).as_string()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        with (
            connect_plainly(self._database.reveal(), "connector") as conn,
            conn.transaction(),
            conn.cursor("rows", withhold=False) as cursor,
        ):
            cursor.execute(self._statement.encode())
            while rows := cursor.fetchmany(_ROWS):
                columns = list(zip(*rows, strict=True))
                arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shown_as(name: str, kind: str) -> sql.Composable:
    column = sql.Identifier(name)
    if kind == "numeric":
        return sql.SQL("{}::numeric(38,18)").format(column)
    return column if kind in _TYPES else sql.SQL("{}::text").format(column)
