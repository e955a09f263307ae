"""The driver loop: plan a cycle, run one Spark job for it, commit, repeat."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
from pyspark.errors import PySparkException

from penstock.core.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    LeaseLost,
    PenstockError,
    PlanningFailed,
    QueryError,
    RepeatedFailure,
    SparkFailure,
    StateLimitReached,
)
from penstock.db.retry import CONNECTION_ERRORS
from penstock.engine.cycle.commit import CycleTooLarge
from penstock.engine.cycle.cycle_result import CommitStats, CycleResult, QueryContext, SparkResult
from penstock.engine.cycle.cycle_runner import CycleRunner
from penstock.engine.cycle.partials import WatermarkScope
from penstock.engine.cycle.query_setup import NoSampleEvents, PreparedQuery, prepare_query, read_newest
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.driver.heartbeat import DriverProgress, LeaseHeartbeat
from penstock.engine.driver.missing_fields import MissingFields, fields_read
from penstock.engine.driver.prefetch import Prefetcher
from penstock.engine.gates.gate_rules import check_gate_queues
from penstock.engine.gates.gated_planner import GatedPlanner
from penstock.engine.gates.limit_overrides import default_limit, prefetch_target
from penstock.engine.gates.release import ReleaseTuning
from penstock.engine.gates.release_loop import ReleaseLoop
from penstock.engine.joins.join_state import MAX_JOIN_EVENTS
from penstock.engine.joins.waiting_table import move_waiting_rows
from penstock.engine.planning import poison_search
from penstock.engine.planning.planner import Planner, PlannerConfig
from penstock.engine.planning.poison_search import GivenUpEvents
from penstock.engine.query_status import Status
from penstock.engine.spark.errors import error_summary, is_worker_error, worker_message
from penstock.engine.spark.spark_session import task_slots
from penstock.engine.views.view_reader import ViewReader
from penstock.engine.worker import task_reports
from penstock.engine.worker.spark_task import DatabaseLost
from penstock.stream.gates import NANOS_PER_TOKEN
from penstock.stream.time_rules import close_delay_us

_logger = logging.getLogger("penstock.engine")

#: One task reads a cycle of up to so many events, with a Spark plan that is built once.
SMALL_EVENTS = 10_000
#: The first cycle may have so many events if an event costs little.
FIRST_EVENTS = 100_000
#: The loop looks this often whether it is to stop.
_WAIT_SECONDS = 0.5
#: The class of SQL states for values that an expression cannot compute or a column cannot store.
_DATA_EXCEPTION = "22"


@dataclass
class RunState:
    """The state that a query shares with the loop that runs it."""

    status: Status = field(default_factory=Status)
    #: Set when the query is to end after its current cycle.
    stopping: threading.Event = field(default_factory=threading.Event)
    #: Set when the query runs, stands by or waits for events.
    started: threading.Event = field(default_factory=threading.Event)
    given_up: GivenUpEvents = field(default_factory=GivenUpEvents)

    def count(self, stats: CommitStats) -> None:
        for name in ("events_in", "events_out", "windows", "late", "dead", "dropped"):
            setattr(self.status, name, getattr(self.status, name) + getattr(stats, name))


class CycleLoop:
    """Runs a query while this process holds its lease, under one fencing number."""

    def __init__(self, context: QueryContext, state: RunState, fence: int) -> None:
        self._context = context
        self._state = state
        self._fence = fence
        self._prepared: PreparedQuery | None = None
        self._cycles: CycleRunner | None = None
        self._planner: Planner | None = None
        self._release_loop: ReleaseLoop | None = None
        self._heartbeat = LeaseHeartbeat(context, fence, self._is_alive, self._end)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        #: With ``available_now``: the end of each partition at the start, until it is reached.
        self._stop_offsets: dict[int, int] | None = None
        self._progress = DriverProgress(context.options.lease_seconds)
        #: True once a cycle was committed or there was nothing to do: a restart then counts as the first one.
        self.made_progress = False

    def run(self, warm: PreparedQuery | None) -> None:
        """Run cycles until the query is stopped, fails or is taken over. ``warm`` is what a standby has prepared."""
        self._heartbeat.start()
        try:
            self._prepared = prepared = self._prepare(warm)
            if prepared.join_state is not None:
                move_waiting_rows(self._context.spark, prepared.join_state, self._context.name, self._fence)
        except NoSampleEvents:
            self._state.started.set()
            return
        self._cycles = cycles = self._new_cycle_runner(prepared)
        if self._context.options.available_now:
            self._stop_offsets = self._context.run(self._unread_ends(prepared))
        if self._context.stream.gates:
            self._release_loop = self._context.run(self._start_release_loop(cycles))
        with _planning_errors():
            self._planner = planner = self._new_planner(prepared)
        if self._stop_offsets == {} and self._state_ttl_seconds == 0:
            self._state.started.set()
            return
        prefetcher, missing_fields = self._new_prefetcher(planner, cycles, prepared), self._new_missing_fields(prepared)
        self._run_cycles(planner, cycles, prefetcher, missing_fields)
        if self._error is not None:
            raise self._error

    def finish(self, flush: bool) -> None:
        """Emit expired rows of a join and, with ``flush``, close all open windows."""
        cycles, planner, prepared = self._cycles, self._planner, self._prepared
        if cycles is None or planner is None or prepared is None:
            return
        if self._release_loop is not None:
            # Sinks drain what is released by now, not what would follow.
            self._context.run(self._release_loop.close())
        if flush and (prepared.result_tables is not None or prepared.join_state is not None):
            self._state.count(cycles.flush(planner.plan_flush()))
        self._emit_expired(planner, cycles)

    def close(self, *, stopped: bool = False) -> None:
        """Release the lease and all resources. ``stopped`` is True if the query was to end."""
        self._ended.set()
        self._heartbeat.stop()
        try:
            if self._release_loop is not None:
                self._context.run(self._release_loop.close())
            if self._planner is not None:
                self._planner.close()
            if self._prepared is not None:
                self._prepared.close()
            if self._cycles is not None:
                self._cycles.close()
            self._context.run(self._context.registry.release_lease(self._context.id, self._fence, stopped=stopped))
        except Exception:
            _logger.debug("closing failed", exc_info=True)

    # Set-up

    def _prepare(self, warm: PreparedQuery | None) -> PreparedQuery:
        known = self._context.run(self._context.registry.field_types(self._context.id))
        if warm is not None and known is not None and warm.types == known:
            return warm
        return prepare_query(self._context, known, self._wait_for_events)

    def _wait_for_events(self) -> bool:
        if self._context.options.available_now or self._state.stopping.is_set():
            return False
        self._state.status.state = "waiting for the first event"
        self._state.started.set()
        return not self._state.stopping.wait(0.05)

    def _new_cycle_runner(self, prepared: PreparedQuery) -> CycleRunner:
        runner = CycleRunner
        if self._context.log.database.settings.tracing:
            from penstock.engine.tracing import TracedCycleRunner

            runner = TracedCycleRunner
        return runner(self._context, prepared, self._fence)

    async def _unread_ends(self, prepared: PreparedQuery) -> dict[int, int]:
        """The end offset of each partition that has unread events."""
        ends = {}
        for source in prepared.groups:
            for partition in await self._context.log.group_positions(source.queue, source.group):
                if partition.next_offset < partition.end_offset:
                    ends[partition.partition_id] = partition.end_offset
        return ends

    async def _start_release_loop(self, cycles: CycleRunner) -> ReleaseLoop:
        log, stream = self._context.log, self._context.stream
        await check_gate_queues(log, stream)
        tuning = ReleaseTuning(max_buffer_size=self._context.options.gate_buffer_events)
        release_loop = ReleaseLoop(log, cycles.target, stream.gates, self._on_commit, self._end, tuning)
        await release_loop.prepare()
        await release_loop.start()
        return release_loop

    def _new_planner(self, prepared: PreparedQuery) -> Planner:
        context, stream, options = self._context, self._context.stream, self._context.options
        join = prepared.join_state
        max_events = (
            options.max_events_per_cycle if join is None else min(options.max_events_per_cycle, MAX_JOIN_EVENTS)
        )
        config = PlannerConfig(
            conninfo=context.log.database.conninfo,
            query_id=context.id,
            query=context.name,
            fence=self._fence,
            groups=prepared.groups,
            lease_seconds=options.lease_seconds,
            interval_seconds=0.0 if options.available_now else options.interval_seconds,
            small_events=min(SMALL_EVENTS, max_events),
            max_events=max_events,
            first_events=min(FIRST_EVENTS, max_events) if self._costs_little(prepared) else 0,
            parallelism=lambda: task_slots(context.spark),
            stopping=self._state.stopping,
            state_table=None if prepared.result_tables is None else f"penstock.state_{context.id}",
            idle_us=stream.time.idle_flush_us,
            close_delay_us=close_delay_us(stream.windows, stream.time) + stream.time.lateness_us,
            stop_offsets=None if self._stop_offsets is None else dict(self._stop_offsets),
            outer_join=join if join is not None and join.is_outer else None,
            state_ttl_seconds=self._state_ttl_seconds,
        )
        if self._release_loop is None:
            return Planner(config)
        limits = [default_limit(gate) for gate in stream.gates]
        costs = [float(NANOS_PER_TOKEN if gate.cost.fixed is None else gate.cost.fixed) for gate in stream.gates]
        return GatedPlanner(config, self._release_loop.buffer, prefetch_target(limits, costs))

    @property
    def _state_ttl_seconds(self) -> float:
        view = self._context.stream.view
        return 0.0 if view is None else view.state_ttl_seconds or 0.0

    def _new_prefetcher(self, planner: Planner, cycles: CycleRunner, prepared: PreparedQuery) -> Prefetcher | None:
        """A prefetcher, where the result of a cycle depends on its plan alone."""
        stream = self._context.stream
        if prepared.preaggregation is not None:
            is_independent = prepared.watermark_scope is not WatermarkScope.GLOBAL
        else:
            # Functions may call other systems, and must not do so for a cycle that is discarded.
            has_state = bool(stream.windows) or stream.joined is not None or stream.view is not None
            is_independent = not has_state and self._costs_little(prepared)
        return Prefetcher(planner, cycles) if is_independent and self._release_loop is None else None

    def _costs_little(self, prepared: PreparedQuery) -> bool:
        """Whether tasks pre-aggregate the events, or no function of the user and no window needs single ones."""
        context, reader = self._context, prepared.reader
        if prepared.preaggregation is not None:
            return True
        inputs = reader.inputs if isinstance(reader, ViewReader) else ()
        splits = [context.split, *(each.split for each in inputs)]
        has_functions = context.stream.functions or any(split.reader_steps or split.stages for split in splits)
        return not (has_functions or context.stream.windows or context.stream.joined)

    def _new_missing_fields(self, prepared: PreparedQuery) -> MissingFields:
        context = self._context
        return MissingFields(
            context.name,
            fields_read(context.stream, prepared),
            lambda queues: context.run(read_newest(context, queues)),
        )

    # Cycles

    def _run_cycles(
        self, planner: Planner, cycles: CycleRunner, prefetcher: Prefetcher | None, missing_fields: MissingFields
    ) -> None:
        # The query counts as started after its first cycle or, without events, at once.
        wait_seconds = 0.0
        plan: CyclePlan | None
        try:
            while not (self._ended.is_set() or self._state.stopping.is_set()):
                self._progress.note_planning()
                result: Future[SparkResult] | None = None
                with _planning_errors():
                    prefetched = None if prefetcher is None else prefetcher.take()
                    if prefetched is not None:
                        plan, result = prefetched
                    else:
                        plan = planner.next_cycle(wait_seconds)
                if plan is None:
                    self.made_progress = True
                else:
                    self._run_cycle(cycles, plan, result, prefetcher)
                missing_fields.check_if_due()
                wait_seconds = _WAIT_SECONDS
                self._state.status.state = "running"
                self._state.started.set()
        finally:
            if prefetcher is not None:
                prefetcher.close()

    def _run_cycle(
        self,
        cycles: CycleRunner,
        plan: CyclePlan,
        prefetched: Future[SparkResult] | None,
        prefetcher: Prefetcher | None,
    ) -> None:
        """Compute and commit one cycle. An error is written to the ledger or ends the loop."""
        self._progress.begin_cycle()
        try:
            result, table = cycles.compute(plan, prefetched)
            if prefetcher is not None:
                prefetcher.start_next(result)
            self._commit(cycles, result, table)
            if plan.partitions or plan.expired_rows:
                self._state.given_up.clear()
        except Exception as error:
            self._state.stopping.wait(self._on_error(cycles, plan, error))
        finally:
            self._progress.end_cycle()

    def _commit(self, cycles: CycleRunner, result: CycleResult, table: pa.Table | None) -> None:
        """Commit a cycle; the events of a gated query go to the release buffer instead."""
        result = cycles.with_outputs(result, table)
        if self._release_loop is not None:
            self._context.run(self._release_loop.add_cycle(result, table))
        else:
            self._on_commit(cycles.commit(result), {each.partition_id: each.stop for each in result.plan.partitions})

    def _on_commit(self, stats: CommitStats, positions: dict[int, int]) -> None:
        """Count a commit, and end once all partitions have reached their stop offsets."""
        status = self._state.status
        self._state.count(stats)
        status.cycles += 1
        status.error = None
        self.made_progress = True
        if self._stop_offsets is None:
            return
        for partition_id, position in positions.items():
            if self._stop_offsets.get(partition_id, 0) <= position:
                self._stop_offsets.pop(partition_id, None)
        if not self._stop_offsets:
            self._end(None)

    def _emit_expired(self, planner: Planner, cycles: CycleRunner) -> None:
        """Emit the rows of a join that expired without a match, cycle by cycle."""
        while self._error is None and (plan := planner.plan_expired()) is not None:
            try:
                self._state.count(cycles.commit(cycles.with_outputs(*cycles.compute(plan))))
                self._state.given_up.clear()
            except Exception as error:
                # The query is stopping already, so only a plain sleep can pause it.
                time.sleep(self._on_error(cycles, plan, error))
        if self._error is not None:
            raise self._error

    # Failures

    def _on_error(self, cycles: CycleRunner, plan: CyclePlan, error: Exception) -> float:
        """End the loop or search for a poison event. Returns the seconds to wait before the next cycle."""
        if isinstance(error, StateLimitReached):
            self._fail(cycles, plan, error)
        elif isinstance(error, (*CONNECTION_ERRORS, PenstockError, psycopg.ProgrammingError)):
            self._end(error)  # no event causes these
        elif isinstance(error, task_reports.ConflictingReports):
            self._fail(cycles, plan, SparkFailure(f"the tasks of a cycle disagree: {error}"))
        elif is_worker_error(error, DatabaseLost):
            self._end(DatabaseUnavailable(f"a task could not reach PostgreSQL: {error_summary(error)}"))
        elif (message := worker_message(error, ConfigurationError)) is not None:
            self._end(ConfigurationError(f"a task lacks a setting: {message}"))
        elif plan.is_expiry:
            self._fail(cycles, plan, SparkFailure(f"a cycle that expires state failed: {error_summary(error)}"))
        else:
            return self._search_poison_event(cycles, plan, error)
        return 0.0

    def _search_poison_event(self, cycles: CycleRunner, plan: CyclePlan, error: Exception) -> float:
        """Narrow the search for the event that fails the cycle; dead-letter it once it is isolated."""
        state = self._state
        state.status.failed_cycles += 1
        state.status.error = error_summary(error)
        _logger.warning("query %r: a cycle failed: %s", self._context.name, state.status.error)
        _logger.debug("full error", exc_info=error)
        try:
            if self._context.run(self._context.registry.current_fence(self._context.id)) != self._fence:
                # The state that the cycle read may be gone, so no event is to blame.
                raise LeaseLost(f"query {self._context.name!r} was taken over by another driver, or deleted")
            if not (plan.partitions or plan.expired_rows):
                self._end(error)
                return 0.0
            search = poison_search.after_failure(cycles.load_poison_search(), plan, plan.expired_rows)
            is_value_error = _is_value_error(error)
            if not poison_search.is_guilty(search, plan, 1 if is_value_error else None):
                cycles.record_failure(plan, error, search)
                # A single event is retried with backoff, since the cause may be temporary.
                return min(0.25 * 2.0**search.tries, 5.0) if search.tries else 0.0
            if cycles.reads_change(plan):
                cycles.record_failure(plan, error, search)
                raise RepeatedFailure(
                    f"a change of another view fails every cycle: {error_summary(error)}. Without it the rows of "
                    f"{self._context.name!r} would be wrong. Change the statement, and run it with reset=True (--reset)"
                ) from error
            if not is_value_error and state.given_up.is_hopeless(error):
                cycles.record_failure(plan, error, search)
                raise RepeatedFailure(
                    f"{poison_search.MAX_GIVEN_UP} events in a row failed with the same error: {error_summary(error)}. "
                    "The events are hardly the cause, so the query stops before it dead-letters all others. "
                    "Fix the cause, redrive the dead letters of the stage 'cycle' and start the query again"
                ) from error
            self._commit(cycles, cycles.dead_letter_result(plan, error, search.tries), None)
            if not is_value_error:
                state.given_up.note(error)
        except Exception as second:
            self._end(second)
        return 0.0

    def _fail(self, cycles: CycleRunner, plan: CyclePlan, error: QueryError) -> None:
        """End the loop with the reason in the ledger. No event is to blame, so none is searched for."""
        self._state.status.failed_cycles += 1
        try:
            cycles.record_failure(plan, error, None)
        except Exception:
            _logger.debug("the error could not be written to the ledger", exc_info=True)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended.is_set():
            self._error = error
            self._ended.set()

    def _is_alive(self) -> bool:
        return self._progress.is_alive(is_ending=self._ended.is_set() or self._state.stopping.is_set())


def _is_value_error(error: BaseException) -> bool:
    """Tell whether the values of an event are certainly the cause: a retry fails as well, and other events do not."""
    if isinstance(error, PySparkException) and (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
        return True
    return isinstance(error, psycopg.DataError | CycleTooLarge) or is_worker_error(error, psycopg.DataError)


@contextmanager
def _planning_errors() -> Iterator[None]:
    """Translate errors of PostgreSQL other than a lost connection."""
    try:
        yield
    except CONNECTION_ERRORS:
        raise
    except psycopg.Error as error:
        raise PlanningFailed(f"a cycle could not be planned: {error_summary(error)}") from error
