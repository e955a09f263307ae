"""A query as it runs: one driver, Spark's cycles, and the commits that end them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException

from penstock.core import json
from penstock.core.errors import (
    Conflict,
    DatabaseUnavailable,
    InvalidRequest,
    PenstockError,
    Refused,
    SparkFailure,
)
from penstock.core.settings import Settings
from penstock.db.patience import LOST
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.engine import control, reports, status, suspicion
from penstock.engine import plan as plans
from penstock.engine.background import Background
from penstock.engine.callables import Failure
from penstock.engine.commit import Committer, Outcome, Target, Work
from penstock.engine.compile import Split, compile_events, compile_windows, split
from penstock.engine.gates.costs import COST
from penstock.engine.gates.keeper import Keeper
from penstock.engine.gates.limits import defined, wanted
from penstock.engine.gates.planning import GatedPlanning
from penstock.engine.options import RunOptions
from penstock.engine.plan import CyclePlan
from penstock.engine.planning import Planning
from penstock.engine.reading import CYCLE, DATA, DatabaseLost, Reader, Reading
from penstock.engine.reference import ReferenceTables
from penstock.engine.registry import Registered, Registry
from penstock.engine.reports import Report
from penstock.engine.sampling import SAMPLE, resolve_fields, resolve_stages
from penstock.engine.session import session_beside, spark_session
from penstock.engine.source import CycleSource, packed
from penstock.engine.staging import Closing, staged
from penstock.engine.status import Status
from penstock.engine.tables import ResultTables
from penstock.engine.values import plain
from penstock.log.log import Log
from penstock.stream.fingerprint import describe, fingerprint
from penstock.stream.gates import NANO
from penstock.stream.windows import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.stream.definition import Definition

_sql = Statements("penstock.engine", "queries.sql")
_logger = logging.getLogger("penstock.engine")

#: Cycles of up to so many events are one task, with a plan that was made once.
SMALL_EVENTS = 10_000
_STANDBY_SECONDS = 0.5
#: How often a driver looks what is wanted of it.
_WATCH_SECONDS = 0.5
_LONGEST_CYCLE_SECONDS = 1800.0
_STARTING_SECONDS = 30.0
#: The fencing number of a standby, which commits nothing.
NOBODY = 0
#: A query that fails so often in a row, without one cycle in between, gives up.
_MOST_FAILURES = 20


class Query:
    """A stream that runs under a name. ``stop`` ends it after the cycle that it is in; ``wait`` waits for its end."""

    def __init__(self, stream: Definition, name: str, settings: Settings, options: RunOptions) -> None:
        stream.check()
        self.name = name
        self.status = Status()
        self._stream = stream
        self._cut = split(stream)
        self._settings = settings
        self._options = options
        self._background = Background(f"penstock {name}")
        self._database = Database(settings)
        self._log = Log(self._database)
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._started = threading.Event()
        self._flush = options.flush
        self._problem: BaseException | None = None
        self._cycle = threading.Lock()
        self._busy_since: float | None = None
        self._id: int | None = None
        self._watchers: list[Future[None]] = []
        self._thread = threading.Thread(target=self._main, name=f"penstock query {name}", daemon=True)

    # For who runs it

    def start(self) -> Query:
        """Begin; returns when the query runs, or waits as a standby, or raises what stopped it."""
        self._thread.start()
        self._started.wait()
        if self._ended.is_set() and self._problem is not None:
            raise self._problem
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; raises what it ended with. False, if the timeout came first."""
        if not self._ended.wait(timeout):
            return False
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        return True

    def stop(self, *, flush: bool = False) -> None:
        """End it after the cycle that it is in; with ``flush``, close and emit the windows that are open."""
        self._flush = self._flush or flush
        self.ask_to_stop()
        self.wait()

    def ask_to_stop(self) -> None:
        """Let it end after the cycle that it is in, or its start; does not wait for that."""
        self._stopping.set()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    @property
    def report_seconds(self) -> float:
        """How often who runs it in the foreground says what it has done."""
        return self._options.report_seconds

    def processed(self) -> int:
        """How many events it has committed since it was started."""
        return self.status.events_in

    # Its life

    def _main(self) -> None:
        try:
            self._background.run(self._log.open())
            self._live()
        except BaseException as error:
            self._problem = error
            self.status.error = str(error)
        finally:
            self.status.state = "stopped"
            self.status.stopped_at = time.monotonic()
            for watcher in self._watchers:
                watcher.cancel()
            try:
                if self._id is not None:
                    self._background.run(status.look(self._database, self._id, self.status))
                self._background.run(self._log.close())
            except Exception:
                _logger.debug("closing failed", exc_info=True)
            self._background.close()
            self._ended.set()
            self._started.set()

    def _live(self) -> None:
        run = self._background.run
        registry = Registry(self._log)
        for queue in self._stream.sources:
            run(self._log.catalog.refresh(queue))
        if self._options.reset:
            run(registry.delete(self.name))
        lines = describe(self._stream)
        query = run(
            registry.register(
                self.name,
                lines,
                fingerprint(lines),
                sink=self._stream.sink,
                history_seconds=self._options.history_retention_seconds,
            )
        )
        self._id = query.id
        looks = status.keep_looking(self._database, query.id, self.status)
        self._watchers = [self._background.begin(task) for task in (self._watch(query), looks)]
        if self._stream.sink is not None:
            run(self._make_sink(self._stream.sink))
        options = self._options
        shared = spark_session(app_name=f"penstock {self.name}", master=options.master, conf=options.spark_conf)
        # Views and settings of its own, in one Spark with the others.
        spark = session_beside(shared)
        spark.dataSource.register(CycleSource)
        failures = 0
        while not self._stopping.is_set():
            fence = self._take(
                registry, query, lambda: _Run(self, registry, spark, query.id, NOBODY, query.fields).warm_up()
            )
            if fence is None:
                return
            done = self.status.cycles
            run_once = _Run(self, registry, spark, query.id, fence, run(registry.fields(query.id)))
            try:
                run_once.until_it_ends()
                if self._stopping.is_set() or self._options.available_now:
                    run_once.finish(self._flush)
                    return
            except (*LOST, Refused, SparkFailure, DatabaseUnavailable) as error:
                # Nothing is lost: whoever takes the query next goes on where the last commit was.
                failures = 1 if self.status.cycles > done else failures + 1
                self.status.error = _first_line(error)
                _logger.warning("query %r is started again: %s", self.name, self.status.error)
                _logger.debug("the whole of it", exc_info=True)
                if failures > _MOST_FAILURES:
                    raise
                run_once.close()
                self._stopping.wait(min(0.5 * 2**failures, 5.0))
            except InvalidRequest:
                run_once.close()
                if query.is_new and run(registry.never_ran(query.id)):
                    # The id is free for the stream as it will be.
                    run(registry.delete(self.name))
                raise
            finally:
                run_once.close()

    async def _make_sink(self, name: str) -> None:
        if await self._log.catalog.find(name) is None:
            await self._log.configure(name, partitioning="hash", partitions=8, only_new=False)

    async def _watch(self, query: Registered) -> None:
        """Do what people ask of the query from elsewhere."""
        while not self._stopping.is_set():
            try:
                asked = await control.wanted(self._database, query.id, query.at)
            except (PenstockError, psycopg.Error):
                asked = None
            if asked is not None and asked.stopped:
                _logger.info("query %r was asked to stop", self.name)
                self._stopping.set()
            elif asked is not None and asked.paused != self.status.paused:
                _logger.info("query %r %s", self.name, "is paused" if asked.paused else "goes on")
                self.status.paused = asked.paused
            await asyncio.sleep(_WATCH_SECONDS)

    def _take(self, registry: Registry, query: Registered, warm_up: Callable[[], None]) -> int | None:
        """Wait until the query is free, as a standby."""
        driver = f"{socket.gethostname()}:{os.getpid()}"
        while not self._stopping.is_set():
            try:
                fence = self._background.run(registry.take(self.name, driver, self._options.lease_seconds, query.at))
            except (PenstockError, psycopg.Error):
                fence = None
            if fence is not None:
                return fence
            if self.status.state != "standby":
                _logger.info("query %r is run by another driver; this one stands by", self.name)
                self.status.state = "warming up"
                self._started.set()
                try:
                    warm_up()
                except Exception:
                    _logger.debug("warming up failed", exc_info=True)
                self.status.state = "standby"
                continue
            self._stopping.wait(_STANDBY_SECONDS)
        return None


