"""One cycle: its plan out of the ledger, Spark's answer, the tasks' reports, the commit."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from penstock.core import json
from penstock.core.errors import SparkFailure
from penstock.db.statements import Statements
from penstock.engine import plan as plans
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.models import Answer, Outcome, Target, Work
from penstock.engine.cycle.partials import staged
from penstock.engine.cycle.prepare import Assignment, Prepared
from penstock.engine.joins.inputs import PairReader
from penstock.engine.joins.state import MOST_EVENTS, Waited, WaitingTable, gathered
from penstock.engine.ledger import COMMIT_BEFORE
from penstock.engine.plan import CyclePlan, spread
from penstock.engine.planning import poison_search
from penstock.engine.planning.poison_search import Suspicion
from penstock.engine.spark.errors import first_line
from penstock.engine.spark.session import tasks_at_once
from penstock.engine.worker import reports
from penstock.engine.worker.json_values import COST, as_it_was, plain
from penstock.engine.worker.preaggregate import added_up
from penstock.engine.worker.read_config import DATA
from penstock.engine.worker.reader import Reader
from penstock.engine.worker.reports import Report
from penstock.engine.worker.task import Job, label_job
from penstock.engine.worker.udf import Failure
from penstock.stream.expression import is_python

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark.sql import DataFrame

_sql = Statements("penstock.engine", "registry.sql")


class Cycles:
    """The cycles of a query under one fencing number."""

    def __init__(self, assignment: Assignment, prepared: Prepared, fence: int) -> None:
        self._assignment = assignment
        self._prepared = prepared
        self._fence = fence
        self._run = assignment.run
        stream, options = assignment.stream, assignment.options
        self._tables = prepared.tables
        self.target = Target(
            assignment.id,
            assignment.name,
            fence,
            options.lease_seconds,
            prepared.groups,
            prepared.tables,
            stream.time,
            prepared.closing,
            stream.sink,
            stream.time.late,
            options.history_retention_seconds,
            stream.sink_key if stream.windows else None,
            prepared.waiting,
        )
        functions = (stream.sink_key, *(gate.cost.expression for gate in stream.gates))
        self._has_made = any(is_python(function) for function in functions)
        self._committer = Committer(assignment.log, self.target)

    def close(self) -> None:
        """Let go of the connection that commits go over."""
        self._run(self._committer.close())

    def planned(self) -> CyclePlan | None:
        """The cycle that was planned for this driver and is to be done, by as many tasks as can run at once now."""
        plan = self._run(self._planned())
        if plan is None or plan.is_small:
            return plan
        tasks = spread(plan.lanes, tasks_at_once(self._assignment.spark))
        if len(tasks) != len(plan.tasks):
            plan = structs.replace(plan, tasks=tasks)
            self._run(self._plan_anew(plan))
        return plan

    def forget(self, cycle: int) -> None:
        """Take a cycle that was planned and is not to be done out of the ledger."""
        self._run(self._forget(cycle))

    def answer(self, plan: CyclePlan, tag: str | None = None) -> Answer:
        """Spark's answer for the events of a cycle. By a tag, all that this thread asks for can be cancelled."""
        started, began = datetime.now(UTC), time.perf_counter()
        if tag is not None:
            self._assignment.spark.sparkContext.addJobTag(tag)
        table = _in_order(self._answer(plan))
        return Answer(table, started, began, time.perf_counter())

    def cancel(self, tag: str) -> None:
        """Give up what was asked for under a tag."""
        self._assignment.spark.sparkContext.cancelJobsWithTag(tag)

    def compute(self, plan: CyclePlan, answer: Future[Answer] | None = None) -> tuple[Work, pa.Table | None]:
        """What is to be committed of a cycle, and the rows that it was made of; Spark may have been asked before."""
        started, turn = datetime.now(UTC), time.perf_counter()
        took: dict[str, float] = {"spark": 0.0}
        table: pa.Table | None = None
        is_join = self._prepared.waiting is not None
        if plan.lanes or is_join:
            said_by_spark = self.answer(plan) if answer is None else answer.result()
            table, started = said_by_spark.table, said_by_spark.started_at
            took["spark"] = (said_by_spark.ended - said_by_spark.began) * 1000
            if said_by_spark.ended < turn:
                took[COMMIT_BEFORE] = (turn - said_by_spark.ended) * 1000
        clock = time.perf_counter()
        said = self._checked(plan) if plan.lanes or is_join else []
        work = self._work(plan, said, table, started, took)
        took["prepare"] = (time.perf_counter() - clock) * 1000
        return work, table

    def commit(self, work: Work) -> Outcome:
        """Commit what a cycle came to, once."""
        return self._run(self._committer.commit(work))

    def flush(self) -> Outcome:
        """Close every open window."""
        keeps = self._tables is not None or self._prepared.waiting is not None
        plan = CyclePlan(0, True, [], [[]])
        number = self._run(self._begin_flush(plan)) if keeps else None
        if number is None:
            return Outcome()
        work = self._work(structs.replace(plan, cycle=number), [], None, datetime.now(UTC), {})
        return self.commit(replace(work, flush=True))

    def settling(self) -> CyclePlan | None:
        """The next cycle that sends on the events of a join that have expired in no pair; None, if there are none."""
        if not self.expired(1):
            return None
        suspects = self.suspicion()
        limit = min(self._assignment.options.max_events_per_cycle, MOST_EVENTS)
        plan = CyclePlan(0, True, [], [[]], limit if suspects is None else suspects.alone or limit)
        number = self._run(self._begin_flush(plan))
        return None if number is None else structs.replace(plan, cycle=number)

    def expired(self, limit: int) -> int:
        """How many events of a join are to be sent on in no pair, as far as one wants to know."""
        waiting = self._prepared.waiting
        return self._run(self._expired(waiting, limit)) if waiting is not None and waiting.sends_alone else 0

    # What went wrong

    def suspicion(self) -> Suspicion | None:
        """Where an event is looked for that no cycle survives."""
        return self._run(self._suspicion())

    def fail(self, plan: CyclePlan, error: BaseException, suspects: Suspicion | None) -> None:
        """Take note of a cycle that came to nothing, and of where to look for what stopped it."""
        self._run(self._committer.fail(plan, str(error), suspects))

    def given_up(self, plan: CyclePlan, error: BaseException, tries: int) -> Work:
        """What is to be committed of a cycle of one event that is given up: a dead letter."""
        reason = f"no cycle survives it: {first_line(error)}"
        if not plan.lanes:
            return self._alone_given_up(plan, reason, str(error)[:8000], tries)
        lane = plan.lanes[0]
        culprit = Failure(lane.partition_id, lane.start, "cycle", reason, str(error)[:8000], tries)
        said = Report([reports.Mark(lane.partition_id, 1, 1, lane.high_us, 0)], [culprit], {})
        return self._work(plan, [said], None, datetime.now(UTC), {})

    def _alone_given_up(self, plan: CyclePlan, reason: str, traceback: str, tries: int) -> Work:
        """The same for one that has waited in a join, and would go on in no pair."""
        waited = self._run(self._oldest_alone())
        if waited is None:
            raise SparkFailure(f"a cycle without events failed: {reason}")
        culprit = Failure(waited.partition_id, waited.offset, "cycle", reason, traceback, tries)
        said = [Report([], [culprit], {}, alone=1)]
        kept = gathered(said)
        return Work(plan, said, None, [], [], datetime.now(UTC), {}, kept=kept, waited=waited)

    # Parts

    def _answer(self, plan: CyclePlan) -> pa.Table:
        label_job(self._assignment.spark, Job(self._fence, plan.cycle))
        try:
            made = self._job(plan)
        except Exception as error:
            raise SparkFailure(f"the plan of a cycle cannot be made: {first_line(error)}") from error
        table = made.toArrow()
        how = self._prepared.combining
        return table if how is None else added_up(how, table)

    def _job(self, plan: CyclePlan) -> DataFrame:
        """What computes a cycle. No event has been looked at when it is made."""
        prepared = self._prepared
        if prepared.references.forget_stale():
            prepared.small_plan = None
        if not plan.is_small:
            return prepared.transform(prepared.reader.frame(self._assignment.spark, len(plan.tasks)), False)
        return small_plan(prepared) if prepared.small_plan is None else prepared.small_plan

    def _checked(self, plan: CyclePlan) -> list[Report]:
        """The tasks' reports, which must cover the plan, each offset once."""
        said, reader = self._said(plan), self._prepared.reader
        if not said and (plan.lanes or plan.alone):
            # Spark saw that nothing would come of the events, as with a join to an empty table, and did not read them.
            said = self._read_alone(plan, reader)
        for side in reader.sides if isinstance(reader, PairReader) else ():
            # Or not those of one side of a join of streams.
            read = {mark.partition_id for report in said for mark in report.marks}
            if any(lane.queue_id in side.reading.queues and lane.partition_id not in read for lane in plan.lanes):
                said = self._read_alone(plan, Reader(side.reading))
        offsets = {mark.partition_id: mark.offsets for report in said for mark in report.marks}
        for lane in plan.lanes:
            if offsets.get(lane.partition_id) != lane.stop - lane.start:
                raise reports.Ambiguous(
                    f"partition {lane.partition_id}: {offsets.get(lane.partition_id)} offsets were read "
                    f"and {lane.stop - lane.start} were planned"
                )
        return said

    def _said(self, plan: CyclePlan) -> list[Report]:
        return reports.gather(self._run(self._committer.reports(plan.cycle)))

    def _read_alone(self, plan: CyclePlan, reader: Reader | PairReader) -> list[Report]:
        """Have events read for which there was nothing to compute; the reports of all tasks after that."""
        label_job(self._assignment.spark, Job(self._fence, plan.cycle))
        frame = reader.frame(self._assignment.spark, max(1, len(plan.tasks)))
        frame.select(frame.columns[0]).count()
        return self._said(plan)

    def _work(
        self, plan: CyclePlan, said: list[Report], table: pa.Table | None, started: datetime, took: dict[str, float]
    ) -> Work:
        if self._prepared.waiting is not None:
            late = [where for report in said for where in report.late]
            if table is None:
                return Work(plan, said, None, late, [], started, took)
            return Work(plan, said, None, late, _outputs(table, self._has_made), started, took, kept=gathered(said))
        if self._tables is None:
            return Work(plan, said, None, [], [] if table is None else _outputs(table, self._has_made), started, took)
        kept = [kept.name for kept in self._tables.kept]
        if table is None:
            table = pa.table({name: pa.array([], pa.int64()) for name in ("key", "ws", "we", "late", "p", *kept)})
            return Work(plan, said, table, [], [], started, took)
        partials = staged(table, kept, self._prepared.closing)
        return Work(plan, said, partials.table, partials.late, [], started, took, moves=partials.moves)

    async def _planned(self) -> CyclePlan | None:
        params = {"query": self._assignment.id, "fence": self._fence}
        async with self._assignment.log.database.connection() as conn:
            row = await (await conn.execute(_sql["planned"], params, binary=True)).fetchone()
        return None if row is None else plans.decode(row[0])

    async def _plan_anew(self, plan: CyclePlan) -> None:
        params = {"query": self._assignment.id, "fence": self._fence, "cycle": plan.cycle, "plan": plans.encode(plan)}
        async with self._assignment.log.database.connection() as conn:
            await conn.execute(_sql["plan_anew"], params)

    async def _forget(self, cycle: int) -> None:
        params = {"query": self._assignment.id, "fence": self._fence, "cycle": cycle}
        async with self._assignment.log.database.connection() as conn:
            await conn.execute(_sql["forget_plan"], params)

    async def _begin_flush(self, plan: CyclePlan) -> int | None:
        # What the tasks of a join find has no events in it, and not its own number either.
        params = {"query": self._assignment.id, "fence": self._fence, "plan": plans.encode(plan)}
        async with self._assignment.log.database.connection() as conn:
            row = await (await conn.execute(_sql["begin_flush"], params)).fetchone()
        return None if row is None else row[0]

    async def _expired(self, waiting: WaitingTable, limit: int) -> int:
        async with self._assignment.log.database.connection() as conn:
            row = await (await conn.execute(waiting.statement("expired"), waiting.params(limit=limit))).fetchone()
        return 0 if row is None else row[0]

    async def _oldest_alone(self) -> Waited | None:
        waiting = self._prepared.waiting
        if waiting is None:
            return None
        async with self._assignment.log.database.connection() as conn:
            return await waiting.oldest_alone(conn)

    async def _suspicion(self) -> Suspicion | None:
        async with self._assignment.log.database.connection() as conn:
            row = await (await conn.execute(_sql["suspicion"], {"query": self._assignment.id})).fetchone()
        return None if row is None or row[0] is None else poison_search.decode(row[0])


