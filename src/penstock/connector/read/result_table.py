"""``spark.read.format("penstock").option("query", ...)``: reads the result of a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.connector.database_url import Conninfo, RetryingConnection
from penstock.connector.options import ResultOptions
from penstock.core.errors import InvalidRequest, NotFound, short_repr
from penstock.db.statements import Statements
from penstock.db.sync_connection import connect_for_user_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_sql = Statements("penstock.connector.read", "result_table.sql")

_BATCH_ROWS = 10_000
#: Spark types by PostgreSQL type. Columns of other types are read as text.
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
class ResultView:
    """The view with the result of a query."""

    database: Conninfo
    options: ResultOptions

    @property
    def view(self) -> sql.Identifier:
        """The view of closed and open windows, or of open windows."""
        return sql.Identifier("penstock_history" if self.options.history else "penstock_live", self.options.query)

    def columns(self) -> dict[str, str]:
        """Return the columns with their PostgreSQL types."""
        with closing(RetryingConnection(self.database)) as connection:
            return connection.run(self._columns)

    def _columns(self, conn: psycopg.Connection[Any]) -> dict[str, str]:
        columns = dict(conn.execute(_sql["columns"], {"view": self.view.as_string(conn)}).fetchall())
        if not columns:
            names = [name for (name,) in conn.execute(_sql["queries"]).fetchall()]
            known = f"; there are {', '.join(names[:10])}" if names else "; there are none"
            raise NotFound(f"there is no query {self.options.query!r} with windows{known}")
        return columns


def to_ddl(result: ResultView) -> str:
    columns = result.columns().items()
    return ", ".join(f"`{name.replace('`', '``')}` {_TYPES.get(kind, 'string')}" for name, kind in columns)


class ResultReader(DataSourceReader):
    """Reads all rows in one task, with one statement, so that the rows are consistent."""

    def __init__(self, result: ResultView, schema: StructType) -> None:
        kinds = result.columns()
        for name in schema.fieldNames():
            if name not in kinds:
                raise InvalidRequest(
                    f"query {result.options.query!r} has no column {short_repr(name)}: it has {', '.join(kinds)}"
                )
        self._database = result.database
        self._schema = schema
        columns = [_select_item(name, kinds[name]) for name in schema.fieldNames()]
        self._statement = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), result.view).as_string()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        with (
            connect_for_user_sql(self._database.reveal(), "connector") as conn,
            conn.transaction(),
            conn.cursor("rows", withhold=False) as cursor,
        ):
            cursor.execute(self._statement.encode())
            while rows := cursor.fetchmany(_BATCH_ROWS):
                columns = list(zip(*rows, strict=True))
                arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _select_item(name: str, kind: str) -> sql.Composable:
    column = sql.Identifier(name)
    if kind == "numeric":
        return sql.SQL("{}::numeric(38,18)").format(column)
    return column if kind in _TYPES else sql.SQL("{}::text").format(column)
