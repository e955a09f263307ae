"""Metrics that are read from the database: queue depth, group lag, dead letters, queries, gates, sinks.

All scrapes at one time share one set of statements. Its result is reused while it is fresh; a set that takes long is
repeated less often. A statement that takes too long is left out of the scrape.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from penstock.core.errors import DatabaseError
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.server.metrics.family import (
    CYCLE_BUCKETS,
    HistogramValue,
    MetricFamily,
    Samples,
    counter,
    gauge,
    histogram,
)

logger = logging.getLogger("penstock.server")

_sql = Statements("penstock.server.metrics", "database_metrics.sql")

QUEUE_DEPTH = gauge("queue_events", "Events stored in a queue, read or not.", "queue")
QUEUE_APPENDED = counter("queue_appended_events", "Events appended to a queue since it was created.", "queue")
QUEUE_SHED = counter("queue_shed_events", 'Events that a full queue with overflow="shed" dropped.', "queue")
QUEUE_INBOX = gauge("queue_inbox_events", "Events pushed from SQL that are not in a partition yet.", "queue")
QUEUE_PARTITIONS = gauge("queue_partitions", "Partitions of a queue.", "queue")
GROUP_LAG = gauge("group_lag_events", "Events that a group has not read.", "queue", "group")
GROUP_COUNTS = gauge(
    "group_counts",
    "1 if the group counts for the depth of its queue, 0 if it is configured not to or has been inactive for long.",
    "queue",
    "group",
)
GROUP_BEHIND = gauge("group_partitions_behind", "Partitions with events that a group has not read.", "queue", "group")
GROUP_LEASES = gauge("group_leases", "Partitions leased by the consumers of a group.", "queue", "group")
GROUP_OLDEST = gauge("group_oldest_seconds", "Age of the oldest event that a group has not read.", "queue", "group")
GROUP_DROPPED = counter(
    "group_dropped_events", "Events that retention dropped before a group read them.", "queue", "group"
)
DEAD_LETTERS = gauge("dead_letters", "Dead letters stored.", "queue", "group")
QUERY_RUNNING = gauge("query_running", "1 while a driver or a client runs the query, else 0.", "query")
QUERY_PAUSED = gauge("query_paused", "1 while the query is paused, else 0.", "query")
QUERY_CYCLES = counter("query_cycles", "Cycles committed.", "query")
QUERY_FAILED = counter("query_failed_cycles", "Cycles failed.", "query")
QUERY_EVENTS = counter("query_events", "Events processed by a query.", "query")
QUERY_OUTPUTS = counter("query_output_events", "Events written by a query.", "query")
QUERY_WINDOWS = counter("query_windows", "Windows closed by a query.", "query")
QUERY_LATE = counter("query_late_events", "Events too late for their window.", "query")
QUERY_DEAD = counter("query_dead_letters", "Events that a query could not process.", "query")
CYCLE = histogram(
    "query_cycle_seconds",
    "Time from the plan of a cycle to its commit, without the wait for the previous cycle.",
    CYCLE_BUCKETS,
    "query",
)
FRESHNESS = histogram(
    "query_freshness_seconds",
    "Time from the append of a cycle's oldest event to the commit that made its result visible.",
    CYCLE_BUCKETS,
    "query",
)
QUERY_COMMIT_AGE = gauge("query_last_commit_seconds", "Time since the last commit of a query.", "query")
QUERY_WATERMARK_LAG = gauge("query_watermark_lag_seconds", "Time by which the watermark is behind the clock.", "query")
QUERY_THROUGHPUT = gauge("query_events_per_second", "Events per second processed in the last ten seconds.", "query")
OPEN_WINDOWS = gauge("query_open_windows", "Open windows of a query.", "query")
VIEW_ROWS = gauge("view_rows", "Rows of a materialized view, as PostgreSQL estimates them.", "query")
VIEW_BYTES = gauge("view_bytes", "Size of the table of a materialized view with its indexes.", "query")
VIEW_STATE_LIMIT = gauge("view_state_limit_bytes", "The max_state_bytes of a materialized view.", "query")
OPERATOR_ROWS = gauge(
    "view_operator_rows",
    "Rows of state of an operator of a materialized view, with those that later rows replace.",
    "query",
    "operator",
    "description",
)
OPERATOR_BYTES = gauge(
    "view_operator_bytes",
    "Size of the state of an operator of a materialized view.",
    "query",
    "operator",
    "description",
)
GATE_ALLOWED = counter("gate_allowed_events", "Events released by a query's gates.", "query")
GATE_WAITING = gauge("gate_waiting_partitions", "Key partitions that a query's gates hold back now.", "query")
GATE_LONGEST = gauge(
    "gate_longest_wait_seconds", "Longest time that a key partition has been held back by a query's gates.", "query"
)
SINK_WRITTEN = counter("sink_written_events", "Events written by a sink.", "queue", "group")
SINK_RETRIES = counter("sink_retries", "Failed writes that a sink retried.", "queue", "group")
SINK_BUSY = counter("sink_busy", "Writes that the destination refused as overloaded.", "queue", "group")
SINK_DEAD = counter("sink_dead_letters", "Events that a sink moved to the dead-letter queue.", "queue", "group")
SINK_LOST = counter(
    "sink_lost_events",
    "Events whose lease expired before a sink wrote them; they are delivered again.",
    "queue",
    "group",
)
SINK_RUNNING = gauge("sink_running", "1 while a worker runs the sink, else 0.", "queue", "group")
SINK_RESTING = gauge("sink_resting", "1 while the circuit breaker of the sink is open, else 0.", "queue", "group")

#: All metrics of this module.
DATABASE_FAMILIES = tuple(each for each in list(vars().values()) if isinstance(each, MetricFamily))
#: By the column of a statement that holds its values.
_BY_COLUMN = {family.name.removeprefix("penstock_"): family for family in DATABASE_FAMILIES}
_STATEMENTS = (
    "queues",
    "groups",
    "dead_letters",
    "queries",
    "client_queries",
    "views",
    "view_operators",
    "gates",
    "sinks",
)

#: Series per metric in one scrape.
_MAX_SERIES = 2_000
#: Time limits for all statements together and for one of them.
_TIMEOUT_SECONDS = 3.0
_STATEMENT_TIMEOUT_MS = 1500
#: A stalled database takes a little longer than the timeout to report an error.
_MARGIN_SECONDS = 0.5
#: A result is reused for this time, or for ten times the time it took if that is longer.
_FRESH_SECONDS = 1.0
_REUSE_FACTOR = 10

_Samples = dict[MetricFamily, dict[tuple[str, ...], float | HistogramValue]]


@dataclass(frozen=True)
class DatabaseSamples:
    """The result of one set of statements, and whether all of them succeeded."""

    sampled: Samples = field(default_factory=dict)
    is_complete: bool = False
    seconds: float = 0.0
    #: When it was read, on the monotonic clock; 0 if never.
    at: float = 0.0


class DatabaseMetrics:
    """Reads the metrics of the database, once for all concurrent callers."""

    def __init__(self, database: Database, fresh_seconds: float = _FRESH_SECONDS) -> None:
        self._database = database
        self._fresh_seconds = fresh_seconds
        self._last = DatabaseSamples()
        self._reading: asyncio.Task[DatabaseSamples] | None = None

    async def read(self) -> DatabaseSamples:
        """Return the current metrics, or the last ones while they are fresh."""
        last = self._last
        if last.at and time.monotonic() - last.at < max(self._fresh_seconds, _REUSE_FACTOR * last.seconds):
            return last
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        # asyncio.wait() does not cancel the task when one caller leaves.
        done, _ = await asyncio.wait([self._reading], timeout=_TIMEOUT_SECONDS + _MARGIN_SECONDS)
        return self._reading.result() if done else DatabaseSamples(seconds=_TIMEOUT_SECONDS)

    async def _read(self) -> DatabaseSamples:
        begun = time.monotonic()
        samples: _Samples = {family: {} for family in DATABASE_FAMILIES}
        is_complete = True
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._database.connection(_TIMEOUT_SECONDS) as conn:
                for statement in (*_STATEMENTS, "open_windows"):
                    is_complete = await _read_statement(conn, statement, samples) and is_complete
        except (TimeoutError, psycopg.Error, DatabaseError) as error:
            logger.warning("could not read metrics from the database", extra={"reason": type(error).__name__})
            is_complete = False
        now = time.monotonic()
        sampled = {family: values for family, values in samples.items() if values}
        self._last = DatabaseSamples(sampled, is_complete, now - begun, now)
        return self._last


async def _read_statement(conn: Connection, name: str, samples: _Samples) -> bool:
    """Read the metrics of one statement; return False if it took too long or its tables were dropped meanwhile."""
    try:
        async with conn.transaction():
            await conn.execute("SELECT set_config('statement_timeout', %s, true)", [str(_STATEMENT_TIMEOUT_MS)])
            if name == "open_windows":
                await _count_open_windows(conn, samples)
            else:
                for row in await _fetch(conn, name):
                    _add_samples(samples, row)
    except (psycopg.errors.QueryCanceled, psycopg.errors.UndefinedTable):
        return False
    return True


async def _fetch(conn: Connection, name: str) -> list[dict[str, Any]]:
    cursor = conn.cursor(row_factory=dict_row)
    return await (await cursor.execute(_sql[name].encode(), {"limit": _MAX_SERIES})).fetchall()


def _add_samples(samples: _Samples, row: Mapping[str, Any]) -> None:
    for column, value in row.items():
        family = _BY_COLUMN.get(column)
        if family is not None and value is not None:
            labels = tuple(row[label] for label in family.labels)
            if family.bounds:
                value = HistogramValue(value or [0] * (len(family.bounds) + 1), row[f"{column}_sum"])
            samples[family][labels] = value


async def _count_open_windows(conn: Connection, samples: _Samples) -> None:
    for query in await _fetch(conn, "queries_with_windows"):
        statement = _sql["open_windows"].replace("{id}", str(int(query["query_id"])))
        ((count,),) = await (await conn.execute(statement.encode())).fetchall()
        samples[OPEN_WINDOWS][query["query"],] = count
