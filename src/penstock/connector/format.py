"""``format("penstock")``: what Spark asks for by that name.

Spark makes one of these in a Python process of the driver's, checks the schema with it, and asks it for whatever reads
or writes. Each of those is pickled and sent to where it works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.connector import columns, table
from penstock.connector.batch import QueueReader
from penstock.connector.database import find_database
from penstock.connector.events import Task
from penstock.connector.options import Read, is_table, read_options, schema_options, table_options, write_options
from penstock.connector.rows import Rows
from penstock.connector.sink import QueueStreamWriter, QueueWriter, Sink
from penstock.connector.stream import QueueStream
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class PenstockFormat(DataSource):
    """Queues to read, to follow and to write to, and the results of queries to read."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The columns, where the user has not said which."""
        if is_table(self.options):
            return table.ddl(self._result())
        return columns.ddl(schema_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        if is_table(self.options):
            return table.ResultReader(self._result(), schema)
        read = read_options(self.options, streaming=False)
        return QueueReader(read, self._task(read, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        if is_table(self.options):
            raise InvalidRequest(
                "the result of a query is a table that changes, and not a stream: read it with spark.read, or follow "
                "the queue that the query writes its closed windows to"
            )
        read = read_options(self.options, streaming=True)
        return QueueStream(read, self._task(read, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        return QueueWriter(self._sink(schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``df.writeStream``."""
        return QueueStreamWriter(self._sink(schema, overwrite, streaming=True))

    def _result(self) -> table.Result:
        return table.Result(find_database(self.options), table_options(self.options))

    def _task(self, read: Read, schema: StructType) -> Task:
        return Task(
            find_database(self.options), columns.output_of(read, schema), read.mode, read.keys, read.fail_on_loss
        )

    def _sink(self, schema: StructType, overwrite: bool, *, streaming: bool) -> Sink:
        written = write_options(self.options, streaming=streaming)
        if overwrite:
            raise InvalidRequest(
                f"queue {written.queue!r} is a log, to which is only appended: use "
                + ('outputMode("append")' if streaming else 'mode("append")')
            )
        return Sink(find_database(self.options), written, Rows.of(schema, written.key_column))
