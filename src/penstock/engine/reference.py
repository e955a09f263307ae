"""Reference tables: what streams are joined with, read again when it is time."""

from __future__ import annotations

import time
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from penstock.core.errors import InvalidRequest, shown
from penstock.db.blocking import connect_plainly
from penstock.engine.fields import NUMBER
from penstock.engine.reading import Reading
from penstock.stream.expression import is_frame, is_python
from penstock.stream.steps import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ReferenceTables:
    """The reference tables of one query."""

    def __init__(self, conninfo: str, reading: Reading) -> None:
        self.reading = reading
        self._conninfo = conninfo
        self._read: dict[str, tuple[float, pa.Table]] = {}
        self._listening: psycopg.Connection[Any] | None = None
        self._channels: set[str] = set()
        self._heard: set[str] = set()
        self._tables: dict[str, Table] = {}

    def frame(self, spark: SparkSession, name: str, table: Table) -> DataFrame:
        """The table, as fresh as it asked to be."""
        self._tables[name] = table
        if table.query is None:
            made: DataFrame = table.frame(spark) if is_python(table.frame) else table.frame
            if not is_frame(made):
                raise InvalidRequest(
                    f"the function of the reference table {name!r} returned {shown(made)}: it returns a Spark DataFrame"
                )
            if made.sparkSession is spark:
                return made
            return spark.createDataFrame(made.toArrow())
        if table.notify is not None:
            self._listen(table.notify)
        if name not in self._read or self._is_due(name):
            self._heard.discard(table.notify or "")
            try:
                self._read[name] = (time.monotonic(), self._fetch(table.query))
            except psycopg.ProgrammingError as error:
                raise InvalidRequest(
                    f"the reference table {name!r} cannot be read: {error.diag.message_primary or error}. It is asked "
                    f"for with {shown(table.query)}, as the user that the query runs as"
                ) from error
        return spark.createDataFrame(self._read[name][1])

    def is_stale(self) -> bool:
        """Whether a table is to be read again."""
        if self._listening is not None:
            self._heard |= {notice.channel for notice in self._listening.notifies(timeout=0)}
        return any(self._is_due(name) for name in self._read)

    def close(self) -> None:
        """Let go of the connection."""
        if self._listening is not None:
            self._listening.close()

    def _is_due(self, name: str) -> bool:
        table = self._tables[name]
        return table.notify in self._heard or time.monotonic() - self._read[name][0] > table.refresh_seconds

    def _listen(self, channel: str) -> None:
        """Before the table is read: what changes it afterwards is heard."""
        if self._listening is None or self._listening.closed:
            self._listening = connect_plainly(self._conninfo, "listener")
            self._channels.clear()
        if channel not in self._channels:
            self._listening.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
            self._channels.add(channel)

    def _fetch(self, query: str) -> pa.Table:
        with connect_plainly(self._conninfo, "reference") as conn:
            cursor = conn.execute(query)
            rows = cursor.fetchall()
            columns = cursor.description or []
        values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        return pa.table({c.name: _column(c, some) for c, some in zip(columns, values, strict=True)})


#: By the number that PostgreSQL gives a type. What a column is must not depend on what is in it today.
_TYPES = {
    **dict.fromkeys((20, 21, 23), pa.int64()),
    **dict.fromkeys((700, 701), pa.float64()),
    **dict.fromkeys((25, 1043), pa.string()),
    16: pa.bool_(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", tz="UTC"),
    1700: NUMBER,
}
_SMALLEST = Decimal(1).scaleb(-NUMBER.scale)
_WIDE = Context(prec=200, rounding=ROUND_HALF_UP)


def _column(column: psycopg.Column, values: tuple[Any, ...]) -> pa.Array:
    kind = _TYPES.get(column.type_code)
    if kind == NUMBER:
        return _numbers(column.name, values)
    array = pa.array(values, kind)
    return array.cast(pa.string()) if array.type == pa.null() else array


def _numbers(name: str, values: tuple[Decimal | None, ...]) -> pa.Array:
    """Numbers with the digits after the point that those of events have too."""
    try:
        return pa.array([None if v is None else v.quantize(_SMALLEST, context=_WIDE) for v in values], NUMBER)
    except (pa.ArrowInvalid, DecimalException) as error:
        raise InvalidRequest(
            f"column {name!r} of a reference table holds what is no number of up to 20 digits before the point, NaN "
            "perhaps: leave it out in the query, or cast it to double precision"
        ) from error
