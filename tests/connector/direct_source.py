"""Calls the data source as Spark does, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, Filter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.connector.format import PenstockFormat
from penstock.connector.read.batch import QueueBatchReader
from penstock.connector.read.stream import QueueStreamReader
from penstock.connector.read.task_ranges import TaskRanges
from penstock.engine.cycle_plan import PartitionRange

_TYPES: dict[str, DataType] = {
    "key": StringType(),
    "value": StringType(),
    "queue": StringType(),
    "partition": LongType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), StringType()),
    "id": StringType(),
    "eventTime": TimestampType(),
}


def schema_of(*columns: str, **fields: DataType) -> StructType:
    """A schema of event columns and fields."""
    return StructType([StructField(name, kind) for name, kind in ({c: _TYPES[c] for c in columns} | fields).items()])


USUAL = schema_of("key", "value", "queue", "partition", "offset", "timestamp", "headers")


def sent(value: Any) -> Any:
    """A copy, as another process gets it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


class DirectSource:
    """The data source for one database."""

    def __init__(self, url_file: str) -> None:
        self._url_file = url_file
        self._streams: list[QueueStreamReader] = []

    def close(self) -> None:
        """Close the connections of the streams."""
        for stream in self._streams:
            stream.stop()

    def format(self, **options: Any) -> PenstockFormat:
        given = {"databaseUrlFile": self._url_file, **{name: str(value) for name, value in options.items()}}
        return PenstockFormat(CaseInsensitiveDict(given))

    def reader(self, filters: Iterable[Filter] = (), schema: StructType = USUAL, **options: Any) -> QueueBatchReader:
        reader = self.format(**options).reader(schema)
        assert isinstance(reader, QueueBatchReader)
        assert not list(reader.pushFilters(list(filters))), "a filter was left to Spark"
        return reader

    def asked(self, *filters: Filter, **options: Any) -> list[PartitionRange]:
        """The ranges that a read reads from PostgreSQL."""
        return [
            partition for part in self.reader(filters, **options).partitions() for partition in ranges(part).ranges()
        ]

    def rows(self, *filters: Filter, schema: StructType = USUAL, **options: Any) -> list[dict[str, Any]]:
        reader = self.reader(filters, schema, **options)
        # Spark sends the reader to the tasks before it has planned them.
        there = sent(reader)
        return [row for part in reader.partitions() for batch in there.read(sent(part)) for row in batch.to_pylist()]

    def writer(self, schema: StructType, **options: Any) -> Any:
        """The writer for appending a DataFrame."""
        return self.format(**options).writer(schema, False)

    def stream(self, schema: StructType = USUAL, **options: Any) -> QueueStreamReader:
        stream = self.format(**options).streamReader(schema)
        assert isinstance(stream, QueueStreamReader)
        self._streams.append(stream)
        return stream

    def batch(self, stream: QueueStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
        """The events of one batch of a stream."""
        return [
            row
            for part in stream.partitions(start, end)
            for batch in stream.read(sent(part))
            for row in batch.to_pylist()
        ]

    def next(self, stream: QueueStreamReader, start: dict[str, int]) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """The next batch of a stream."""
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        return end, self.batch(stream, start, end)


def ranges(part: Any) -> TaskRanges:
    assert isinstance(part, TaskRanges)
    return part


def arrow(schema: StructType, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as Spark passes them to a writer."""
    return pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))
