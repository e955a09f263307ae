"""A running query: waits for its lease, runs cycles, and starts again after a failure."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import ClassVar
from uuid import uuid4

import psycopg
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.core.backoff import Backoff
from penstock.core.errors import (
    Conflict,
    DatabaseUnavailable,
    InvalidRequest,
    LeaseLost,
    PenstockError,
    PlanningFailed,
    QueryReplaced,
    SparkFailure,
)
from penstock.core.event_loop import EventLoopClosed, EventLoopThread
from penstock.core.formatting import counted
from penstock.core.settings import Settings
from penstock.core.tracing import flush_spans, get_tracer_provider
from penstock.db.pool import Database
from penstock.db.retry import CONNECTION_ERRORS
from penstock.engine import query_commands, query_status
from penstock.engine.compile.split_stream import split_stream
from penstock.engine.cycle.cycle_result import QueryContext
from penstock.engine.cycle.cycle_runner import build_small_job
from penstock.engine.cycle.query_setup import NoSampleEvents, PreparedQuery, prepare_query
from penstock.engine.driver.loop import CycleLoop, RunState
from penstock.engine.gates.gate_rules import check_gate_queues
from penstock.engine.query_registry import RegisteredQuery, Registry, rebuild_line
from penstock.engine.query_status import Status
from penstock.engine.rebuild.lease_keeper import driver_name
from penstock.engine.rebuild.stored_view import find_view
from penstock.engine.rebuild.view_rebuild import RebuildContext, ViewRebuild, change_in_place, view_definition
from penstock.engine.results.result_reader import QueryRows, RowRequest, read_page, read_rows
from penstock.engine.run_options import RunOptions
from penstock.engine.source_views import check_source_views, resolve_views
from penstock.engine.spark.errors import error_summary
from penstock.engine.spark.functions import register_functions
from penstock.engine.spark.spark_session import new_session, spark_session
from penstock.engine.worker.spark_task import set_cycle_job
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint, with_stored_order
from penstock.stream.sinks import run_stream_sinks

_logger = logging.getLogger("penstock.engine")

#: A standby tries to take the lease this often.
_STANDBY_SECONDS = 0.25
#: Pause and stop commands are looked up this often.
_COMMAND_SECONDS = 0.5
#: A query that is stopped with a flush after a failure tries for this long, beyond its lease, to flush.
_FLUSH_SECONDS = 30.0
#: A query that ends waits this long for its last spans to be sent.
_SEND_SPANS_SECONDS = 5.0
#: Failures after which the query starts again from its last commit.
_RESTART_ON = (*CONNECTION_ERRORS, LeaseLost, SparkFailure, PlanningFailed, DatabaseUnavailable)


class Query:
    """A stream that runs under a name.

    ::

        query = stream.start("orders_5s")
        query.wait(60)  # raises the error that ended it, if any
        query.stop(flush=True)
    """

    #: How many queries this process has started.
    started: ClassVar[int] = 0
    #: A query gives up after so many restarts in a row without progress.
    max_restarts: ClassVar[int] = 20
    #: The pauses between restarts: a restart costs processes, which a busy machine may lack.
    restart_backoff: ClassVar[Backoff] = Backoff(1.0, 30.0)
    #: The same after the database was lost, which may be back any moment.
    reconnect_backoff: ClassVar[Backoff] = Backoff(1.0, 5.0)

    def __init__(
        self,
        stream: Definition,
        name: str,
        settings: Settings,
        options: RunOptions,
        *,
        rebuild_of: str | None = None,
    ) -> None:
        stream.check()
        if settings.tracing:
            get_tracer_provider()  # raises before Spark starts if OpenTelemetry is missing
        self.name = name
        self._state = RunState()
        self._stream = stream
        split_stream(stream)  # raises if the stream cannot run
        self._settings = settings
        self._options = options
        #: The view of which this query computes a new version.
        self._rebuild_of = rebuild_of
        self._event_loop = EventLoopThread(f"penstock {name}")
        self._database = Database(settings)
        self._log = Log(self._database)
        self._ended = threading.Event()
        self._flush = options.flush
        self._flush_seconds = _FLUSH_SECONDS
        self._flush_deadline: float | None = None
        self._error: BaseException | None = None
        self._id: int | None = None
        self._watchers: list[Future[None]] = []
        self._thread = threading.Thread(target=self._main, name=f"penstock query {name}", daemon=True)

    @property
    def status(self) -> Status:
        """Counts since the start, and the current state."""
        return self._state.status

    def start(self) -> Query:
        """Start the query. Returns when it runs or stands by; raises the error that stopped it."""
        Query.started += 1
        self._thread.start()
        self._state.started.wait()
        if self._ended.is_set() and self._error is not None:
            raise self._error
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended; raises the error that ended it. Returns False after a timeout."""
        if not self._ended.wait(timeout):
            return False
        self._thread.join()
        if self._error is not None:
            raise self._error
        return True

    def stop(self, *, flush: bool = False, flush_seconds: float = _FLUSH_SECONDS) -> None:
        """End the query after its current cycle; with ``flush``, close and emit all open windows.

        If a cycle has failed, the query takes its lease again to flush. It raises Conflict if it cannot for
        ``flush_seconds`` and the time of the lease.
        """
        self._flush = self._flush or flush
        self._flush_seconds = flush_seconds
        self.ask_to_stop()
        self.wait()

    def ask_to_stop(self) -> None:
        """Let the query end after its current cycle, without waiting for that."""
        self._state.stopping.set()

    def rows(self, *, key: str | None = None, current: bool = False) -> QueryRows:
        """Return the open windows, as ``penstock_live`` has them; with ``current``, the current one of each key.

        Works after the query has ended, too. ``Penstock.history`` returns closed windows.
        """
        request = RowRequest(self.name, "current" if current else "live", key)
        with suppress(EventLoopClosed):
            return self._event_loop.run(read_rows(partial(read_page, self._database), request))
        loop = EventLoopThread(f"penstock rows of {self.name}")
        try:
            return loop.run(_read_rows(self._settings, request))
        finally:
            loop.close()

    @property
    def is_running(self) -> bool:
        """Whether the query has not ended."""
        return not self._ended.is_set()

    @property
    def report_seconds(self) -> float:
        """The seconds between two progress reports in the foreground; 0 for none."""
        return self._options.report_seconds

    def _main(self) -> None:
        try:
            self._event_loop.run(self._log.open())
            self._run()
        except BaseException as error:
            self._error = _explain(error)
            self.status.error = str(self._error)
        finally:
            self.status.state = "stopped"
            self.status.stopped_at = time.monotonic()
            for watcher in self._watchers:
                watcher.cancel()
            try:
                if self._id is not None:
                    self._event_loop.run(query_status.refresh_backlog(self._database, self._id, self.status))
                self._event_loop.run(self._log.close())
                if self._settings.tracing:
                    flush_spans(_SEND_SPANS_SECONDS)
            except Exception:
                _logger.debug("closing failed", exc_info=True)
            self._event_loop.close()
            self._ended.set()
            self._state.started.set()

    def _run(self) -> None:
        run = self._event_loop.run
        registry = Registry(self._log)
        self._running_sinks()  # raises before Spark starts if a sink is none
        self._stream = run(resolve_views(self._log, registry, self._stream, self.name))
        for queue in self._stream.sources:
            run(self._log.catalog.check_exists(queue))
        run(check_gate_queues(self._log, self._stream))
        if self._options.reset:
            run(registry.delete(self.name, starts_over=True))
        if self._options.rebuild and self._stream.view is not None:
            self._rebuild_view(registry)
            if self._state.stopping.is_set():
                return
        run(check_source_views(registry, self._stream, self.name))
        query = self._register(registry)
        self._id = query.id
        stream = with_stored_order(self._stream, query.description, query.columns)
        backlog = query_status.poll_backlog(self._database, query.id, self.status)
        self._watchers = [self._event_loop.submit(task) for task in (self._obey_commands(query.id, query.at), backlog)]
        if self._stream.sink is not None:
            run(self._create_sink_queue(self._stream.sink))
        spark = self._new_spark_session()
        context = QueryContext(
            query.id,
            self.name,
            stream,
            split_stream(stream),
            self._options,
            self._log,
            registry,
            spark,
            run,
            is_rebuild=self._rebuild_of is not None,
        )
        try:
            register_functions(spark, stream.functions.values())
            self._run_until_stopped(context, query)
        except InvalidRequest:
            if query.is_new and run(registry.has_no_cycles(query.id)):
                # Free the name for the corrected stream.
                run(registry.delete(self.name, starts_over=True))
            raise

    def _new_spark_session(self) -> SparkSession:
        """Return a session of its own, which has its own views and settings in the shared Spark."""
        options = self._options
        shared = spark_session(app_name=f"penstock {self.name}", master=options.master, conf=options.spark_conf)
        return new_session(shared)

    def _register(self, registry: Registry) -> RegisteredQuery:
        lines = describe(self._stream)
        if self._rebuild_of is not None:
            lines = [rebuild_line(self._rebuild_of), *lines]
        registered = registry.register(
            self.name,
            lines,
            fingerprint(lines),
            sink=self._stream.sink,
            history_seconds=self._options.history_retention_seconds,
        )
        return self._event_loop.run(registered)

    def _rebuild_view(self, registry: Registry) -> None:
        """Switch the view to a new version, if its definition has changed. Returns early if the query is to stop."""

        def start_pass(stream: Definition, name: str) -> Query:
            options = replace(
                self._options, rebuild=False, available_now=True, flush=False, sinks=False, report_seconds=0.0
            )
            return Query(stream, name, self._settings, options, rebuild_of=self.name).start()

        def show_progress(status: Status) -> None:
            self.status.state, self.status.events_in, self.status.lag = "rebuilding", status.events_in, status.lag
            self._state.started.set()

        run = self._event_loop.run
        stored = run(find_view(self._log, self.name))
        if stored is None:
            return
        spark = self._new_spark_session()
        context = RebuildContext(
            self._log,
            registry,
            spark,
            self._options,
            self._event_loop,
            start_pass,
            self._state.stopping,
            show_progress,
        )
        watcher = self._event_loop.submit(self._obey_commands(stored.id, stored.now))
        try:
            ViewRebuild(context, self._stream, self.name).run()
        finally:
            watcher.cancel()
            self.status.events_in, self.status.lag = 0, None

    def _change_definition(self, context: QueryContext, query: RegisteredQuery, fence: int) -> RegisteredQuery:
        """Store a definition with which the view keeps its state."""
        options = self._options
        definition = view_definition(self.name, self._stream, options.history_retention_seconds)
        log, registry, spark = context.log, context.registry, context.spark
        context.run(change_in_place(log, registry, spark, definition, fence, options.lease_seconds))
        _logger.info("the view %r has its new definition, and keeps its state", self.name)
        return replace(query, fingerprint=definition.fingerprint, is_changed=False)

    def _run_until_stopped(self, context: QueryContext, query: RegisteredQuery) -> None:
        """Take the lease, run cycles, and start again after a failure, until the query is to end."""
        restarts, failed_fence = 0, None
        while True:
            try:
                fence, warm = self._take_lease(context, query)
            except QueryReplaced:
                if not query.is_changed:
                    raise
                # Another driver may have stored the definition of this one.
                query = self._register(context.registry)
                if query.id != context.id:
                    raise
                continue
            if fence is None and failed_fence is not None and self._flush:
                fence = self._take_lease_to_flush(context, query, failed_fence)
            if fence is None:
                return
            loop, is_finished = CycleLoop(context, self._state, fence), False
            try:
                if query.is_changed:
                    query = self._change_definition(context, query, fence)
                # Sinks run only with the lease: those of a standby would take part of the driver's events.
                with self._running_sinks():
                    loop.run(warm)
                    if self._state.stopping.is_set() or self._options.available_now:
                        loop.finish(self._flush)
                        is_finished = True
                        return
            except _RESTART_ON as error:
                # The next driver continues from the last commit, so nothing is lost.
                restarts = 1 if loop.made_progress else restarts + 1
                failed_fence = fence
                self._check_restart(error, restarts)
                loop.close()
                backoff = self.restart_backoff if isinstance(error, SparkFailure) else self.reconnect_backoff
                self._state.stopping.wait(backoff.pause(restarts))
            finally:
                loop.close(stopped=is_finished)

    def _check_restart(self, error: BaseException, restarts: int) -> None:
        """Raise if the query is not to start again after an error."""
        self.status.error = error_summary(error)
        _logger.warning("query %r starts again: %s", self.name, self.status.error)
        _logger.debug("full error", exc_info=error)
        if restarts <= self.max_restarts:
            return
        if isinstance(error, SparkFailure):
            raise SparkFailure(
                f"the query was started {counted(restarts, 'time')} in a row without progress; the last error: "
                f"{self.status.error}. Nothing is lost: fix the cause and start the query again"
            ) from error
        if self._flush and self._state.stopping.is_set():
            raise self._windows_left_open() from error
        raise error

    def _windows_left_open(self) -> Conflict:
        return Conflict(
            f"query {self.name!r} stopped with open windows, because it failed: {self.status.error}. "
            "Nothing is lost: start it again, and stop it with flush=True once more"
        )

    def _running_sinks(self) -> AbstractContextManager[None]:
        return run_stream_sinks(self._stream, self._settings) if self._options.sinks else nullcontext()

    async def _create_sink_queue(self, name: str) -> None:
        if await self._log.catalog.find(name) is None:
            if self._stream.gates:
                # A partition per key, for further gates and for counts by key.
                await self._log.configure(name, partitioning="key", only_new=False)
            else:
                await self._log.configure(name, partitioning="hash", partitions=8, only_new=False)

    async def _obey_commands(self, query: int, since: datetime) -> None:
        """Pause, resume and stop as commands from other processes demand."""
        while not self._state.stopping.is_set():
            try:
                command = await query_commands.read_commands(self._database, query, since)
            except (PenstockError, psycopg.Error):
                command = None
            if command is not None and command.stopped:
                _logger.info("query %r was asked to stop", self.name)
                self._state.stopping.set()
            elif command is not None and command.paused != self.status.paused:
                _logger.info("query %r is %s", self.name, "paused" if command.paused else "resumed")
                self.status.paused = command.paused
            await asyncio.sleep(_COMMAND_SECONDS)

    def _take_lease(self, context: QueryContext, query: RegisteredQuery) -> tuple[int | None, PreparedQuery | None]:
        """Wait as a standby until the lease is free. Returns a fencing number and what was prepared meanwhile."""
        driver = driver_name()
        warm: PreparedQuery | None = None
        while not self._state.stopping.is_set():
            try:
                fence = context.run(context.registry.acquire_lease(query, driver, self._options.lease_seconds))
            except QueryReplaced:
                if warm is not None:
                    warm.close()
                raise
            except (PenstockError, psycopg.Error):
                fence = None
            if fence is not None:
                return fence, warm
            if self.status.state != "standby":
                _logger.info("query %r is run by another driver; this one stands by", self.name)
                self.status.state = "warming up"
                self._state.started.set()
                warm = _warm_up(context, self._state.stopping)
                self.status.state = "standby"
                continue
            self._state.stopping.wait(_STANDBY_SECONDS)
        if warm is not None:
            warm.close()
        return None, None

    def _take_lease_to_flush(self, context: QueryContext, query: RegisteredQuery, failed_fence: int) -> int | None:
        """Take the lease again after a failure, to close the open windows before the query ends.

        Returns a fencing number; None if another driver has taken the query over. Raises Conflict after a timeout.
        """
        if self._flush_deadline is None:
            self._flush_deadline = time.monotonic() + self._options.lease_seconds + self._flush_seconds
        driver = driver_name()
        while time.monotonic() < self._flush_deadline:
            try:
                fence = context.run(context.registry.acquire_lease(query, driver, self._options.lease_seconds))
                if fence is not None:
                    return fence
                if (context.run(context.registry.current_fence(query.id)) or 0) > failed_fence:
                    return None
            except QueryReplaced:
                raise
            except (PenstockError, psycopg.Error) as error:
                self.status.error = error_summary(error)
            time.sleep(_STANDBY_SECONDS)
        raise self._windows_left_open()


