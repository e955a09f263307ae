"""The small pipeline of ``penstock prepare``, in a process of its own: what its JVM loads is what the archive keeps.

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
from penstock.engine.spark.session import spark_session

_QUEUE = "rehearsal"


def rehearse(directory: Path, java_options: str) -> None:
    """Let events go through most of what pipelines are made of, and wait until the JVM has ended."""
    spark_session(conf={"spark.driver.extraJavaOptions": java_options})
    with EmbeddedPostgres(directory) as postgres, SyncPenstock(postgres.url) as penstock:
        penstock.queue(_QUEUE).create()
        penstock.queue(_QUEUE).push([{"key": f"k{n % 10}", "data": {"n": n, "name": f"n{n}"}} for n in range(1000)])
        settings = Settings(database_url=postgres.url)
        _windows().run("rehearsal_windows", settings=settings, available_now=True, flush=True)
        _events().run("rehearsal_events", settings=settings, available_now=True)
    _end_java()


def _windows() -> Any:
    counted = {"count": agg.count(), "total": agg.sum("n"), "most": agg.max("n")}
    return Stream.from_(_QUEUE).filter("n >= 0").window_tumbling(seconds=5).aggregate(counted).to("rehearsal-windows")


def _events() -> Any:
    return Stream.from_(_QUEUE).map(_doubled).sql("SELECT name, n FROM stream").to("rehearsal-events")


def _doubled(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "n": event["n"] * 2}


def _end_java() -> None:
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None and gateway is not None:
        context.stop()
        gateway.shutdown()
        java = gateway.proc
        java.stdin.close()
        java.wait()


if __name__ == "__main__":
    rehearse(Path(sys.argv[1]), sys.argv[2])
