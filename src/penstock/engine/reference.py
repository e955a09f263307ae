"""Reference tables: what streams are joined with, read again when it is time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from penstock.db.blocking import connect_plainly
from penstock.engine.fields import NUMBER
from penstock.engine.reading import Reading
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
            made: DataFrame = table.frame(spark) if callable(table.frame) else table.frame
            if made.sparkSession is spark:
                return made
            return spark.createDataFrame(made.toArrow())
        if table.notify is not None:
            self._listen(table.notify)
        if name not in self._read or self._is_due(name):
            self._heard.discard(table.notify or "")
            self._read[name] = (time.monotonic(), self._fetch(table.query))
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
            names = [column.name for column in cursor.description or []]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return pa.table({name: _column(values) for name, values in zip(names, columns, strict=True)})


def _column(values: tuple[Any, ...]) -> pa.Array:
    from decimal import Decimal

    if any(isinstance(value, Decimal) for value in values):
        return pa.array(values, NUMBER)
    array = pa.array(values)
    return array.cast(pa.string()) if array.type == pa.null() else array