async def _read_rows(settings: Settings, request: RowRequest) -> QueryRows:
    async with Database(settings) as database:
        return await read_rows(partial(read_page, database), request)


def _explain(error: BaseException) -> BaseException:
    """Replace the network error that a dead JVM causes."""
    if isinstance(error, Py4JJavaError) or not isinstance(error, Py4JError | ConnectionError) or is_jvm_alive():
        return error
    explained = SparkFailure(
        "the JVM that Spark runs in has ended. Nothing is lost: start the query again, or let a standby continue "
        "from the last commit"
    )
    explained.__cause__ = error
    return explained


def is_jvm_alive() -> bool:
    """Return whether Spark runs in this process."""
    context = SparkContext._active_spark_context
    if context is None:
        return False
    try:
        context._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]  # set while the context is active
    except (Py4JError, ConnectionError):
        return False
    return True


def _warm_up(context: QueryContext, stopping: threading.Event) -> PreparedQuery | None:
    """Prepare a standby and run a job without events, so that it takes over within seconds."""
    try:
        with _cancel_jobs_on(stopping, context.spark.sparkContext):
            known = context.run(context.registry.field_types(context.id))
            warm = prepare_query(context, known, None)
            set_cycle_job(context.spark, None)
            build_small_job(warm).toArrow()
            return warm
    except NoSampleEvents:
        return None
    except Exception:
        _logger.debug("warming up failed", exc_info=True)
        return None


@contextmanager
def _cancel_jobs_on(stopping: threading.Event, context: SparkContext) -> Iterator[None]:
    """Cancel the Spark jobs of the block when the query is to stop: a busy cluster may never start them."""
    tag, done = f"penstock-{uuid4().hex}", threading.Event()

    def watch() -> None:
        while not done.wait(_STANDBY_SECONDS):
            if stopping.is_set():
                with suppress(Py4JError, ConnectionError):  # without a JVM there are no jobs
                    context.cancelJobsWithTag(tag)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    context.addJobTag(tag)
    try:
        yield
    finally:
        done.set()
        watcher.join()
        context.removeJobTag(tag)
