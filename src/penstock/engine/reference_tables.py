"""Reference tables: what streams are joined with, read again when it is time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from penstock.core.errors import InvalidRequest, shown
from penstock.db.sync import connect_plainly
from penstock.engine.worker.json_columns import NUMBER
from penstock.engine.worker.read_config import Reading
from penstock.stream.expression import is_frame, is_python
from penstock.stream.steps import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Known:
    """A table as it was read."""

    table: Table
    at: float
    #: None: a DataFrame, which Spark reads.
    rows: pa.Table | None


class ReferenceTables:
    """The reference tables of one query.

    Each is read once and kept until :meth:`forget_stale`, which is asked before each cycle, finds that it is time.
    """

    def __init__(self, conninfo: str, reading: Reading) -> None:
        self.reading = reading
        self._conninfo = conninfo
        #: By name and by what is meant: two steps may call two tables the same.
        self._known: dict[tuple[str, int], _Known] = {}
        self._listening: psycopg.Connection[Any] | None = None
        self._channels: set[str] = set()

    def frame(self, spark: SparkSession, name: str, table: Table) -> DataFrame:
        """The table, as fresh as it asked to be."""
        known = self._known.get((name, id(table)))
        if known is None:
            if table.notify is not None:
                self._listen(table.notify)
            rows = None if table.query is None else self._rows(name, table.query)
            known = self._known[name, id(table)] = _Known(table, time.monotonic(), rows)
        return _made(spark, name, table) if known.rows is None else spark.createDataFrame(known.rows)

    def forget_stale(self) -> bool:
        """Forget the tables that are to be read again, and say whether there are any: plans with them are old then."""
        heard, now = self._heard(), time.monotonic()
        stale = [
            place
            for place, known in self._known.items()
            if known.table.notify in heard or now - known.at > known.table.refresh_seconds
        ]
        for place in stale:
            del self._known[place]
        return bool(stale)

    def close(self) -> None:
        """Let go of the connection."""
        if self._listening is not None:
            self._listening.close()

    def _heard(self) -> set[str]:
        """The channels on which something was said; all of them, if the connection was lost."""
        if self._listening is None:
            return set()
        try:
            return {notice.channel for notice in self._listening.notifies(timeout=0)}
        except psycopg.OperationalError:
            self._listening.close()
            return self._channels

    def _listen(self, channel: str) -> None:
        """Before the table is read: what changes it afterwards is heard."""
        if self._listening is None or self._listening.closed:
            self._listening = connect_plainly(self._conninfo, "listener")
            self._channels = set()
        if channel not in self._channels:
            self._listening.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
            self._channels.add(channel)

    def _rows(self, name: str, query: str) -> pa.Table:
        try:
            return self._fetch(query)
        except psycopg.ProgrammingError as error:
            raise InvalidRequest(
                f"the reference table {name!r} cannot be read: {error.diag.message_primary or error}. It is asked "
                f"for with {shown(query)}, as the user that the query runs as"
            ) from error

    def _fetch(self, query: str) -> pa.Table:
        with connect_plainly(self._conninfo, "reference") as conn:
            cursor = conn.execute(query)
            rows = cursor.fetchall()
            columns = cursor.description or []
        values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        return pa.table({c.name: _column(c, some) for c, some in zip(columns, values, strict=True)})


def _made(spark: SparkSession, name: str, table: Table) -> DataFrame:
    """A DataFrame, as it is given or as a function makes it, in the session of the query."""
    made: DataFrame = table.frame(spark) if is_python(table.frame) else table.frame
    if not is_frame(made):
        raise InvalidRequest(
            f"the function of the reference table {name!r} returned {shown(made)}: it returns a Spark DataFrame"
        )
    return made if made.sparkSession is spark else spark.createDataFrame(made.toArrow())


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
