"""A query in the hands of one driver: from taking it to losing it or stopping."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.core.errors import DatabaseUnavailable, HopelessQuery, PenstockError, Refused, SparkFailure
from penstock.db.retry import LOST
from penstock.engine.cycle.cycle import Cycles
from penstock.engine.cycle.models import Outcome, Target, Work
from penstock.engine.cycle.partials import Closing
from penstock.engine.cycle.prepare import Assignment, NothingYet, Prepared, prepare
from penstock.engine.driver.checkpoint import Checkpoint
from penstock.engine.driver.cycle_source import packed
from penstock.engine.driver.prefetch import Ahead
from penstock.engine.gates.limits import defined, wanted
from penstock.engine.gates.planner import GatedPlanning
from penstock.engine.gates.release_loop import Keeper
from penstock.engine.gates.validation import check_queues
from penstock.engine.joins.state import MOST_EVENTS
from penstock.engine.plan import CyclePlan
from penstock.engine.planning import poison_search
from penstock.engine.planning.planner import Fenced, Planner, Planning
from penstock.engine.planning.poison_search import Verdicts
from penstock.engine.spark.errors import first_line
from penstock.engine.spark.session import tasks_at_once
from penstock.engine.status import Status
from penstock.engine.worker import reports
from penstock.engine.worker.task import DatabaseLost
from penstock.stream.gates import NANO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = logging.getLogger("penstock.engine")

#: Cycles of up to so many events are one task, with a plan that was made once.
SMALL_EVENTS = 10_000
#: So many may be in the first one, if tasks only add them up.
FIRST_EVENTS = 100_000
_LONGEST_CYCLE_SECONDS = 1800.0
_STARTING_SECONDS = 30.0


@dataclass
class Wheel:
    """What a query and whoever drives it have in common."""

    status: Status = field(default_factory=Status)
    #: Somebody wants it to end; it runs, or waits for something.
    stopping: threading.Event = field(default_factory=threading.Event)
    started: threading.Event = field(default_factory=threading.Event)
    verdicts: Verdicts = field(default_factory=Verdicts)

    def count(self, outcome: Outcome) -> None:
        """Add what a commit did."""
        status = self.status
        for name in ("events_in", "events_out", "windows", "late", "dead", "dropped"):
            setattr(status, name, getattr(status, name) + getattr(outcome, name))


class Drive:
    """The query under one fencing number."""

    def __init__(self, assignment: Assignment, wheel: Wheel, fence: int) -> None:
        self._assignment = assignment
        self._wheel = wheel
        self._fence = fence
        self._prepared: Prepared | None = None
        self._cycles: Cycles | None = None
        #: Minds the gates, where there are any.
        self._gates: Keeper | None = None
        self._checkpoint: Checkpoint | None = None
        self._streaming: Any = None
        self._began = 0.0
        self._keeper: threading.Thread | None = None
        self._over = threading.Event()
        self._let_go = threading.Event()
        self._error: BaseException | None = None
        self._stops: dict[int, int] | None = None
        self._cycle = threading.Lock()
        self._busy_since: float | None = None
        #: Whether it has come further than the one before it: it committed, or Spark's stream has begun to call.
        self.has_run = False

    def until_it_ends(self, warm: Prepared | None) -> None:
        """Prepare, unless a standby has, and run cycles until the query is stopped, fails or is taken over."""
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        wheel, options = self._wheel, self._assignment.options
        try:
            self._prepared = prepared = self._fitting(warm)
        except NothingYet:
            wheel.started.set()
            return
        self._cycles = self._new_cycles(prepared)
        if options.available_now:
            self._stops = self._assignment.run(self._ends())
            if not self._stops:
                wheel.started.set()
                return
        planning = self._planning(prepared)
        if self._assignment.stream.gates:
            planning = self._mind_gates(self._cycles.target, planning)
        else:
            self._catch_up(planning)
        if not (self._over.is_set() or wheel.stopping.is_set()):
            self._start(planning)
        wheel.status.state = "running"
        wheel.started.set()
        while not wheel.stopping.is_set():
            if self._over.wait(0.2) or not self._streaming.isActive:
                break
        self._stop_streaming()
        if self._error is not None:
            raise self._error

    def finish(self, flush: bool) -> None:
        """Close the open windows, if that is wanted; and send on what is due."""
        if self._cycles is None:
            return
        if self._gates is not None:
            # The sinks are about to write what is left, and not what would come for ever.
            self._assignment.run(self._gates.close())
        if flush:
            self._wheel.count(self._cycles.flush())
        self._settle(self._cycles)

    def close(self) -> None:
        """Let go of everything."""
        self._over.set()
        self._let_go.set()
        self._stop_streaming()
        if self._keeper is not None:
            self._keeper.join(5)
        try:
            if self._gates is not None:
                self._assignment.run(self._gates.close())
            if self._prepared is not None:
                self._prepared.close()
            if self._cycles is not None:
                self._cycles.close()
            self._assignment.run(self._assignment.registry.release(self._assignment.id, self._fence))
        except Exception:
            _logger.debug("closing failed", exc_info=True)
        if self._checkpoint is not None:
            self._checkpoint.close()
            self._checkpoint = None

    # Beginning

    def _new_cycles(self, prepared: Prepared) -> Cycles:
        kind = Cycles
        if self._assignment.log.database.settings.tracing:
            from penstock.engine.tracing import TracedCycles

            kind = TracedCycles
        return kind(self._assignment, prepared, self._fence)

    def _fitting(self, warm: Prepared | None) -> Prepared:
        known = self._assignment.run(self._assignment.registry.fields(self._assignment.id))
        if warm is not None and known is not None and warm.types == known:
            return warm
        return prepare(self._assignment, known, self._wait_for_events)

    def _wait_for_events(self) -> bool:
        if self._assignment.options.available_now or self._wheel.stopping.is_set():
            return False
        self._wheel.status.state = "waiting for the first event"
        self._wheel.started.set()
        return not self._wheel.stopping.wait(0.05)

    async def _ends(self) -> dict[int, int]:
        """Where each partition ends now, if the group has not come that far."""
        ends = {}
        for queue, _, group, _ in self._prepared.groups if self._prepared is not None else []:
            for lane in await self._assignment.log.group_lanes(queue, group):
                if lane.next_offset < lane.end_offset:
                    ends[lane.partition_id] = lane.end_offset
        return ends

    def _planning(self, prepared: Prepared) -> Planning:
        stream, options = self._assignment.stream, self._assignment.options
        most = options.max_events_per_cycle
        if prepared.waiting is not None:
            most = min(most, MOST_EVENTS)
        return Planning(
            self._assignment.log.database.conninfo,
            self._assignment.id,
            self._fence,
            tuple((queue_id, group_id) for _, queue_id, _, group_id in prepared.groups),
            options.lease_seconds,
            0.0 if options.available_now else options.interval_seconds,
            min(SMALL_EVENTS, most),
            most,
            tasks_at_once(self._assignment.spark),
            None if prepared.tables is None else f"penstock.state_{self._assignment.id}",
            stream.time.idle_flush_us,
            stream.time.grace_us + stream.time.lateness_us,
            self._stops,
            prepared.waiting if prepared.waiting is not None and prepared.waiting.sends_alone else None,
            0 if prepared.combining is None else min(FIRST_EVENTS, most),
        )

    def _catch_up(self, planning: Planning) -> None:
        """Do the first cycle at once, and those that follow while there is more to read than fits into one.

        Spark takes its time to start a stream, and asks for each batch in its own time.
        """
        wheel, cycles, prepared = self._wheel, self._cycles, self._prepared
        assert cycles is not None and prepared is not None  # noqa: S101,PT018 - the caller made them
        try:
            planner = Planner(planning)
            by_plan_alone = prepared.combining is not None and prepared.closing is not Closing.TOGETHER
            ahead = Ahead(planner, cycles) if by_plan_alone else None
            try:
                while (ahead is not None and ahead.holds()) or planner.next_cycle() is not None:
                    self._on_cycle(None, 0, ahead)
                    is_done = not (planner.is_behind or (ahead is not None and ahead.is_waiting))
                    if is_done or self._over.is_set() or wheel.stopping.is_set():
                        break
                    wheel.status.state = "running"
                    wheel.started.set()
            finally:
                try:
                    if ahead is not None:
                        ahead.close()
                finally:
                    planner.close()
        except Fenced as error:
            raise Refused("the query was taken over by another driver") from error
        except LOST:
            raise
        except psycopg.Error as error:
            raise SparkFailure(f"a cycle could not be planned: {first_line(error)}") from error

    def _mind_gates(self, target: Target, planning: Planning) -> GatedPlanning:
        """Let gates decide when events pass: a cycle only brings them to hand."""
        assignment = self._assignment
        gates = assignment.stream.gates

        async def prepared() -> Keeper:
            await check_queues(assignment.log, assignment.stream)
            keeper = Keeper(assignment.log, target, gates, self._released, self._end)
            await keeper.prepare()
            return keeper

        self._gates = assignment.run(prepared())
        limits = [defined(gate) for gate in gates]
        wants = wanted(limits, [float(NANO if gate.cost.fixed is None else gate.cost.fixed) for gate in gates])
        return GatedPlanning(**vars(planning), wants=wants)

    def _start(self, planning: Planning) -> None:
        spark = self._assignment.spark
        self._began = time.monotonic()
        # However much was caught up: a stream that never begins is to be given up at last.
        self.has_run = False
        if self._gates is not None:
            self._assignment.run(self._gates.start())
        self._checkpoint = Checkpoint(in_memory=(spark.sparkContext.master or "").startswith("local"))
        try:
            source = spark.readStream.format("penstock-cycles").option("planning", packed(planning)).load()
            self._streaming = (
                source.writeStream.queryName(f"penstock {self._assignment.name} {self._fence}")
                .option("checkpointLocation", self._checkpoint.path.as_uri())
                .foreachBatch(self._on_cycle)
                .start()
            )
        except (PySparkException, Py4JJavaError) as error:
            raise SparkFailure(f"Spark's stream could not be started: {first_line(error)}") from error

    # Cycles

    def _on_cycle(self, frame: DataFrame | None, batch: int, ahead: Ahead | None = None) -> None:
        """What Spark calls for each cycle. It never raises: what goes wrong is in the ledger, or ends the drive."""
        wheel, cycles = self._wheel, self._cycles
        with self._cycle:
            if wheel.stopping.is_set() or self._over.is_set() or cycles is None:
                return
            self._busy_since = time.monotonic()
            self.has_run = self.has_run or frame is not None
            plan: CyclePlan | None = None
            try:
                answer = None
                if ahead is not None and ahead.is_waiting:
                    plan, answer = ahead.take()
                else:
                    plan = cycles.planned()
                if plan is None and batch == 0:
                    return  # Spark begins with a batch in any case, also when there is nothing to do
                if plan is None:
                    raise Refused("the ledger has no cycle of this driver")
                work, table = cycles.compute(plan, answer)
                if ahead is not None:
                    ahead.begin(work)
                self._finish_cycle(cycles, work, table)
                if plan.lanes or (work.kept is not None and work.kept.alone):
                    wheel.verdicts.clear()
            except Exception as error:
                wheel.stopping.wait(self._on_error(cycles, plan, error))
            finally:
                self._busy_since = None

    def _settle(self, cycles: Cycles) -> None:
        """Send on the events of a join that have expired in no pair, cycle by cycle."""
        while self._error is None and (plan := cycles.settling()) is not None:
            try:
                self._wheel.count(cycles.commit(cycles.compute(plan)[0]))
                self._wheel.verdicts.clear()
            except Exception as error:
                # It is to stop already, and this is what it still does: nothing cuts the pause short.
                time.sleep(self._on_error(cycles, plan, error))
        if self._error is not None:
            raise self._error

    def _finish_cycle(self, cycles: Cycles, work: Work, table: pa.Table | None) -> None:
        """Commit the cycle; of a gated query, it is the gates that let events through, when they may."""
        if self._gates is not None:
            self._assignment.run(self._gates.take(work, table))
        else:
            self._released(cycles.commit(work), {lane.partition_id: lane.stop for lane in work.plan.lanes})

    def _released(self, outcome: Outcome, positions: dict[int, int]) -> None:
        """Take note of what was committed, and up to where each partition is done."""
        status = self._wheel.status
        self._wheel.count(outcome)
        status.cycles += 1
        status.error = None
        self.has_run = True
        status.last_cycle_seconds = time.monotonic() - (self._busy_since or time.monotonic())
        if self._stops is None:
            return
        # Strike off what has been read of what was there at the start.
        for partition_id, position in positions.items():
            if self._stops.get(partition_id, 0) <= position:
                self._stops.pop(partition_id, None)
        if not self._stops:
            self._end(None)

    def _on_error(self, cycles: Cycles, plan: CyclePlan | None, error: Exception) -> float:
        """End the drive, or look for an event that is to blame; how many seconds to wait before the next cycle."""
        if isinstance(error, (*LOST, PenstockError, psycopg.ProgrammingError)):
            # Nothing that an event could do.
            self._end(error)
        elif isinstance(error, reports.Ambiguous):
            self._on_disagreement(cycles, plan, SparkFailure(f"the tasks of a cycle do not agree: {error}"))
        elif DatabaseLost.__name__ in str(error):
            self._end(DatabaseUnavailable(f"a task could not reach PostgreSQL: {first_line(error)}"))
        else:
            return self._on_failure(cycles, plan, error)
        return 0.0

    def _on_failure(self, cycles: Cycles, plan: CyclePlan | None, error: Exception) -> float:
        """Look for the event that is to blame; when it stands alone, give it up."""
        wheel = self._wheel
        wheel.status.failed_cycles += 1
        wheel.status.error = first_line(error)
        _logger.warning("query %r: a cycle failed: %s", self._assignment.name, wheel.status.error)
        _logger.debug("the whole of it", exc_info=error)
        try:
            alone = cycles.expired(plan.alone) if plan is not None and plan.alone else 0
            if plan is None or not (plan.lanes or alone):
                self._end(error)
                return 0.0
            suspects = poison_search.after_failure(cycles.suspicion(), plan, alone)
            if not poison_search.is_guilty(suspects, plan):
                cycles.fail(plan, error, suspects)
                # What is wrong for a moment only has a moment to pass.
                return min(0.25 * 2.0**suspects.tries, 5.0) if suspects.tries else 0.0
            if wheel.verdicts.is_hopeless(error):
                cycles.fail(plan, error, suspects)
                raise HopelessQuery(
                    f"{poison_search.MOST_VERDICTS} events in a row were given up, and each time Spark said: "
                    f"{first_line(error)}. That is hardly the events' fault, so the query stops before it gives up "
                    "all others. Mend what is wrong, redrive the dead letters of the stage 'cycle' and start it again"
                ) from error
            self._finish_cycle(cycles, cycles.given_up(plan, error, suspects.tries), None)
            wheel.verdicts.note(error)
        except Exception as second:
            self._end(second)
        return 0.0

    def _on_disagreement(self, cycles: Cycles, plan: CyclePlan | None, problem: SparkFailure) -> None:
        """Begin anew, with the reason in the ledger. No event is to blame, so none is looked for."""
        self._wheel.status.failed_cycles += 1
        try:
            if plan is not None:
                cycles.fail(plan, problem, None)
        except Exception:
            _logger.debug("the reason could not be noted", exc_info=True)
        self._end(problem)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._over.set()

    # The lease

    def _keep(self) -> None:
        """Hold the query while it is prepared and while a cycle runs; between cycles, whoever plans them does."""
        assignment = self._assignment
        lease = assignment.options.lease_seconds
        while not self._let_go.wait(lease / 4):
            since = self._busy_since
            # Who plans the cycles is a process that Spark has yet to start.
            preparing = (
                self._over.is_set() or self._streaming is None or time.monotonic() - self._began < _STARTING_SECONDS
            )
            if not preparing if since is None else time.monotonic() - since > _LONGEST_CYCLE_SECONDS:
                continue
            try:
                # A JVM that stands still does not answer, and then the lease ends.
                assignment.spark.sparkContext._jsc.sc().isStopped()
                if not assignment.run(assignment.registry.keep(assignment.id, self._fence, lease)):
                    self._end(Refused(f"query {assignment.name!r} was taken over by another driver"))
            except Exception:
                _logger.debug("the lease could not be renewed", exc_info=True)

    # The end

    def _stop_streaming(self) -> None:
        """Between cycles only: Spark does not like to be stopped in the middle of one."""
        streaming, self._streaming = self._streaming, None
        if streaming is None:
            return
        self._over.set()
        with self._cycle:
            problem = None if streaming.isActive else streaming.exception()
        # Not while holding the lock: Spark waits for a cycle that has just begun, and that would wait for us.
        _await_lull(streaming)
        streaming.stop()
        if problem is not None and self._error is None and not self._wheel.stopping.is_set():
            self._error = _translated(problem)


def _await_lull(streaming: Any) -> None:
    """Wait, not for long, until Spark has written down the end of a cycle and asks for the next."""
    deadline = time.monotonic() + 2
    while streaming.isActive and time.monotonic() < deadline:
        said = streaming.status
        if not said["isTriggerActive"] or "offset" in said["message"].lower():
            return
        time.sleep(0.01)


def _translated(problem: BaseException) -> BaseException:
    text = str(problem)
    if "Fenced" in text:
        return Refused("the query was taken over by another driver")
    return SparkFailure(text)
