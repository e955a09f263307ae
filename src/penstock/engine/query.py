"""A query as it runs: waiting for its turn, driving, and starting again where something was lost."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import ClassVar
from uuid import uuid4

import psycopg
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from penstock.core.errors import Conflict, DatabaseUnavailable, InvalidRequest, PenstockError, Refused, SparkFailure
from penstock.core.settings import Settings
from penstock.core.tracing import send_spans, span_provider
from penstock.db.pool import Database
from penstock.db.retry import LOST
from penstock.engine import commands, status
from penstock.engine.compile.compile import split
from penstock.engine.cycle.cycle import small_plan
from penstock.engine.cycle.prepare import Assignment, NothingYet, Prepared, prepare
from penstock.engine.driver.cycle_source import CycleSource
from penstock.engine.driver.event_loop import Background
from penstock.engine.driver.loop import Drive, Wheel
from penstock.engine.gates.validation import check_queues
from penstock.engine.options import RunOptions
from penstock.engine.registry import Registered, Registry
from penstock.engine.spark.errors import first_line
from penstock.engine.spark.session import session_beside, spark_session
from penstock.engine.status import Status
from penstock.engine.worker.task import label_job
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint, in_order_of
from penstock.stream.sink_binding import sinks_running

_logger = logging.getLogger("penstock.engine")

_STANDBY_SECONDS = 0.25
#: How often a driver looks what is wanted of it.
_WATCH_SECONDS = 0.5
#: A query that fails so often in a row, without one cycle of Spark's in between, gives up.
_MOST_FAILURES = 20
#: Between two starts: every start costs processes, and a machine that is too busy for them must not get more of them.
#: When the database was lost, nothing is too busy: it may be back any moment.
_LONGEST_PAUSE, _PAUSE_WITHOUT_DATABASE = 30.0, 5.0
#: A query that has ended waits no longer for somebody to take its last spans.
_LAST_SPANS_SECONDS = 5.0


class Query:
    """A stream that runs under a name. ``stop`` ends it after the cycle that it is in; ``wait`` waits for its end."""

    #: How many this process has started.
    started: ClassVar[int] = 0

    def __init__(self, stream: Definition, name: str, settings: Settings, options: RunOptions) -> None:
        stream.check()
        if settings.tracing:
            span_provider()  # what it lacks is said before Spark starts
        self.name = name
        self._wheel = Wheel()
        self._stream = stream
        split(stream)  # what cannot be run is refused here
        self._settings = settings
        self._options = options
        self._background = Background(f"penstock {name}")
        self._database = Database(settings)
        self._log = Log(self._database)
        self._ended = threading.Event()
        self._flush = options.flush
        self._problem: BaseException | None = None
        self._id: int | None = None
        self._watchers: list[Future[None]] = []
        self._thread = threading.Thread(target=self._main, name=f"penstock query {name}", daemon=True)

    # For who runs it

    @property
    def status(self) -> Status:
        """What it has done since it was started, and where it is."""
        return self._wheel.status

    def start(self) -> Query:
        """Begin; returns when the query runs, or waits as a standby, or raises what stopped it."""
        Query.started += 1
        self._thread.start()
        self._wheel.started.wait()
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
        self._wheel.stopping.set()

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
            self._problem = _explained(error)
            self.status.error = str(self._problem)
        finally:
            self.status.state = "stopped"
            self.status.stopped_at = time.monotonic()
            for watcher in self._watchers:
                watcher.cancel()
            try:
                if self._id is not None:
                    self._background.run(status.look(self._database, self._id, self.status))
                self._background.run(self._log.close())
                if self._settings.tracing:
                    send_spans(_LAST_SPANS_SECONDS)
            except Exception:
                _logger.debug("closing failed", exc_info=True)
            self._background.close()
            self._ended.set()
            self._wheel.started.set()

    def _live(self) -> None:
        run = self._background.run
        registry = Registry(self._log)
        self._sinks()  # what is no sink is told before Spark starts
        for queue in self._stream.sources:
            run(self._log.catalog.refresh(queue))
        run(check_queues(self._log, self._stream))
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
        stream = in_order_of(self._stream, query.description, query.columns)
        looks = status.keep_looking(self._database, query.id, self.status)
        self._watchers = [self._background.begin(task) for task in (self._watch(query), looks)]
        if self._stream.sink is not None:
            run(self._make_sink(self._stream.sink))
        options = self._options
        shared = spark_session(app_name=f"penstock {self.name}", master=options.master, conf=options.spark_conf)
        # Views and settings of its own, in one Spark with the others.
        spark = session_beside(shared)
        spark.dataSource.register(CycleSource)
        assignment = Assignment(
            query.id, self.name, stream, split(stream), options, self._log, registry, spark, self._background.run
        )
        try:
            self._drive_in_turns(assignment, query)
        except InvalidRequest:
            if query.is_new and run(registry.never_ran(query.id)):
                # The id is free for the stream as it will be.
                run(registry.delete(self.name))
            raise

    def _drive_in_turns(self, assignment: Assignment, query: Registered) -> None:
        """Wait for the query to be free, drive it, and wait again if it was lost; until it is to end."""
        failures = 0
        while not self._wheel.stopping.is_set():
            fence, warm = self._take(assignment, query)
            if fence is None:
                return
            drive = Drive(assignment, self._wheel, fence)
            try:
                # Only while it is ours: a stand-by's sinks would take a part of what the driver's are to write.
                with self._sinks():
                    drive.until_it_ends(warm)
                    if self._wheel.stopping.is_set() or self._options.available_now:
                        drive.finish(self._flush)
                        return
            except (*LOST, Refused, SparkFailure, DatabaseUnavailable) as error:
                # Nothing is lost: whoever takes the query next goes on where the last commit was.
                failures = 1 if drive.has_run else failures + 1
                self.status.error = first_line(error)
                if self._flush and self._wheel.stopping.is_set():
                    raise Conflict(
                        f"query {self.name!r} has stopped with its windows open, because it was lost: "
                        f"{self.status.error}. Nothing is lost: start it again, and stop it with flush=True once more"
                    ) from error
                _logger.warning("query %r is started again: %s", self.name, self.status.error)
                _logger.debug("the whole of it", exc_info=True)
                if failures > _MOST_FAILURES and isinstance(error, SparkFailure):
                    raise SparkFailure(
                        f"the query was started {failures} times in a row and came to nothing; the last time: "
                        f"{self.status.error}. Nothing is lost: mend that and start it again"
                    ) from error
                if failures > _MOST_FAILURES:
                    raise
                drive.close()
                longest = _LONGEST_PAUSE if isinstance(error, SparkFailure) else _PAUSE_WITHOUT_DATABASE
                self._wheel.stopping.wait(min(0.5 * 2**failures, longest))
            finally:
                drive.close()

    def _sinks(self) -> AbstractContextManager[None]:
        return sinks_running(self._stream, self._settings) if self._options.sinks else nullcontext()

    async def _make_sink(self, name: str) -> None:
        if await self._log.catalog.find(name) is None:
            if self._stream.gates:
                # Lanes stay lanes: for another gate, and for what is counted by key.
                await self._log.configure(name, partitioning="key", only_new=False)
            else:
                await self._log.configure(name, partitioning="hash", partitions=8, only_new=False)

    async def _watch(self, query: Registered) -> None:
        """Do what people ask of the query from elsewhere."""
        while not self._wheel.stopping.is_set():
            try:
                asked = await commands.wanted(self._database, query.id, query.at)
            except (PenstockError, psycopg.Error):
                asked = None
            if asked is not None and asked.stopped:
                _logger.info("query %r was asked to stop", self.name)
                self._wheel.stopping.set()
            elif asked is not None and asked.paused != self.status.paused:
                _logger.info("query %r %s", self.name, "is paused" if asked.paused else "goes on")
                self.status.paused = asked.paused
            await asyncio.sleep(_WATCH_SECONDS)

    def _take(self, assignment: Assignment, query: Registered) -> tuple[int | None, Prepared | None]:
        """Wait until the query is free, as a standby: a fencing number, and what was prepared meanwhile."""
        driver = f"{socket.gethostname()}:{os.getpid()}"
        lease = self._options.lease_seconds
        warm: Prepared | None = None
        while not self._wheel.stopping.is_set():
            try:
                fence = assignment.run(assignment.registry.take(self.name, driver, lease, query.at))
            except (PenstockError, psycopg.Error):
                fence = None
            if fence is not None:
                return fence, warm
            if self.status.state != "standby":
                _logger.info("query %r is run by another driver; this one stands by", self.name)
                self.status.state = "warming up"
                self._wheel.started.set()
                warm = _warmed_up(assignment, self._wheel.stopping)
                self.status.state = "standby"
                continue
            self._wheel.stopping.wait(_STANDBY_SECONDS)
        if warm is not None:
            warm.close()
        return None, None


def _explained(problem: BaseException) -> BaseException:
    """What ended the query, in words of ours where it was the JVM that is gone."""
    if isinstance(problem, Py4JJavaError) or not isinstance(problem, Py4JError | ConnectionError):
        return problem
    explained = SparkFailure(
        "the JVM that Spark runs in has ended, and so does its driver. Nothing is lost: start it again, or let a "
        "standby go on from the last commit"
    )
    explained.__cause__ = problem
    return explained


def _warmed_up(assignment: Assignment, stopping: threading.Event) -> Prepared | None:
    """All that takes the first cycle so long, done without events, so that a standby follows within seconds."""
    try:
        with _cancelled_by(stopping, assignment.spark.sparkContext):
            known = assignment.run(assignment.registry.fields(assignment.id))
            warm = prepare(assignment, known, None)
            label_job(assignment.spark, None)
            small_plan(warm).toArrow()
            return warm
    except NothingYet:
        return None
    except Exception:
        _logger.debug("warming up failed", exc_info=True)
        return None


@contextmanager
def _cancelled_by(stopping: threading.Event, context: SparkContext) -> Iterator[None]:
    """What Spark runs in the block is given up when the query is to stop: a cluster may be full and never begin it."""
    tag, over = f"penstock-{uuid4().hex}", threading.Event()

    def watch() -> None:
        while not over.wait(_STANDBY_SECONDS):
            if stopping.is_set():
                with suppress(Py4JError, ConnectionError):  # no JVM, no job
                    context.cancelJobsWithTag(tag)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    context.addJobTag(tag)
    try:
        yield
    finally:
        over.set()
        watcher.join()
        context.removeJobTag(tag)
