"""The peer: plain Structured Streaming on the same work, tuned as well as we can.

Groups reach the driver as Arrow and PostgreSQL by COPY; sums fit into a long; there are as many shuffle partitions as
cores. The state store is the default one, which keeps the state in memory, where it fits. The JVM collects garbage in
parallel, as Penstock's does. ``PLAIN_SPARK="name=value;..."`` tries other settings.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from datetime import datetime
from functools import cache
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.drain.events import LATENESS_MS, WINDOW_MS
from benchmarks.drain.stock import FILE_EVENTS
from benchmarks.engines.jobs import Drain, Drained, Follow, Result
from benchmarks.engines.results import windows
from benchmarks.engines.upsert import Upsert

_CORES = os.cpu_count() or 1
_CONFIG = {
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.sql.shuffle.partitions": str(_CORES),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The windows are closed by the merge, which needs no batch of its own for that.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
#: Amounts below 1,000: with more digits, Spark would add objects in place of longs.
_SCHEMA = "customer string, amount decimal(8,2), ts bigint"
_FOLLOW_SCHEMA = "key string, seq bigint, ts bigint"
_numbers = count(1)


@cache
def _session() -> SparkSession:
    builder = SparkSession.Builder().master(f"local[{_CORES}]").appName("plain-spark")
    for name, value in (_CONFIG | _from_environment()).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _from_environment() -> dict[str, str]:
    """Settings to try out, as ``PLAIN_SPARK="name=value;name=value"``."""
    return dict(pair.split("=", 1) for pair in os.environ.get("PLAIN_SPARK", "").split(";") if pair)


def drain(job: Drain) -> Drained:
    """Run the query over the available events."""
    spark = _session()
    events = spark.readStream.schema(_SCHEMA)
    if job.batch is not None:
        if job.batch % FILE_EVENTS:
            raise ValueError(f"a batch is of whole files of {FILE_EVENTS} events")
        events = events.option("maxFilesPerTrigger", job.batch // FILE_EVENTS)
    groups = (
        events.json(job.source)
        .withColumn("ts", f.timestamp_millis("ts"))
        .withWatermark("ts", f"{LATENESS_MS} milliseconds")
        .groupBy("customer", f.window("ts", f"{WINDOW_MS} milliseconds"))
        .agg(f.count("*"), f.sum("amount"), f.max("amount"))
        .select("customer", "window.start", "count(1)", "sum(amount)", "max(amount)")
    )
    columns = {"count": "bigint", "total": "numeric", "max": "numeric"}
    with Upsert(job.url, job.name, columns) as table:
        began = time.perf_counter()
        query, checkpoint = _start(groups, table, available_now=True)
        query.awaitTermination()
        if (closed := _closed_before_ms(query, WINDOW_MS)) is not None:
            table.close_windows(closed)
        seconds = time.perf_counter() - began
    batches = len([progress for progress in query.recentProgress if progress["numInputRows"]])
    shutil.rmtree(checkpoint)
    return Drained(seconds, batches, [Result(windows("plain_spark", job.name))])


def follow(job: Follow) -> None:
    """Run the query until SIGTERM."""
    events = _session().readStream.schema(_FOLLOW_SCHEMA).option("cleanSource", "delete").json(job.source)
    groups = (
        events.withColumn("ts", f.timestamp_millis("ts"))
        .withWatermark("ts", "2 seconds")
        .groupBy("key", f.window("ts", "1 minute"))
        .agg(f.count("*"), f.max("seq"))
        .select("key", "window.start", "count(1)", "max(seq)")
    )
    # Spark does not bear being stopped in mid-batch, and here nothing is lost with it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    table = Upsert(job.url, job.name, {"count": "bigint", "seq": "bigint"})
    query, _ = _start(groups, table, available_now=False)
    query.awaitTermination()


def _start(groups: DataFrame, table: Upsert, *, available_now: bool) -> tuple[StreamingQuery, Path]:
    started: list[StreamingQuery] = []
    window_ms = WINDOW_MS if available_now else 60_000

    def merge(batch: DataFrame, _: int) -> None:
        table.merge(batch.toArrow(), _closed_before_ms(started[0], window_ms) if started else None)

    checkpoint = Path(os.environ["BENCHMARK_DIRECTORY"]) / f"checkpoint-{os.getpid()}-{next(_numbers)}"
    writer = groups.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint)).foreachBatch(merge)
    started.append((writer.trigger(availableNow=True) if available_now else writer).start())
    return started[0], checkpoint


def _closed_before_ms(query: StreamingQuery, window_ms: int) -> int | None:
    """The beginning of the first window that the watermark after the last finished batch leaves open."""
    progress = query.lastProgress
    latest = progress and progress["eventTime"].get("max")
    if not latest:
        return None
    watermark = int(datetime.fromisoformat(latest).timestamp() * 1000) - LATENESS_MS
    return watermark - watermark % window_ms
