"""Runs the cycles of a query: one Spark job each, the reports of its tasks, and the commit."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.core.errors import SparkFailure
from penstock.db.statements import Statements
from penstock.db.sync_connection import connect
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.cycle_result import (
    CommitStats,
    CommitTarget,
    ComputedCycle,
    CycleResult,
    QueryContext,
    SparkResult,
)
from penstock.engine.cycle.output_events import reject_invalid_keys, table_to_outputs
from penstock.engine.cycle.partials import empty_partials, split_result
from penstock.engine.cycle.query_setup import PreparedQuery
from penstock.engine.cycle_ledger import COMMIT_BEFORE
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.joins.expired_event import ExpiredEvent
from penstock.engine.joins.join_reader import JoinReader
from penstock.engine.planning import poison_search
from penstock.engine.planning.poison_search import PoisonSearch
from penstock.engine.spark.errors import error_summary
from penstock.engine.views.state_limit import StateLimit
from penstock.engine.views.view_changes import group_changes
from penstock.engine.views.view_inputs import ChangesInput
from penstock.engine.views.view_reader import ViewReader
from penstock.engine.worker.event_reader import EventReader
from penstock.engine.worker.preaggregate import merge_blocks
from penstock.engine.worker.spark_task import CycleJob, set_cycle_job
from penstock.engine.worker.task_reports import ConflictingReports, EventFailure, PartitionReport, TaskReport
from penstock.stream.expression import is_python
from penstock.stream.time_rules import close_delay_us

_sql = Statements("penstock.engine.cycle", "cycle_runner.sql")

_MAX_TRACEBACK = 8_000


class CycleRunner:
    """Computes and commits the cycles of a query under one fencing number."""

    def __init__(self, context: QueryContext, prepared: PreparedQuery, fence: int) -> None:
        self._context = context
        self._prepared = prepared
        self._fence = fence
        self._run = context.run
        stream, options = context.stream, context.options
        self.target = CommitTarget(
            context.id,
            context.name,
            fence,
            options.lease_seconds,
            prepared.groups,
            prepared.result_tables,
            stream.time,
            prepared.watermark_scope,
            stream.sink,
            stream.time.late,
            options.history_retention_seconds,
            close_delay_us(stream.windows, stream.time),
            stream.sink_key if stream.windows else None,
            prepared.join_state,
            prepared.view_table,
            _state_limit(context),
        )
        functions = (stream.sink_key, *(gate.cost.expression for gate in stream.gates))
        self._has_internal_fields = any(is_python(function) for function in functions)
        self._computes_keys = stream.sink_key is not None and not stream.windows and stream.joined is None
        self._committer = Committer(context.log, self.target)

    def close(self) -> None:
        self._run(self._committer.close())

    def run_spark(self, plan: CyclePlan, tag: str | None = None) -> SparkResult:
        """Run the Spark job of a cycle. With a tag, :meth:`cancel_jobs` can cancel it."""
        started_at, start_clock = datetime.now(UTC), time.perf_counter()
        if tag is not None:
            self._context.spark.sparkContext.addJobTag(tag)
        token = self._label_jobs(plan)
        try:
            job = self._build_job(plan)
        except Exception as error:
            raise SparkFailure(f"the Spark plan of a cycle cannot be built: {error_summary(error)}") from error
        table = job.toArrow()
        if self._prepared.preaggregation is not None:
            table = merge_blocks(self._prepared.preaggregation, table)
        return SparkResult(_sort_events(table), started_at, start_clock, time.perf_counter(), token)

    def cancel_jobs(self, tag: str) -> None:
        self._context.spark.sparkContext.cancelJobsWithTag(tag)

    def compute(self, plan: CyclePlan, prefetched: Future[SparkResult] | None = None) -> ComputedCycle:
        """Compute a cycle, or take the result of its Spark job if it was started before."""
        started_at, turn = datetime.now(UTC), time.perf_counter()
        took: dict[str, float] = {"spark": 0.0}
        table: pa.Table | None = None
        token = ""
        reports: list[TaskReport] = []
        has_job = bool(plan.partitions) or plan.is_expiry or plan.expired_rows > 0
        if has_job:
            spark_result = self.run_spark(plan) if prefetched is None else prefetched.result()
            table, started_at, token = spark_result.table, spark_result.started_at, spark_result.token
            took["spark"] = (spark_result.end_clock - spark_result.start_clock) * 1000
            if spark_result.end_clock < turn:
                took[COMMIT_BEFORE] = (turn - spark_result.end_clock) * 1000
        clock = time.perf_counter()
        if has_job:
            reports = self._load_complete_reports(plan, token)
        if table is not None and self._computes_keys:
            table, failures = reject_invalid_keys(table)
            reports.append(TaskReport([], failures, {}))
        result = replace(self._to_result(plan, reports, table, started_at, took), job_token=token)
        took["prepare"] = (time.perf_counter() - clock) * 1000
        return ComputedCycle(result, table)

    def with_outputs(self, result: CycleResult, table: pa.Table | None) -> CycleResult:
        """Add the events of a stream without windows. The next cycle may be computed meanwhile."""
        if table is None or self.target.result_tables is not None or self.target.view_table is not None:
            return result
        clock = time.perf_counter()
        outputs = table_to_outputs(table, self._has_internal_fields)
        took = {**result.took, "encode": (time.perf_counter() - clock) * 1000}
        return replace(result, outputs=outputs, took=took)

    def commit(self, result: CycleResult) -> CommitStats:
        """Commit a cycle exactly once."""
        return self._run(self._committer.commit(result))

    def flush(self, plan: CyclePlan) -> CommitStats:
        """Close all open windows, in a cycle without events."""
        result = self._to_result(plan, [], None, datetime.now(UTC), {})
        return self.commit(replace(result, is_flush=True))

    def delete_plan(self, cycle: int) -> None:
        self._fetch_value(_sql["delete_plan"], {"query": self._context.id, "fence": self._fence, "cycle": cycle})

    # Failures

    def load_poison_search(self) -> PoisonSearch | None:
        """Load the state of the search for an event that fails every cycle."""
        search = self._fetch_value(_sql["load_poison_search"], {"query": self._context.id})
        return None if search is None else poison_search.decode(search)

    def record_failure(self, plan: CyclePlan, error: BaseException, search: PoisonSearch | None) -> None:
        """Write the error of a cycle to the ledger, and store the search for the event that causes it."""
        self._run(self._committer.record_failure(plan, str(error), search))

    def reads_change(self, plan: CyclePlan) -> bool:
        """Tell whether the events of a cycle are changes of another view, which must all be applied."""
        reader = self._prepared.reader
        inputs = reader.inputs if isinstance(reader, ViewReader) else ()
        queues = {queue for each in inputs if isinstance(each, ChangesInput) for queue in each.read_config.queues}
        return any(partition.queue_id in queues for partition in plan.partitions)

    def dead_letter_result(self, plan: CyclePlan, error: BaseException, attempts: int) -> CycleResult:
        """The result of a cycle whose single event is given up: a dead letter."""
        reason = f"every cycle with this event fails: {error_summary(error)}"
        traceback = str(error)[:_MAX_TRACEBACK]
        if plan.partitions:
            partition = plan.partitions[0]
            failure = EventFailure(partition.partition_id, partition.start, "cycle", reason, traceback, attempts)
            progress = PartitionReport(partition.partition_id, partition.high_us, offsets_read=1, events=1)
            return self._to_result(plan, [TaskReport([progress], [failure], {})], None, datetime.now(UTC), {})
        token = uuid4().hex
        expired = self._take_expired_event(plan, token)
        if expired is None:
            raise SparkFailure(f"a cycle without events failed: {reason}")
        failure = EventFailure(expired.partition_id, expired.offset, "cycle", reason, traceback, attempts)
        result = self._to_result(plan, [TaskReport([], [failure], {})], None, datetime.now(UTC), {})
        return replace(result, expired_event=expired, job_token=token)

    # Spark jobs

    def _label_jobs(self, plan: CyclePlan, token: str | None = None) -> str:
        """Name the cycle of the next jobs, and return their token, which is a new one by default."""
        description, token = f"penstock query {self._context.name}, cycle {plan.cycle}", token or uuid4().hex
        set_cycle_job(self._context.spark, CycleJob(self._fence, plan.cycle, token, plan.time_us), description)
        return token

    def _build_job(self, plan: CyclePlan) -> DataFrame:
        """Build the Spark plan of a cycle. This reads no events."""
        prepared = self._prepared
        if prepared.references.forget_stale():
            prepared.small_job = None
            prepared.large_plans.clear()
        if plan.is_expiry and isinstance(prepared.reader, ViewReader):
            return prepared.reader.expiry_frame(self._context.spark, is_small=plan.is_small)
        if not plan.is_small:
            return self._build_large_job(len(plan.tasks))
        return build_small_job(prepared) if prepared.small_job is None else prepared.small_job

    def _build_large_job(self, tasks: int) -> DataFrame:
        prepared = self._prepared
        frame = prepared.large_plans.get(tasks)
        if frame is None:
            frame = prepared.transform(prepared.reader.frame(self._context.spark, tasks), False)
            prepared.large_plans[tasks] = frame
        # Spark keeps the shuffle files of a physical plan. A new one is made of the same logical plan.
        return frame.select("*")

    def _load_complete_reports(self, plan: CyclePlan, token: str) -> list[TaskReport]:
        """Load the reports of a cycle, and check that its tasks have read each planned offset once."""
        reports, reader = self._run(self._committer.load_reports(plan.cycle)), self._prepared.reader
        if not reports and (plan.partitions or plan.expired_rows) and not isinstance(reader, ViewReader):
            # Spark skipped the reader because the result is empty, for example after a join with an empty table.
            reports = self._read_only(plan, reader, token)
        for each in reader.inputs if isinstance(reader, JoinReader | ViewReader) else ():
            # Spark may also skip one input of a join or a view.
            config, read = each.read_config, _offsets_read(reports)
            if any(p.queue_id in config.queues and p.partition_id not in read for p in plan.partitions):
                reports = self._read_only(plan, EventReader(config), token)
        read = _offsets_read(reports)
        for partition in plan.partitions:
            if read.get(partition.partition_id) != partition.events:
                raise ConflictingReports(
                    f"partition {partition.partition_id}: {read.get(partition.partition_id)} offsets were read, but "
                    f"{partition.events} were planned"
                )
        return reports

    def _read_only(
        self, plan: CyclePlan, reader: EventReader | JoinReader | ViewReader, token: str
    ) -> list[TaskReport]:
        """Read the events of a cycle without the steps that follow, and return all reports.

        A join stores its state under the token of the cycle's job.
        """
        self._label_jobs(plan, token)
        frame = reader.frame(self._context.spark, max(1, len(plan.tasks)))
        frame.select(frame.columns[0]).count()
        return self._run(self._committer.load_reports(plan.cycle))

    def _to_result(
        self,
        plan: CyclePlan,
        reports: list[TaskReport],
        table: pa.Table | None,
        started_at: datetime,
        took: dict[str, float],
    ) -> CycleResult:
        tables, view_table = self._prepared.result_tables, self._prepared.view_table
        if view_table is not None:
            changes = None if table is None else group_changes(table, view_table.key)
            return CycleResult(plan, reports, None, [], None, started_at, took, view_changes=changes)
        if tables is None:
            late = [event for report in reports for event in report.late]
            return CycleResult(plan, reports, None, late, None, started_at, took)
        state_names = [state.name for state in tables.state_columns]
        if table is None:
            return CycleResult(plan, reports, empty_partials(state_names), [], None, started_at, took)
        partials = split_result(table, state_names, self._prepared.watermark_scope)
        return CycleResult(
            plan, reports, partials.table, partials.late, None, started_at, took, session_moves=partials.moves
        )

    # Database

    def _fetch_value(self, statement: str, params: dict[str, Any]) -> Any:
        """Run a statement, and return the only column of its row; None without a row."""

        async def fetch() -> Any:
            async with self._context.log.database.connection() as conn:
                row = await (await conn.execute(statement, params)).fetchone()
            (value,) = row or (None,)
            return value

        return self._run(fetch())

    def _take_expired_event(self, plan: CyclePlan, token: str) -> ExpiredEvent | None:
        join_state = self._prepared.join_state
        if join_state is None:
            return None
        with connect(self._context.log.database.conninfo, "driver") as conn:
            return ExpiredEvent.take(join_state, conn, plan, token)


def _state_limit(context: QueryContext) -> StateLimit | None:
    view = context.stream.view
    if view is None or view.max_state_bytes is None:
        return None
    return StateLimit(context.id, context.name, view.max_state_bytes, view.state_ttl_seconds is not None)


def build_small_job(prepared: PreparedQuery) -> DataFrame:
    """Build the Spark plan of small cycles, and keep it: building one takes longer than running it for a few events."""
    frame = prepared.small_frame
    # The reference tables of the inputs may have changed.
    if isinstance(prepared.reader, JoinReader) and prepared.reader.reads_tables:
        frame = prepared.reader.frame(frame.sparkSession, 1)
    if isinstance(prepared.reader, ViewReader) and prepared.reader.reads_tables:
        _, frame = prepared.reader.compile_small(frame.sparkSession)
    job = prepared.transform(frame, True)
    prepared.small_job = job if _is_repeatable(job._jdf.queryExecution().executedPlan()) else None
    return job


def _is_repeatable(node: Any) -> bool:
    """True if Spark computes the events again each time that a plan runs.

    Spark keeps the result of an exchange. A broadcast of a reference table may be kept, one of the events may not.
    """
    name = str(node.nodeName())
    if name == "BroadcastExchange":
        return not _reads_events(node)
    return "Exchange" not in name and all(map(_is_repeatable, _children(node)))


def _reads_events(node: Any) -> bool:
    return "MapInArrow" in str(node.nodeName()) or any(map(_reads_events, _children(node)))


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]


def _offsets_read(reports: list[TaskReport]) -> dict[int, int]:
    """The number of offsets that were read, by partition."""
    return {partition.partition_id: partition.offsets_read for report in reports for partition in report.partitions}


def _sort_events(table: pa.Table) -> pa.Table:
    """Order rows by partition and offset. Each task returns the rows of its partitions in order already."""
    if "__partition" not in table.column_names or not table.num_rows:
        return table
    partitions, offsets = (table.column(name).to_numpy() for name in ("__partition", "__offset"))
    is_new = np.diff(partitions) != 0
    starts = [0, *(np.flatnonzero(is_new) + 1).tolist()]
    if (np.diff(offsets)[~is_new] < 0).any() or len(np.unique(partitions[starts])) < len(starts):
        return table.sort_by([("__partition", "ascending"), ("__offset", "ascending")])
    ends = [*starts[1:], table.num_rows]
    order = np.argsort(partitions[starts], kind="stable").tolist()
    return pa.concat_tables([table.slice(starts[number], ends[number] - starts[number]) for number in order])
