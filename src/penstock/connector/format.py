"""The Spark data source ``format("penstock")``.

Spark creates it in a Python process of the driver and asks it for a schema and for readers and writers, which it
pickles and sends to the tasks.

Spark imports this module for every query that uses a Python data source. The methods import the readers and writers,
because these imports take 0.6 s of CPU.
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

    from penstock.connector.options import ReadOptions
    from penstock.connector.read.result_table import ResultView
    from penstock.connector.read.task_reader import TaskReader
    from penstock.connector.write.staged_writer import WriteTarget


class PenstockFormat(DataSource):
    """Reads, follows and writes queues, and reads the results of queries."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        from penstock.connector import options
        from penstock.connector.read import columns, result_table

        if options.reads_result(self.options):
            return result_table.to_ddl(self._result())
        return columns.to_ddl(options.parse_schema_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.connector import options
        from penstock.connector.read.batch import QueueBatchReader
        from penstock.connector.read.result_table import ResultReader

        if options.reads_result(self.options):
            return ResultReader(self._result(), schema)
        parsed = options.parse_read_options(self.options, streaming=False)
        return QueueBatchReader(parsed, self._task_reader(parsed, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.connector import options
        from penstock.connector.read.stream import QueueStreamReader
        from penstock.core.errors import InvalidRequest

        if options.reads_result(self.options):
            raise InvalidRequest(
                "the result of a query is a table that changes, and not a stream: read it with spark.read, or follow "
                "the queue that the query writes its closed windows to"
            )
        parsed = options.parse_read_options(self.options, streaming=True)
        return QueueStreamReader(parsed, self._task_reader(parsed, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.connector.write.staged_writer import QueueWriter

        target = self._target(schema, overwrite, streaming=False)
        target.check_queue()
        return QueueWriter(target)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.connector.write.staged_writer import QueueStreamWriter

        return QueueStreamWriter(self._target(schema, overwrite, streaming=True))

    def _result(self) -> ResultView:
        from penstock.connector.database_url import find_database
        from penstock.connector.options import parse_result_options
        from penstock.connector.read.result_table import ResultView

        return ResultView(find_database(self.options), parse_result_options(self.options))

    def _task_reader(self, options: ReadOptions, schema: StructType) -> TaskReader:
        from penstock.connector.database_url import find_database
        from penstock.connector.read.columns import output_columns
        from penstock.connector.read.task_reader import TaskReader

        output = output_columns(options, schema)
        return TaskReader(find_database(self.options), output, options.mode, options.keys, options.fail_on_loss)

    def _target(self, schema: StructType, overwrite: bool, *, streaming: bool) -> WriteTarget:
        from penstock.connector.database_url import find_database
        from penstock.connector.options import parse_write_options
        from penstock.connector.write.column_mapping import EventRows
        from penstock.connector.write.staged_writer import WriteTarget
        from penstock.core.errors import InvalidRequest

        options = parse_write_options(self.options, streaming=streaming)
        if overwrite:
            raise InvalidRequest(
                f"queue {options.queue!r} is an append-only log: use "
                + ('outputMode("append")' if streaming else 'mode("append")')
            )
        return WriteTarget(find_database(self.options), options, EventRows.from_schema(schema, options.key_column))
