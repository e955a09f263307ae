"""Reference tables that streams are joined with. They are cached and refreshed."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.core.errors import InvalidRequest, short_repr
from penstock.db.sync_connection import connect_for_user_sql
from penstock.engine.worker.json_columns import DEFAULT_NUMBER
from penstock.engine.worker.read_config import ReadConfig
from penstock.stream.expression import is_frame, is_python
from penstock.stream.steps import ReferenceTable


@dataclass(frozen=True)
class _CachedTable:
    table: ReferenceTable
    read_at: float
    #: None for a DataFrame, which Spark reads.
    rows: pa.Table | None


class ReferenceTables:
    """The reference tables of one query.

    Each is read once. :meth:`forget_stale` runs before each cycle and drops tables that are due for a refresh.
    """

    def __init__(self, config: ReadConfig) -> None:
        self.read_config = config
        #: By name and identity, because two steps may use one name for two tables.
        self._cache: dict[tuple[str, int], _CachedTable] = {}
        self._listener = _Listener(config.conninfo)

    def with_config(self, config: ReadConfig) -> ReferenceTables:
        """Return the same tables for an input of a join, which has a configuration of its own."""
        shared = copy(self)
        shared.read_config = config
        return shared

    def frame(self, spark: SparkSession, name: str, table: ReferenceTable) -> DataFrame:
        """Return the table, from the cache if it is there."""
        rows = self._load(name, table).rows
        return _user_frame(spark, name, table) if rows is None else spark.createDataFrame(rows)

    def columns(self, spark: SparkSession, name: str, table: ReferenceTable) -> list[str]:
        rows = self._load(name, table).rows
        return _user_frame(spark, name, table).columns if rows is None else rows.column_names

    def forget_stale(self) -> bool:
        """Drop tables that are due for a refresh; True if there were any, which outdates Spark plans with them."""
        notified, now = self._listener.notified_channels(), time.monotonic()
        stale = [
            key
            for key, cached in self._cache.items()
            if cached.table.notify in notified or now - cached.read_at > cached.table.refresh_seconds
        ]
        for key in stale:
            del self._cache[key]
        return bool(stale)

    def close(self) -> None:
        self._listener.close()

    def _load(self, name: str, table: ReferenceTable) -> _CachedTable:
        cached = self._cache.get((name, id(table)))
        if cached is None:
            if table.notify is not None:
                # Before the table is read, so that no later change is missed.
                self._listener.listen(table.notify)
            rows = None if table.query is None else self._read(name, table.query)
            cached = self._cache[name, id(table)] = _CachedTable(table, time.monotonic(), rows)
        return cached

    def _read(self, name: str, query: str) -> pa.Table:
        try:
            with connect_for_user_sql(self.read_config.conninfo, "reference") as conn:
                return fetch_table(conn, query)
        except psycopg.ProgrammingError as error:
            raise InvalidRequest(
                f"the reference table {name!r} cannot be read: {error.diag.message_primary or error}. Its statement is "
                f"{short_repr(query)}; check it, and the privileges of the user that runs the query"
            ) from error


class _Listener:
    """Listens on channels for changes of tables."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._conn: psycopg.Connection[Any] | None = None
        self._channels: set[str] = set()

    def listen(self, channel: str) -> None:
        if self._conn is None or self._conn.closed:
            self._conn = connect_for_user_sql(self._conninfo, "listener")
            self._channels = set()
        if channel not in self._channels:
            self._conn.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
            self._channels.add(channel)

    def notified_channels(self) -> set[str]:
        """Return the channels with notifications; all of them if the connection was lost."""
        if self._conn is None:
            return set()
        try:
            return {notification.channel for notification in self._conn.notifies(timeout=0)}
        except psycopg.OperationalError:
            self._conn.close()
            return self._channels

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


def fetch_table(conn: psycopg.Connection[Any], query: str) -> pa.Table:
    """Run a statement and return its rows, with types that depend only on those of its columns."""
    cursor = conn.execute(query)
    rows = cursor.fetchall()
    columns = cursor.description or []
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pa.table(
        {column.name: _to_array(column, of_column) for column, of_column in zip(columns, values, strict=True)}
    )


def _user_frame(spark: SparkSession, name: str, table: ReferenceTable) -> DataFrame:
    """Return the user's DataFrame, or the one that the user's function returns, in the session of the query."""
    frame: DataFrame = table.frame(spark) if is_python(table.frame) else table.frame
    if not is_frame(frame):
        raise InvalidRequest(
            f"the function of the reference table {name!r} must return a Spark DataFrame, not {short_repr(frame)}"
        )
    return frame if frame.sparkSession is spark else spark.createDataFrame(frame.toArrow())


#: By type OID of PostgreSQL. The type of a column must not depend on its current values.
_TYPES = {
    **dict.fromkeys((20, 21, 23), pa.int64()),
    **dict.fromkeys((700, 701), pa.float64()),
    **dict.fromkeys((25, 1043), pa.string()),
    16: pa.bool_(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", tz="UTC"),
    1700: DEFAULT_NUMBER,
}
_SMALLEST = Decimal(1).scaleb(-DEFAULT_NUMBER.scale)
_WIDE = Context(prec=200, rounding=ROUND_HALF_UP)


def _to_array(column: psycopg.Column, values: tuple[Any, ...]) -> pa.Array:
    kind = _TYPES.get(column.type_code)
    if kind == DEFAULT_NUMBER:
        return _to_decimals(column.name, values)
    array = pa.array(values, kind)
    return array.cast(pa.string()) if array.type == pa.null() else array


def _to_decimals(name: str, values: tuple[Decimal | None, ...]) -> pa.Array:
    """Convert to decimals with the scale that numbers of events have."""
    try:
        return pa.array([None if v is None else v.quantize(_SMALLEST, context=_WIDE) for v in values], DEFAULT_NUMBER)
    except (pa.ArrowInvalid, DecimalException) as error:
        raise InvalidRequest(
            f"column {name!r} of a reference table holds a value that is not a number of up to 20 digits before the "
            "point, such as NaN. Leave such rows out in the statement, or cast the column to double precision"
        ) from error
