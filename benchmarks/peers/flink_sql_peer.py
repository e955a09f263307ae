"""PyFlink: runs a SELECT over files as a streaming job, without checkpoints, into CSV files and from there by one COPY.

Flink's PostgreSQL connector is a JAR that is not on PyPI. A result that is updated is written as a changelog without
the previous values. Its last row per key is copied, which costs less than an upsert per change.
"""

from __future__ import annotations

import os
import site
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # its own environment

from benchmarks.peers.windows import copy_csv, serve_requests

_SETTINGS = {
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    # The function runs in the JVM's process: without it, each job starts a Python process.
    "python.execution-mode": "thread",
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
}
_VIEW = "CREATE TEMPORARY VIEW answers AS {select}"
_SINK = """
CREATE TABLE answer_files {partitions} WITH (
    'connector' = 'filesystem', 'path' = '{directory}', 'format' = 'csv', 'sink.rolling-policy.file-size' = '1 TB'
) AS SELECT * FROM {answers}
"""
_CHANGES = "TO_CHANGELOG(input => TABLE answers, op_mapping => MAP['INSERT', 'U', 'UPDATE_AFTER', 'U', 'DELETE', 'D'])"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class SqlJob:
    """A SELECT, the statements that it needs, and the target of its rows."""

    setup: list[str]
    select: str
    #: An empty directory for the files.
    directory: str
    #: The columns of the rows, in order.
    columns: list[str]
    url: str
    #: The table for the rows. None: the files are the result.
    table: str | None = None
    #: The columns that identify a row of a result that is updated.
    key: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)


def run(job: SqlJob) -> dict[str, object]:
    """Run the job. Return the seconds until the rows are in the table, and those of Flink's job alone."""
    began = time.perf_counter()
    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    flink.get_config().set_local_timezone("UTC")
    for name, value in _SETTINGS.items():
        flink.get_config().set(name, value)
    for statement in job.setup:
        flink.execute_sql(statement)
    flink.execute_sql(_VIEW.format(select=job.select))
    partitions = f"PARTITIONED BY ({', '.join(job.partitions)})" if job.partitions else ""
    answers = _CHANGES if job.key else "answers"
    flink.execute_sql(_SINK.format(partitions=partitions, directory=job.directory, answers=answers)).wait()
    seconds = time.perf_counter() - began
    if job.table is not None:
        copy_csv(job.url, job.table, _last_rows(job) if job.key else _lines(job))
    return {"seconds": time.perf_counter() - began, "job_seconds": seconds}


def _files(job: SqlJob) -> list[Path]:
    return sorted(path for path in Path(job.directory).rglob("*") if path.is_file() and path.stat().st_size)


def _lines(job: SqlJob) -> Iterator[str]:
    for path in _files(job):
        yield path.read_text()


def _last_rows(job: SqlJob) -> Iterator[str]:
    """Yield the last row of each key as CSV. All changes of a key are in the file of one task, in order."""
    columns = ["op", *job.columns]
    reading = csv.ReadOptions(column_names=columns)
    # Values stay the text that Flink wrote.
    converting = csv.ConvertOptions(column_types={name: pa.string() for name in columns})
    for path in _files(job):
        changes = csv.read_csv(path, read_options=reading, convert_options=converting)
        numbered = changes.select(job.key).append_column("number", pa.array(range(len(changes)), pa.int64()))
        last: Any = numbered.group_by(job.key).aggregate([("number", "max")])["number_max"]
        rows = changes.take(last)
        rows = rows.filter(pc.equal(rows["op"], "U")).drop_columns(["op"])
        for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
            sink = pa.BufferOutputStream()
            csv.write_csv(pa.table([*batch.columns], names=job.columns), sink, csv.WriteOptions(include_header=False))
            yield sink.getvalue().to_pybytes().decode()


def _run_request(request: dict[str, Any]) -> dict[str, object]:
    return run(SqlJob(**request))


if __name__ == "__main__":
    # For the interpreter in the JVM's process, which does not know the virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *site.getsitepackages()])
    serve_requests(["apache-flink"], _run_request)
