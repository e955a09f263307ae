"""Runs jobs with Penstock's engine through its public API."""

from __future__ import annotations

import time
from typing import Any

import psycopg

from benchmarks.drain.events import LATENESS_MS, WINDOW_MS
from benchmarks.engines.jobs import Drain, Drained, Follow, Result
from benchmarks.engines.results import windows
from penstock import Stream, agg
from penstock.core.settings import Settings

#: Windows must not close by idleness, so that the open windows do not depend on the duration of a run.
_NEVER_IDLE_SECONDS = 86_400
#: Rows stay this long after their minute, so that the poller sees the last of them.
_GRACE_SECONDS = 2


def drain(job: Drain) -> Drained:
    """Run the query over the available events, or several queries at once."""
    names = [job.name, *(f"{job.name}_{number}" for number in range(2, job.queries + 1))]
    options: dict[str, Any] = {"available_now": True}
    if job.batch is not None:
        options["max_events_per_cycle"] = job.batch
    if job.master is not None:
        options |= {"master": job.master, "spark_conf": {"spark.executor.memory": "1g"}}
    streams = [_windows(job, sink=_sink(name)) for name in names]
    settings = Settings(database_url=job.url)
    began = time.perf_counter()
    queries = [stream.start(name, settings=settings, **options) for name, stream in zip(names, streams, strict=True)]
    for query in queries:
        query.wait()
    seconds = time.perf_counter() - began
    return Drained(seconds, _cycles(job), [Result(windows("penstock", name), _sink(name)) for name in names])


def _sink(name: str) -> str:
    return f"{name}-closed"


def _windows(job: Drain, *, sink: str) -> Stream:
    stream = Stream.from_(job.source)
    if job.python_map:
        stream = stream.map(_double, returns={"amount": "decimal(12,2)", "ts": "bigint"})
    return (
        stream.window_tumbling(
            seconds=WINDOW_MS / 1000,
            event_time="ts",
            allowed_lateness_seconds=LATENESS_MS / 1000,
            idle_flush_seconds=_NEVER_IDLE_SECONDS,
        )
        .aggregate({"count": agg.count(), "total": "sum(amount)", "max": "max(amount)"})
        .to(sink)
    )


def follow(job: Follow) -> None:
    """Run the query until SIGTERM."""
    options: dict[str, Any] = {"interval_seconds": 0} if job.eager else {}
    totals = {"total": "sum(amount)"} if job.totals else {}
    aggregates = {"count": agg.count(), "seq": "max(seq)", **totals}
    if job.is_view:
        stream = Stream.from_(job.source).aggregate(aggregates).materialize(job.name)
    else:
        stream = _window(job).aggregate(aggregates)
    if job.closing is not None:
        stream = stream.to(job.closing.sink)
    stream.run(job.name, settings=Settings(database_url=job.url), **options)


def _window(job: Follow) -> Stream:
    stream, closing = Stream.from_(job.source), job.closing
    if closing is None:
        return stream.window_tumbling(seconds=60, grace_seconds=_GRACE_SECONDS)
    return stream.window_tumbling(
        seconds=closing.window_seconds,
        event_time="ts",
        allowed_lateness_seconds=closing.lateness_seconds,
        idle_flush_seconds=_NEVER_IDLE_SECONDS,
    )


def _double(event: dict[str, Any]) -> dict[str, Any]:
    return {"amount": event["amount"] * 2, "ts": event["ts"]}


def _cycles(job: Drain) -> int:
    """Return the number of cycles of the query in the ledger."""
    with psycopg.connect(job.url) as conn:
        row = conn.execute(
            """SELECT count(*) FROM penstock.cycles JOIN penstock.queries ON queries.id = cycles.query_id
            WHERE queries.name = %s AND cycles.events_in > 0""",
            (job.name,),
        ).fetchone()
    return int(row[0]) if row is not None else 0
