"""What the database knows: depth, lag, dead letters, queries. Read when somebody asks, not more often than it can bear.

A scrape costs one set of statements, or nothing while the last answer is fresh; a set that takes long is asked for
less often. A part that cannot be read in time is left out, and the rest is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from penstock.core.errors import DatabaseError
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.server.metrics.family import CYCLE_SECONDS, Distribution, Family, Sampled

logger = logging.getLogger("penstock.server")

_sql = Statements("penstock.server.metrics", "database.sql")

QUEUE_DEPTH = Family("penstock_queue_events", "gauge", "Events that a queue keeps, read or not.", ("queue",))
QUEUE_APPENDED = Family(
    "penstock_queue_appended_events", "counter", "Events that were ever appended to a queue, by anyone.", ("queue",)
)
QUEUE_SHED = Family(
    "penstock_queue_shed_events", "counter", 'Events that a full queue with overflow="shed" let go.', ("queue",)
)
QUEUE_PARTITIONS = Family("penstock_queue_partitions", "gauge", "Partitions of a queue.", ("queue",))
GROUP_LAG = Family("penstock_group_lag_events", "gauge", "Events that a group has yet to read.", ("queue", "group"))
GROUP_COUNTS = Family(
    "penstock_group_counts",
    "gauge",
    "1 if the queue's depth is counted behind the group, 0 if it was told not to, or has been away for long.",
    ("queue", "group"),
)
GROUP_BEHIND = Family(
    "penstock_group_partitions_behind",
    "gauge",
    "Partitions in which a group has something to read.",
    ("queue", "group"),
)
GROUP_LEASES = Family("penstock_group_leases", "gauge", "Partitions that a group's consumers hold.", ("queue", "group"))
GROUP_OLDEST = Family(
    "penstock_group_oldest_seconds",
    "gauge",
    "How long the oldest event that a group has yet to read has been waiting.",
    ("queue", "group"),
)
GROUP_DROPPED = Family(
    "penstock_group_dropped_events",
    "counter",
    "Events that retention was told to drop before a group had read them.",
    ("queue", "group"),
)
DEAD_LETTERS = Family("penstock_dead_letters", "gauge", "Dead letters that wait.", ("queue", "group"))
QUERY_RUNNING = Family("penstock_query_running", "gauge", "1 while somebody drives the query, else 0.", ("query",))
QUERY_PAUSED = Family("penstock_query_paused", "gauge", "1 while the query is paused, else 0.", ("query",))
QUERY_CYCLES = Family("penstock_query_cycles", "counter", "Cycles that were committed.", ("query",))
QUERY_FAILED = Family("penstock_query_failed_cycles", "counter", "Cycles that came to nothing.", ("query",))
QUERY_EVENTS = Family("penstock_query_events", "counter", "Events that a query has processed.", ("query",))
QUERY_OUTPUTS = Family("penstock_query_output_events", "counter", "Events that a query has written.", ("query",))
QUERY_WINDOWS = Family("penstock_query_windows", "counter", "Windows that a query has closed.", ("query",))
QUERY_LATE = Family("penstock_query_late_events", "counter", "Events that came too late to be counted.", ("query",))
QUERY_DEAD = Family("penstock_query_dead_letters", "counter", "Events that a query could not process.", ("query",))
CYCLE = Family(
    "penstock_query_cycle_seconds",
    "histogram",
    "From the plan of a cycle to its commit, without waiting for the one before it.",
    ("query",),
    CYCLE_SECONDS,
)
FRESHNESS = Family(
    "penstock_query_freshness_seconds",
    "histogram",
    "From the append of the oldest event of a cycle to the commit that made its result visible.",
    ("query",),
    CYCLE_SECONDS,
)
QUERY_COMMIT_AGE = Family(
    "penstock_query_last_commit_seconds", "gauge", "How long ago a query last committed.", ("query",)
)
QUERY_WATERMARK_LAG = Family(
    "penstock_query_watermark_lag_seconds",
    "gauge",
    "How far the time up to which a query closes windows is behind the clock.",
    ("query",),
)
QUERY_THROUGHPUT = Family(
    "penstock_query_events_per_second", "gauge", "Events per second that a query processed in the last ten.", ("query",)
)
OPEN_WINDOWS = Family("penstock_query_open_windows", "gauge", "Windows that a query has open.", ("query",))
GATE_ALLOWED = Family("penstock_gate_allowed_events", "counter", "Events that a query's gates let through.", ("query",))
GATE_WAITING = Family("penstock_gate_waiting_lanes", "gauge", "Lanes that a query's gates hold back now.", ("query",))
GATE_LONGEST = Family(
    "penstock_gate_longest_wait_seconds",
    "gauge",
    "Since when the lane waits that has waited longest for its next event to be let through.",
    ("query",),
)
SINK_WRITTEN = Family("penstock_sink_written_events", "counter", "Events that a sink has taken.", ("queue", "group"))
SINK_RETRIES = Family(
    "penstock_sink_retries", "counter", "Attempts of a sink that failed and were made again.", ("queue", "group")
)
SINK_BUSY = Family(
    "penstock_sink_busy", "counter", "Attempts for which the other side of a sink was too busy.", ("queue", "group")
)
SINK_DEAD = Family(
    "penstock_sink_dead_letters", "counter", "Events that a sink could not write, ever.", ("queue", "group")
)
SINK_LOST = Family(
    "penstock_sink_lost_events",
    "counter",
    "Events whose lease ended before a sink had written them: they come again.",
    ("queue", "group"),
)
SINK_RUNNING = Family("penstock_sink_running", "gauge", "1 while somebody runs the sink, else 0.", ("queue", "group"))
SINK_RESTING = Family(
    "penstock_sink_resting",
    "gauge",
    "1 while the other side has failed too often and is left alone (a circuit breaker that is open), else 0.",
    ("queue", "group"),
)

STORED = (
    QUEUE_DEPTH,
    QUEUE_APPENDED,
    QUEUE_SHED,
    QUEUE_PARTITIONS,
    GROUP_LAG,
    GROUP_COUNTS,
    GROUP_BEHIND,
    GROUP_LEASES,
    GROUP_OLDEST,
    GROUP_DROPPED,
    DEAD_LETTERS,
    QUERY_RUNNING,
    QUERY_PAUSED,
    QUERY_CYCLES,
    QUERY_FAILED,
    QUERY_EVENTS,
    QUERY_OUTPUTS,
    QUERY_WINDOWS,
    QUERY_LATE,
    QUERY_DEAD,
    CYCLE,
    FRESHNESS,
    QUERY_COMMIT_AGE,
    QUERY_WATERMARK_LAG,
    QUERY_THROUGHPUT,
    OPEN_WINDOWS,
    GATE_ALLOWED,
    GATE_WAITING,
    GATE_LONGEST,
    SINK_WRITTEN,
    SINK_RETRIES,
    SINK_BUSY,
    SINK_DEAD,
    SINK_LOST,
    SINK_RUNNING,
    SINK_RESTING,
)

#: As many series of a metric as a scrape shows at the most.
_MOST = 2_000
#: A set of statements may take so long, and an answer is good for so long, or for ten times what it took.
_SECONDS = 3.0
_MARGIN_SECONDS = 0.5
_FRESH_SECONDS = 1.0

_Samples = dict[Family, dict[tuple[str, ...], float | Distribution]]


@dataclass(frozen=True)
class Read:
    """What was read, and whether all of it was."""

    sampled: Mapping[Family, Sampled] = field(default_factory=dict)
    is_whole: bool = False
    seconds: float = 0.0
    at: float = 0.0


class Standing:
    """Reads what the database knows, once for all who ask at the same time."""

    def __init__(self, database: Database, fresh_seconds: float = _FRESH_SECONDS) -> None:
        self._database = database
        self._fresh_seconds = fresh_seconds
        self._last = Read()
        self._reading: asyncio.Task[Read] | None = None

    async def read(self) -> Read:
        """What the database knows now, or knew a moment ago."""
        last = self._last
        if last.at and time.monotonic() - last.at < max(self._fresh_seconds, 10 * last.seconds):
            return last
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        # Whoever leaves does not take it from the others. A database that stands still takes a while to give up.
        done, _ = await asyncio.wait([self._reading], timeout=_SECONDS + _MARGIN_SECONDS)
        return self._reading.result() if done else Read(seconds=_SECONDS)

    async def _read(self) -> Read:
        begun = time.monotonic()
        samples: _Samples = {family: {} for family in STORED}
        whole = True
        try:
            async with asyncio.timeout(_SECONDS), self._database.connection(_SECONDS) as conn:
                for part in (_queues, _groups, _dead_letters, _queries, _open_windows, _gates, _sinks):
                    whole = await _within(conn, part, samples) and whole
        except (TimeoutError, psycopg.Error, DatabaseError) as error:
            logger.warning("the database could not be asked for metrics", extra={"reason": type(error).__name__})
            whole = False
        now = time.monotonic()
        sampled = {family: Sampled(family, found) for family, found in samples.items() if found}
        self._last = Read(sampled, whole, now - begun, now)
        return self._last


async def _within(conn: Connection, part: Callable[[Connection, _Samples], Awaitable[None]], samples: _Samples) -> bool:
    """Read a part, unless it takes too long for the server's own patience."""
    try:
        async with conn.transaction():
            await conn.execute("SELECT set_config('statement_timeout', '1500', true)")
            await part(conn, samples)
    except (psycopg.errors.QueryCanceled, psycopg.errors.UndefinedTable):
        return False
    return True