class _NothingYet(Exception):
    """There is no event that shows the types of what is read, and no more time to wait for one."""


class _Run:
    """The query under one fencing number: from taking it to losing it or stopping."""

    def __init__(
        self, query: Query, registry: Registry, spark: SparkSession, id: int, fence: int, known: dict[str, str] | None
    ) -> None:
        self._query = query
        self._registry = registry
        self._spark = spark
        self._id = id
        self._fence = fence
        self._known = known
        self._committer: Committer | None = None
        #: Minds the gates, where there are any.
        self._gates: Keeper | None = None
        self._checkpoint: Path | None = None
        self._streaming: Any = None
        self._began = 0.0
        self._keeper: threading.Thread | None = None
        self._over = threading.Event()
        self._let_go = threading.Event()
        self._error: BaseException | None = None
        self._stops: dict[int, int] | None = None
        self._running = query._background.run

    def warm_up(self) -> None:
        """Do without events what takes the first cycle so long, so that a standby follows within seconds."""
        if self._running(self._sample()):
            self._prepare()
            self._transform(self._small, True).toArrow()

    def until_it_ends(self) -> None:
        """Prepare and run cycles until the query is stopped, fails or is taken over."""
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        query = self._query
        try:
            self._prepare()
        except _NothingYet:
            query._started.set()
            return
        except (AnalysisException, ParseException) as error:
            raise InvalidRequest(
                f"Spark does not understand the stream: {_first_line(error)}. If a field is meant that no event has "
                "shown yet, declare it with Stream.from_(..., schema={...})"
            ) from error
        if query._options.available_now and not self._stops:
            query._started.set()
            return
        self._start()
        query.status.state = "running"
        query._started.set()
        while not query._stopping.is_set():
            if self._over.wait(0.2) or not self._streaming.isActive:
                break
        self._stop_streaming()
        if self._error is not None:
            raise self._error

    def finish(self, flush: bool) -> None:
        """Close the open windows, if that is wanted."""
        if flush and self._committer is not None and self._target.tables is not None:
            self._running(self._flush())

    def close(self) -> None:
        """Let go of everything."""
        self._over.set()
        self._let_go.set()
        self._stop_streaming()
        if self._keeper is not None:
            self._keeper.join(5)
        try:
            if self._gates is not None:
                self._running(self._gates.close())
            if self._committer is not None:
                self._references.close()
                self._running(self._committer.close())
            self._running(self._registry.release(self._id, self._fence))
        except Exception:
            _logger.debug("closing failed", exc_info=True)
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    # Preparing

    def _prepare(self) -> None:
        query, stream = self._query, self._query._stream
        cut, options = query._cut, query._options
        groups = self._running(self._subscribe())
        names = {queue_id: queue for queue, queue_id, _, _ in groups}
        fields = self._fields(cut)
        conninfo = query._database.conninfo
        reading = Reading(
            conninfo,
            self._id,
            query.name,
            self._fence,
            fields,
            names,
            stream.time.event_time if stream.windows else None,
            stream.time.lateness_us,
            cut.first,
            cut.with_data,
        )
        self._reader = Reader(reading)
        small = self._reader.frame(self._spark, 1)
        self._references = ReferenceTables(conninfo, reading)
        cut = resolve_stages(cut, small, self._references, self._sampled, self._known or {})
        tables: ResultTables | None = None
        if stream.windows:
            compiled = compile_windows(cut, small, self._references)
            self._transform = compiled.transform
            key_name = _key_name(stream, options.key_name)
            by_key = isinstance(stream.windows[0], Session)
            tables = ResultTables(self._id, query.name, compiled.columns, key_name, by_key)
            self._running(self._registry.make_tables(tables))
        else:
            self._transform = compile_events(cut, small, self._references)
        self._small = small
        self._small_plan: DataFrame | None = None
        self._target = Target(
            self._id,
            query.name,
            self._fence,
            options.lease_seconds,
            groups,
            tables,
            stream.time,
            self._running(self._closing(groups)),
            stream.sink,
            stream.time.late,
            options.history_retention_seconds,
            stream.sink_key if stream.windows else None,
        )
        self._committer = Committer(query._log, self._target)
        if options.available_now:
            self._stops = self._running(self._ends(groups))
        planning = Planning(
            conninfo,
            self._id,
            self._fence,
            tuple((queue_id, group_id) for _, queue_id, _, group_id in groups),
            options.lease_seconds,
            0.0 if options.available_now else options.interval_seconds,
            min(SMALL_EVENTS, options.max_events_per_cycle),
            options.max_events_per_cycle,
            max(2, self._spark.sparkContext.defaultParallelism),
            None if tables is None else f"penstock.state_{self._id}",
            stream.time.idle_flush_us,
            stream.time.grace_us + stream.time.lateness_us,
            self._stops,
        )
        if stream.gates:
            self._gates = self._running(self._mind_gates())
            limits = [defined(gate) for gate in stream.gates]
            wants = wanted(limits, [float(NANO if g.cost.fixed is None else g.cost.fixed) for g in stream.gates])
            planning = GatedPlanning(**vars(planning), wants=wants)
        self._source = self._spark.readStream.format("penstock-cycles").option("planning", packed(planning)).load()

    async def _mind_gates(self) -> Keeper:
        keeper = Keeper(self._query._log, self._target, self._query._stream.gates, self._released, self._end)
        await keeper.prepare()
        return keeper

    async def _subscribe(self) -> list[tuple[str, int, str, int]]:
        """A group of the query's own in each queue that it reads."""
        query, found = self._query, []
        for name in query._stream.sources:
            queue = await query._log.catalog.refresh(name)
            group = await query._log.group_book.subscribe(
                queue,
                query.name,
                query._options.subscription_from,  # type: ignore[arg-type]  # checked there
                query_id=query.name,
            )
            if group.query_id != query.name:
                raise Conflict(
                    f"queue {name!r} has a group {query.name!r} already, of consumers; give the query another id"
                )
            found.append((name, queue.id, query.name, group.id))
        return found

    async def _closing(self, groups: list[tuple[str, int, str, int]]) -> Closing:
        stream = self._query._stream
        if not stream.windows:
            return Closing.BY_PARTITION
        if stream.key is not None or len(groups) > 1:
            return Closing.TOGETHER
        queue = await self._query._log.catalog.get(groups[0][0])
        # In a queue by key, they have a partition of their own.
        return Closing.BY_PARTITION if queue.partition_count is None else Closing.KEYLESS_TOGETHER

    def _fields(self, cut: Split) -> pa.Schema:
        """The types of what is read; waits for the first event if it takes one to know them."""
        query = self._query
        sample = self._running(self._sample())
        from penstock.engine.compile import fields_read

        needs = bool(fields_read(cut)) or isinstance(cut.stream.time.event_time, str)
        known = self._known or {}
        while needs and not sample and not known and not query._stopping.is_set():
            if query._options.available_now:
                break
            query.status.state = "waiting for the first event"
            query._started.set()
            query._stopping.wait(0.05)
            sample = self._running(self._sample())
        if needs and not sample and not known:
            # Types that are guessed now would be the types of the tables, and wrong for what comes later.
            raise _NothingYet
        self._sampled = sample
        schema, types = resolve_fields(self._spark, cut, known, sample)
        if sample and self._fence != NOBODY:
            self._running(self._registry.set_fields(self._id, types))
            self._known = types
        return schema

    async def _sample(self) -> list[Any]:
        events: list[Any] = []
        for queue in self._query._stream.sources:
            events += await self._query._log.browse(queue, limit=SAMPLE)
        return events

    async def _ends(self, groups: list[tuple[str, int, str, int]]) -> dict[int, int]:
        """Where each partition ends now, if the group has not come that far."""
        ends = {}
        for queue, _, group, _ in groups:
            for lane in await self._query._log.group_lanes(queue, group):
                if lane.next_offset < lane.end_offset:
                    ends[lane.partition_id] = lane.end_offset
        return ends

    def _start(self) -> None:
        room = Path("/dev/shm")  # noqa: S108 - what lies there is only Spark's own bookkeeping, and is made for us alone
        parent = room if room.is_dir() and os.access(room, os.W_OK) and self._is_local() else None
        self._began = time.monotonic()
        if self._gates is not None:
            self._running(self._gates.start())
        self._checkpoint = Path(tempfile.mkdtemp(prefix="penstock-", dir=parent))
        self._streaming = (
            self._source.writeStream.queryName(f"penstock {self._query.name} {self._fence}")
            .option("checkpointLocation", str(self._checkpoint))
            .foreachBatch(self._on_cycle)
            .start()
        )

    def _is_local(self) -> bool:
        return (self._spark.sparkContext.master or "").startswith("local")

    # Cycles

    def _on_cycle(self, frame: DataFrame, batch: int) -> None:
        """What Spark calls for each cycle. It never raises: what goes wrong is in the ledger, or ends the run."""
        query = self._query
        with query._cycle:
            if query._stopping.is_set() or self._over.is_set():
                return
            query._busy_since = time.monotonic()
            plan: CyclePlan | None = None
            try:
                plan = self._running(self._planned())
                if plan is None:
                    raise Refused("the ledger has no cycle of this driver")
                self._finish_cycle(plan, *self._do(plan))
            except Refused as error:
                self._end(error)
            except LOST as error:
                self._end(error)
            except (PenstockError, psycopg.ProgrammingError) as error:
                # Nothing that an event could do.
                self._end(error)
            except reports.Ambiguous as error:
                self._end(SparkFailure(f"the tasks of a cycle do not agree: {error}"))
            except Exception as error:
                if DatabaseLost.__name__ in str(error):
                    self._end(DatabaseUnavailable(f"a task could not reach PostgreSQL: {_first_line(error)}"))
                else:
                    self._on_failure(plan, error)
            finally:
                query._busy_since = None

    def _do(self, plan: CyclePlan) -> tuple[Work, pa.Table | None]:
        started, clock = datetime.now(UTC), time.perf_counter()
        took: dict[str, float] = {}
        table: pa.Table | None = None
        if plan.lanes:
            table = _in_order(self._compute(plan))
        took["spark"] = (time.perf_counter() - clock) * 1000
        clock = time.perf_counter()
        said = self._checked(plan) if plan.lanes else []
        work = self._work(plan, said, table, started, took)
        took["prepare"] = (time.perf_counter() - clock) * 1000
        return work, table

    def _finish_cycle(self, plan: CyclePlan, work: Work, table: pa.Table | None) -> None:
        """Commit the cycle; of a gated query, it is the gates that let events through, when they may."""
        if self._gates is not None:
            self._running(self._gates.take(work, table))
            return
        assert self._committer is not None  # noqa: S101 - made before the first cycle
        self._count(self._running(self._committer.commit(work)))
        if self._stops is not None:
            self._pass({lane.partition_id: lane.stop for lane in plan.lanes})

    def _released(self, outcome: Outcome, positions: dict[int, int]) -> None:
        self._count(outcome)
        if self._stops is not None:
            self._pass(positions)

    def _compute(self, plan: CyclePlan) -> pa.Table:
        self._spark.sparkContext.setLocalProperty(CYCLE, str(plan.cycle))
        try:
            made = self._job(plan)
        except Exception as error:
            raise SparkFailure(f"the plan of a cycle cannot be made: {_first_line(error)}") from error
        return made.toArrow()

    def _job(self, plan: CyclePlan) -> DataFrame:
        """What computes a cycle. No event has been looked at when it is made."""
        if not plan.is_small:
            return self._transform(self._reader.frame(self._spark, len(plan.tasks)), False)
        if self._small_plan is not None and not self._references.is_stale():
            return self._small_plan
        # Made once: for a few events, making a plan takes longer than running it.
        made = self._transform(self._small, True)
        # What was shuffled once is not shuffled again: such a plan can only be run once.
        self._small_plan = None if _shuffles(made) else made
        return made

    def _checked(self, plan: CyclePlan) -> list[Report]:
        """The tasks' reports, which must cover the plan, each offset once."""
        assert self._committer is not None  # noqa: S101 - made before the first cycle
        rows = self._running(self._committer.reports(plan.cycle))
        if not rows:
            # Spark saw that nothing would come of the events, as with a join to an empty table, and did not read them.
            self._reader.frame(self._spark, max(1, len(plan.tasks))).select("__offset").count()
            rows = self._running(self._committer.reports(plan.cycle))
        said = reports.gather(rows)
        read = {mark.partition_id: mark.offsets for report in said for mark in report.marks}
        for lane in plan.lanes:
            if read.get(lane.partition_id) != lane.stop - lane.start:
                raise reports.Ambiguous(
                    f"partition {lane.partition_id}: {read.get(lane.partition_id)} offsets were read "
                    f"and {lane.stop - lane.start} were planned"
                )
        return said

    def _work(
        self, plan: CyclePlan, said: list[Report], table: pa.Table | None, started: datetime, took: dict[str, float]
    ) -> Work:
        if self._target.tables is None:
            return Work(plan, said, None, [], [] if table is None else _outputs(table), started, took)
        kept = [kept.name for kept in self._target.tables.kept]
        if table is None:
            table = pa.table({name: pa.array([], pa.int64()) for name in ("key", "ws", "we", "late", "p", *kept)})
            return Work(plan, said, table, [], [], started, took)
        partials = staged(table, kept, self._target.closing)
        return Work(plan, said, partials.table, partials.late, [], started, took, moves=partials.moves)

    async def _planned(self) -> CyclePlan | None:
        params = {"query": self._id, "fence": self._fence}
        async with self._query._database.connection() as conn:
            row = await (await conn.execute(_sql["planned"], params, binary=True)).fetchone()
        return None if row is None else plans.decode(row[0])

    def _count(self, outcome: Outcome) -> None:
        now = self._query.status
        now.cycles += 1
        now.events_in += outcome.events_in
        now.events_out += outcome.events_out
        now.windows += outcome.windows
        now.late += outcome.late
        now.dead += outcome.dead
        now.error = None
        now.last_cycle_seconds = time.monotonic() - (self._query._busy_since or time.monotonic())

    def _pass(self, positions: dict[int, int]) -> None:
        """Strike off what has been read of what was there at the start."""
        assert self._stops is not None  # noqa: S101 - the caller looked
        for partition_id, position in positions.items():
            if self._stops.get(partition_id, 0) <= position:
                self._stops.pop(partition_id, None)
        if not self._stops:
            self._end(None)

    def _on_failure(self, plan: CyclePlan | None, error: Exception) -> None:
        """Look for the event that is to blame; when it stands alone, give it up."""
        query = self._query
        query.status.failed_cycles += 1
        query.status.error = _first_line(error)
        _logger.warning("query %r: a cycle failed: %s", query.name, query.status.error)
        _logger.debug("the whole of it", exc_info=error)
        if plan is None or not plan.lanes or self._committer is None:
            self._end(error)
            return
        try:
            before = self._running(self._suspicion())
            suspects = suspicion.after_failure(before, plan)
            if not suspicion.is_guilty(suspects, plan):
                self._running(self._committer.fail(plan, str(error), suspects))
                # What is wrong for a moment only has a moment to pass.
                query._stopping.wait(min(0.25 * 2**suspects.tries, 5.0) if plan.events == 1 else 0.0)
                return
            lane = plan.lanes[0]
            culprit = Failure(lane.partition_id, lane.start, "cycle", _reason(error), str(error)[:8000], suspects.tries)
            said = Report([reports.Mark(lane.partition_id, 1, 1, lane.high_us, 0)], [culprit], {})
            work = self._work(plan, [said], None, datetime.now(UTC), {})
            self._finish_cycle(plan, work, None)
        except Exception as second:
            self._end(second)

    async def _suspicion(self) -> suspicion.Suspicion | None:
        async with self._query._database.connection() as conn:
            row = await (
                await conn.execute("SELECT suspicion FROM penstock.queries WHERE id = %s", (self._id,))
            ).fetchone()
        return None if row is None or row[0] is None else suspicion.decode(row[0])

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._over.set()

    # The lease

    def _keep(self) -> None:
        """Hold the query while it is prepared and while a cycle runs; between cycles, whoever plans them does."""
        query = self._query
        while not self._let_go.wait(query._options.lease_seconds / 4):
            since = query._busy_since
            # Who plans the cycles is a process that Spark has yet to start.
            preparing = (
                self._over.is_set() or self._streaming is None or time.monotonic() - self._began < _STARTING_SECONDS
            )
            if not preparing and (since is None or time.monotonic() - since > _LONGEST_CYCLE_SECONDS):
                continue
            try:
                if not self._running(self._registry.keep(self._id, self._fence, query._options.lease_seconds)):
                    self._end(Refused(f"query {query.name!r} was taken over by another driver"))
            except Exception:
                _logger.debug("the lease could not be renewed", exc_info=True)

    # The end

    def _stop_streaming(self) -> None:
        """Between cycles only: Spark does not like to be stopped in the middle of one."""
        streaming, self._streaming = self._streaming, None
        if streaming is None:
            return
        self._over.set()
        with self._query._cycle:
            problem = None if streaming.isActive else streaming.exception()
        # Not while holding the lock: Spark waits for a cycle that has just begun, and that would wait for us.
        _await_lull(streaming)
        streaming.stop()
        if problem is not None and self._error is None and not self._query._stopping.is_set():
            self._error = _translated(problem)

    async def _flush(self) -> None:
        async with self._query._database.connection() as conn:
            params = {"query": self._id, "fence": self._fence}
            row = await (await conn.execute(_sql["begin_flush"], params)).fetchone()
        if row is None or self._committer is None:
            return
        work = self._work(CyclePlan(row[0], True, [], []), [], None, datetime.now(UTC), {})
        outcome = await self._committer.commit(replace(work, flush=True))
        self._query.status.windows += outcome.windows
        self._query.status.events_out += outcome.events_out


