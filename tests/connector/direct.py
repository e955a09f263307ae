"""What Spark does with the format, without Spark: for what needs no JVM to be seen."""

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
from penstock.connector.read.batch import QueueReader
from penstock.connector.read.ranges import Ranges
from penstock.connector.read.stream import QueueStream
from penstock.engine.plan import Lane

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
    """A schema of columns of the event and of fields."""
    return StructType([StructField(name, kind) for name, kind in ({c: _TYPES[c] for c in columns} | fields).items()])


USUAL = schema_of("key", "value", "queue", "partition", "offset", "timestamp", "headers")


def sent(value: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


class Direct:
    """The format, for one database; options are given as Spark gives them."""

    def __init__(self, url_file: str) -> None:
        self._url_file = url_file
        self._streams: list[QueueStream] = []

    def close(self) -> None:
        """Let go of the connections that streams keep."""
        for stream in self._streams:
            stream.stop()

    def format(self, **options: Any) -> PenstockFormat:
        given = {"databaseUrlFile": self._url_file, **{name: str(value) for name, value in options.items()}}
        return PenstockFormat(CaseInsensitiveDict(given))

    def reader(self, filters: Iterable[Filter] = (), schema: StructType = USUAL, **options: Any) -> QueueReader:
        reader = self.format(**options).reader(schema)
        assert isinstance(reader, QueueReader)
        assert not list(reader.pushFilters(list(filters))), "a filter was left to Spark"
        return reader

    def asked(self, *filters: Filter, **options: Any) -> list[Lane]:
        """What PostgreSQL is asked for: partitions, tables, offsets."""
        return [lane for part in self.reader(filters, **options).partitions() for lane in ranges(part).lanes()]

    def rows(self, *filters: Filter, schema: StructType = USUAL, **options: Any) -> list[dict[str, Any]]:
        reader = self.reader(filters, schema, **options)
        # Spark sends the reader to the tasks before it has planned them.
        there = sent(reader)
        return [row for part in reader.partitions() for batch in there.read(sent(part)) for row in batch.to_pylist()]

    def writer(self, schema: StructType, **options: Any) -> Any:
        """What Spark asks for to append a DataFrame."""
        return self.format(**options).writer(schema, False)

    def stream(self, schema: StructType = USUAL, **options: Any) -> QueueStream:
        stream = self.format(**options).streamReader(schema)
        assert isinstance(stream, QueueStream)
        self._streams.append(stream)
        return stream

    def batch(self, stream: QueueStream, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
        """The events of one batch of a stream."""
        return [
            row
            for part in stream.partitions(start, end)
            for batch in stream.read(sent(part))
            for row in batch.to_pylist()
        ]

    def next(self, stream: QueueStream, start: dict[str, int]) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """The next batch of a stream."""
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        return end, self.batch(stream, start, end)


def ranges(part: Any) -> Ranges:
    assert isinstance(part, Ranges)
    return part


def arrow(schema: StructType, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as Spark hands them to a writer."""
    return pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))