async def _rows(conn: Connection, name: str) -> list[tuple[Any, ...]]:
    return await (await conn.execute(_sql[name], {"most": _MOST})).fetchall()


async def _queues(conn: Connection, samples: _Samples) -> None:
    for queue, partitions, events, appended, shed in await _rows(conn, "queues"):
        samples[QUEUE_PARTITIONS][queue,] = partitions
        samples[QUEUE_DEPTH][queue,] = events
        samples[QUEUE_APPENDED][queue,] = appended
        samples[QUEUE_SHED][queue,] = shed


async def _groups(conn: Connection, samples: _Samples) -> None:
    for queue, group, lag, counts, behind, leases, dropped, oldest in await _rows(conn, "groups"):
        samples[GROUP_LAG][queue, group] = lag
        samples[GROUP_COUNTS][queue, group] = int(counts)
        samples[GROUP_BEHIND][queue, group] = behind
        samples[GROUP_LEASES][queue, group] = leases
        samples[GROUP_DROPPED][queue, group] = dropped
        samples[GROUP_OLDEST][queue, group] = max(oldest or 0.0, 0.0)


async def _dead_letters(conn: Connection, samples: _Samples) -> None:
    for queue, group, events in await _rows(conn, "dead_letters"):
        samples[DEAD_LETTERS][queue, group] = events