def _in_order(table: pa.Table) -> pa.Table:
    if "__partition" not in table.column_names:
        return table
    return table.sort_by([("__partition", "ascending"), ("__offset", "ascending")])


def _outputs(table: pa.Table) -> list[tuple[str | None, bytes]]:
    """The events for the sink; a table's rows are in the order of their partitions."""
    keys = table.column("__sink").to_pylist()
    whole = table.column(DATA).to_pylist() if DATA in table.column_names else None
    hidden = ("__partition", "__offset", "__sink", DATA)
    fields = [name for name in table.column_names if name not in hidden and not name.startswith(COST)]
    if whole is not None and not fields:
        return list(zip(keys, (line.encode() for line in whole), strict=True))
    rows = [plain(row) for row in table.select(fields).to_pylist()]
    if whole is not None:
        events = [json.decode(line) for line in whole]
        rows = [{**event, **row} if isinstance(event, dict) else event for event, row in zip(events, rows, strict=True)]
    return [(key, json.encode(row)) for key, row in zip(keys, rows, strict=True)]


def _key_name(stream: Definition, given: str | None) -> str | None:
    """A second name of the key in the views: the one that was given, or that of the field that it is."""
    taken = {"key", "window_start", "window_end", "updated_at", "is_open", "revision", "value", *stream.aggregates}
    if given is not None and given in taken:
        raise InvalidRequest(f"key_name={given!r} is a column of the views already; choose another")
    if given is not None:
        return given
    key = stream.key
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__") or key in taken:
        return None
    return key


def _shuffles(frame: DataFrame) -> bool:
    """Whether running the frame writes shuffle files, which Spark keeps with the plan."""
    text = str(frame._jdf.queryExecution().executedPlan().toString())
    return bool(re.search(r"(?<!Broadcast)Exchange\b", text))


def _await_lull(streaming: Any) -> None:
    """Wait, not for long, until Spark has written down the end of a cycle and asks for the next."""
    deadline = time.monotonic() + 2
    while streaming.isActive and time.monotonic() < deadline:
        said = streaming.status
        if not said["isTriggerActive"] or "offset" in said["message"].lower():
            return
        time.sleep(0.01)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:500] if text else type(error).__name__


def _reason(error: BaseException) -> str:
    return f"no cycle survives it: {_first_line(error)}"


def _translated(problem: BaseException) -> BaseException:
    text = str(problem)
    if "Fenced" in text:
        return Refused("the query was taken over by another driver")
    return SparkFailure(text)
