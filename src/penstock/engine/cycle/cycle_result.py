"""The data of a cycle: what a driver runs it with, Spark's result, the result to commit, its target and statistics."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.engine.compile.split_stream import SplitStream
from penstock.engine.cycle.partials import SessionMove, WatermarkScope
from penstock.engine.cycle_plan import CyclePlan, SourceGroup
from penstock.engine.joins.expired_event import ExpiredEvent
from penstock.engine.joins.join_state import JoinState
from penstock.engine.query_registry import Registry
from penstock.engine.results.output_rows import OutputRows
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.run_options import RunOptions
from penstock.engine.views.state_limit import StateLimit
from penstock.engine.views.view_changes import ViewChanges
from penstock.engine.views.view_table import ViewTable
from penstock.engine.worker.task_reports import EventRef, TaskReport
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.time_rules import TimeRules


@dataclass(frozen=True, slots=True)
class SparkResult:
    """The rows that Spark computed for a cycle."""

    table: pa.Table
    started_at: datetime
    #: When the job started and ended, on the clock of ``time.perf_counter``.
    start_clock: float
    end_clock: float
    #: The token of the job, which the state of a view carries.
    token: str


@dataclass(frozen=True)
class CycleResult:
    """The result of a cycle, before it is committed."""

    plan: CyclePlan
    reports: Sequence[TaskReport]
    #: Partial aggregates with the columns of the staging table; None for a stream without windows.
    partials: pa.Table | None
    #: Late events that are not counted.
    late: Sequence[EventRef]
    #: The events of a stream without windows; None for others.
    outputs: OutputRows | None
    started_at: datetime
    #: Milliseconds by part of the cycle.
    took: dict[str, float]
    #: True if the commit closes all open windows.
    is_flush: bool = False
    session_moves: Sequence[SessionMove] = ()
    #: An event of the join state that failed.
    expired_event: ExpiredEvent | None = None
    #: The changes of a view's result; None if nothing was computed.
    view_changes: ViewChanges | None = None
    #: The token of the Spark job, whose state becomes current.
    job_token: str = ""


class ComputedCycle(NamedTuple):
    """The result of a cycle, and the rows that it was made from."""

    result: CycleResult
    table: pa.Table | None


@dataclass
class CommitStats:
    events_in: int = 0
    events_out: int = 0
    windows: int = 0
    late: int = 0
    dead: int = 0
    #: Events that user-defined filters dropped.
    dropped: int = 0
    #: The changes of a view's result; None for other queries.
    changes: int | None = None


@dataclass(frozen=True)
class CommitTarget:
    """The query that cycles are committed for."""

    query_id: int
    name: str
    fence: int
    lease_seconds: float
    groups: Sequence[SourceGroup]
    result_tables: ResultTables | None
    time_rules: TimeRules
    watermark_scope: WatermarkScope
    sink: str | None
    #: How late events are treated: "drop", "dead_letter" or "include".
    late_policy: str
    history_seconds: float
    #: How long after its end a window closes, by the watermark.
    close_delay_us: int = 0
    #: A field or function of a closed window that is the key of its event; None: the window's key.
    window_key: Any = None
    join_state: JoinState | None = None
    view_table: ViewTable | None = None
    state_limit: StateLimit | None = None


_T = TypeVar("_T")


@dataclass(frozen=True)
class QueryContext:
    id: int
    name: str
    stream: Definition
    split: SplitStream
    options: RunOptions
    log: Log
    registry: Registry
    spark: SparkSession
    #: Runs a coroutine on the event loop of the log.
    run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]
    #: True for the new version of a view, which is computed beside the old one.
    is_rebuild: bool = False

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the event loop of the log, and return its result."""
        result: _T = self.run_coroutine(coroutine)
        return result