async def _queries(conn: Connection, samples: _Samples) -> None:
    for name, running, paused, cycles, failed, *counts in await _rows(conn, "queries"):
        query = (name,)
        events, outputs, windows, late, dead, cycle_counts, cycle_sum, fresh_counts, fresh_sum, *ages = counts
        commit_age, watermark_lag, lately = ages
        samples[QUERY_RUNNING][query] = int(running)
        samples[QUERY_PAUSED][query] = int(paused)
        samples[QUERY_CYCLES][query] = cycles
        samples[QUERY_FAILED][query] = failed
        samples[QUERY_EVENTS][query] = events
        samples[QUERY_OUTPUTS][query] = outputs
        samples[QUERY_WINDOWS][query] = windows
        samples[QUERY_LATE][query] = late
        samples[QUERY_DEAD][query] = dead
        samples[CYCLE][query] = _distribution(cycle_counts, cycle_sum)
        samples[FRESHNESS][query] = _distribution(fresh_counts, fresh_sum)
        samples[QUERY_THROUGHPUT][query] = lately / 10
        if commit_age is not None:
            samples[QUERY_COMMIT_AGE][query] = max(commit_age, 0.0)
        if watermark_lag is not None:
            samples[QUERY_WATERMARK_LAG][query] = watermark_lag


async def _open_windows(conn: Connection, samples: _Samples) -> None:
    for query_id, name in await _rows(conn, "with_windows"):
        statement = _sql["open_windows"].replace("{id}", str(int(query_id)))
        row = await (await conn.execute(statement)).fetchone()
        samples[OPEN_WINDOWS][name,] = 0 if row is None else row[0]


async def _gates(conn: Connection, samples: _Samples) -> None:
    for query, allowed, waiting, longest in await _rows(conn, "gates"):
        samples[GATE_ALLOWED][query,] = allowed
        samples[GATE_WAITING][query,] = waiting
        samples[GATE_LONGEST][query,] = max(longest, 0.0)


async def _sinks(conn: Connection, samples: _Samples) -> None:
    for queue, sink, written, retries, busy, dead, lost, running, resting in await _rows(conn, "sinks"):
        samples[SINK_WRITTEN][queue, sink] = written
        samples[SINK_RETRIES][queue, sink] = retries
        samples[SINK_BUSY][queue, sink] = busy
        samples[SINK_DEAD][queue, sink] = dead
        samples[SINK_LOST][queue, sink] = lost
        samples[SINK_RUNNING][queue, sink] = int(running)
        samples[SINK_RESTING][queue, sink] = int(running and resting)


def _distribution(counts: Sequence[int], total: float) -> Distribution:
    return Distribution(counts or [0] * (len(CYCLE_SECONDS) + 1), total)
