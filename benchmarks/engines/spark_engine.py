"""Plain Structured Streaming on the same workload, as the peer.

It is tuned: groups reach the driver as Arrow and PostgreSQL by COPY, sums fit into a long, there are as many shuffle
partitions as cores, and the JVM uses the parallel garbage collector, like Penstock. The state store is the default,
in-memory one. ``PLAIN_SPARK="name=value;..."`` overrides settings.
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

from benchmarks.drain.dataset import FILE_EVENTS
from benchmarks.drain.events import LATENESS_MS, WINDOW_MS
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
    # The merge closes the windows without an extra batch.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
#: With more digits, Spark would sum decimals as objects and not as longs.
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
    """Return the settings of ``PLAIN_SPARK="name=value;name=value"``."""
    return dict(pair.split("=", 1) for pair in os.environ.get("PLAIN_SPARK", "").split(";") if pair)


def drain(job: Drain) -> Drained:
    """Run the query over the available events."""
    spark = _session()
    events = spark.readStream.schema(_SCHEMA)
    if job.batch is not None:
        if job.batch % FILE_EVENTS:
            raise ValueError(f"a batch must be a multiple of {FILE_EVENTS} events, the size of a file")
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
    # Spark does not stop cleanly during a batch. An abrupt exit loses nothing here.
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
    """Return the start of the first window that is open at the watermark after the last batch."""
    progress = query.lastProgress
    latest = progress and progress["eventTime"].get("max")
    if not latest:
        return None
    watermark = int(datetime.fromisoformat(latest).timestamp() * 1000) - LATENESS_MS
    return watermark - watermark % window_ms
