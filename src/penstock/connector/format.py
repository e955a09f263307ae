"""``format("penstock")``: what Spark asks for by that name.

Spark makes one of these in a Python process of the driver's, checks the schema with it, and asks it for whatever reads
or writes. Each of those is pickled and sent to where it works.

Whatever Spark does with Python sources, it first looks for all that there are, and so imports this. What it takes to
read and write is imported when it is asked for: 0.6 s of CPU that other queries need not wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from penstock.connector.options import Read
    from penstock.connector.read.result_table import Result
    from penstock.connector.read.task_reader import Task
    from penstock.connector.write.writer import Sink


class PenstockFormat(DataSource):
    """Queues to read, to follow and to write to, and the results of queries to read."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The columns, where the user has not said which."""
        from penstock.connector import options
        from penstock.connector.read import columns, result_table

        if options.is_table(self.options):
            return result_table.ddl(self._result())
        return columns.ddl(options.schema_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from penstock.connector import options
        from penstock.connector.read.batch import QueueReader
        from penstock.connector.read.result_table import ResultReader

        if options.is_table(self.options):
            return ResultReader(self._result(), schema)
        read = options.read_options(self.options, streaming=False)
        return QueueReader(read, self._task(read, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        from penstock.connector import options
        from penstock.connector.read.stream import QueueStream
        from penstock.core.errors import InvalidRequest

        if options.is_table(self.options):
            raise InvalidRequest(
                "the result of a query is a table that changes, and not a stream: read it with spark.read, or follow "
                "the queue that the query writes its closed windows to"
            )
        read = options.read_options(self.options, streaming=True)
        return QueueStream(read, self._task(read, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from penstock.connector.write.writer import QueueWriter

        sink = self._sink(schema, overwrite, streaming=False)
        sink.find()
        return QueueWriter(sink)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``df.writeStream``."""
        from penstock.connector.write.writer import QueueStreamWriter

        return QueueStreamWriter(self._sink(schema, overwrite, streaming=True))

    def _result(self) -> Result:
        from penstock.connector.database import find_database
        from penstock.connector.options import table_options
        from penstock.connector.read.result_table import Result

        return Result(find_database(self.options), table_options(self.options))

    def _task(self, read: Read, schema: StructType) -> Task:
        from penstock.connector.database import find_database
        from penstock.connector.read.columns import output_of
        from penstock.connector.read.task_reader import Task

        return Task(find_database(self.options), output_of(read, schema), read.mode, read.keys, read.fail_on_loss)

    def _sink(self, schema: StructType, overwrite: bool, *, streaming: bool) -> Sink:
        from penstock.connector.database import find_database
        from penstock.connector.options import write_options
        from penstock.connector.write.rows import Rows
        from penstock.connector.write.writer import Sink
        from penstock.core.errors import InvalidRequest

        written = write_options(self.options, streaming=streaming)
        if overwrite:
            raise InvalidRequest(
                f"queue {written.queue!r} is a log, to which is only appended: use "
                + ('outputMode("append")' if streaming else 'mode("append")')
            )
        return Sink(find_database(self.options), written, Rows.of(schema, written.key_column))
