"""The pipeline that ``penstock prepare`` runs in a child process. Java archives the classes that it loads.

python -m penstock.cli.prepare_workload DIRECTORY JAVA_OPTIONS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from penstock import Stream, SyncPenstock, agg
from penstock.core.settings import Settings
from penstock.db.embedded.server import EmbeddedPostgres
from penstock.engine.spark.spark_session import spark_session

_QUEUE = "prepare"


def run_workload(directory: Path, java_options: str) -> None:
    """Process events with the common operators, and wait until the JVM has ended."""
    spark_session(conf={"spark.driver.extraJavaOptions": java_options})
    with EmbeddedPostgres(directory) as postgres, SyncPenstock(postgres.url) as penstock:
        penstock.queue(_QUEUE).create()
        penstock.queue(_QUEUE).push([{"key": f"k{n % 10}", "data": {"n": n, "name": f"n{n}"}} for n in range(1000)])
        settings = Settings(database_url=postgres.url)
        _windowed_stream().run("prepare_windows", settings=settings, available_now=True, flush=True)
        _mapped_stream().run("prepare_events", settings=settings, available_now=True)
    _stop_jvm()


def _windowed_stream() -> Any:
    aggregates = {"count": agg.count(), "total": agg.sum("n"), "most": agg.max("n")}
    return Stream.from_(_QUEUE).filter("n >= 0").window_tumbling(seconds=5).aggregate(aggregates).to("prepare-windows")


def _mapped_stream() -> Any:
    return Stream.from_(_QUEUE).map(_double).sql("SELECT name, n FROM stream").to("prepare-events")


def _double(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "n": event["n"] * 2}


def _stop_jvm() -> None:
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None and gateway is not None:
        context.stop()
        gateway.shutdown()
        java = gateway.proc
        java.stdin.close()
        java.wait()


if __name__ == "__main__":
    run_workload(Path(sys.argv[1]), sys.argv[2])