def small_plan(prepared: Prepared) -> DataFrame:
    """What computes a small cycle. Made once: for a few events, making a plan takes longer than running it."""
    small = prepared.small
    if prepared.waiting is not None:
        # What its sides look up may have changed.
        small = prepared.reader.frame(small.sparkSession, 1)
    made = prepared.transform(small, True)
    # What was shuffled once is not shuffled again: such a plan can only be run once.
    prepared.small_plan = None if _shuffles(made) else made
    return made


def _shuffles(frame: DataFrame) -> bool:
    """Whether running the frame writes shuffle files, which Spark keeps with the plan."""
    text = str(frame._jdf.queryExecution().executedPlan().toString())
    return bool(re.search(r"(?<!Broadcast)Exchange\b", text))


def _in_order(table: pa.Table) -> pa.Table:
    if "__partition" not in table.column_names:
        return table
    return table.sort_by([("__partition", "ascending"), ("__offset", "ascending")])


def _outputs(table: pa.Table, has_made: bool) -> list[tuple[str | None, bytes]]:
    """The events for the sink; a table's rows are in the order of their partitions."""
    keys = table.column("__sink").to_pylist()
    whole = [line.encode() for line in table.column(DATA).to_pylist()] if DATA in table.column_names else None
    if whole is not None and has_made:
        whole = [as_it_was(line) for line in whole]
    hidden = ("__partition", "__offset", "__sink", DATA)
    fields = [name for name in table.column_names if name not in hidden and not name.startswith(COST)]
    if whole is not None and not fields:
        return list(zip(keys, whole, strict=True))
    rows = [plain(row) for row in table.select(fields).to_pylist()]
    if whole is not None:
        events = [json.decode(line) for line in whole]
        rows = [{**event, **row} if isinstance(event, dict) else event for event, row in zip(events, rows, strict=True)]
    return [(key, json.encode(row)) for key, row in zip(keys, rows, strict=True)]
