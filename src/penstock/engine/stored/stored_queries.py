"""Runs the stored views: starts the query of each row of the table, and stops it when the row is deleted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from penstock.core.backoff import Backoff
from penstock.core.errors import GroupBusy, PenstockError
from penstock.core.event_loop import EventLoopThread
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.foreground import Report, stop_signal
from penstock.engine.query import Query, is_jvm_alive
from penstock.engine.query_registry import Registry
from penstock.engine.query_status import StatusReporter
from penstock.engine.spark.errors import error_summary
from penstock.engine.stored.stored_statements import (
    StoredStatement,
    list_stored_statements,
    mark_seen,
    set_error,
)
from penstock.log.log import Log

_logger = logging.getLogger("penstock.engine")

#: The table is read this often.
_POLL_SECONDS = 0.5
#: The rows are marked as seen this often.
_SEEN_SECONDS = 2.0
#: The pauses before a view that has failed is started again.
_RETRY = Backoff(2.0, 60.0)
#: Failures of the database that end with it.
_DATABASE_ERRORS = (PenstockError, psycopg.Error)


@dataclass(slots=True, eq=False)
class _View:
    """A stored view in this process."""

    statement: StoredStatement
    #: The start of the query, while it has not ended.
    starting: Future[Query] | None = None
    query: Query | None = None
    reporter: StatusReporter | None = None
    #: When to start the query, by the monotonic clock; None if it runs or was stopped.
    start_at: float | None = 0.0
    failures: int = 0
    #: The error of the last failure, to report another one only.
    error: str | None = None

    @property
    def is_idle(self) -> bool:
        return self.starting is None and self.query is None


class StoredQueries:
    """Runs all stored views in this process, each until its row is deleted.

    A view that fails is started again after a pause, and does not end the others. Several processes may run the same
    views: the lease of each query decides which of them computes it, and the others stand by.

    Args:
        settings: The database.
        start: Starts the query of a statement.
        notify: Called with a line for each view that starts or stops.
        report: Called with each query every ``report_seconds``, unless that is 0.
    """

    def __init__(
        self,
        settings: Settings,
        start: Callable[[StoredStatement], Query],
        notify: Callable[[str], None],
        report: Report,
        report_seconds: float,
    ) -> None:
        self._start_query = start
        self._notify = notify
        self._report = report
        self._report_seconds = report_seconds
        self._reported_at = time.monotonic()
        self._seen_at = 0.0
        self._event_loop = EventLoopThread("penstock stored statements")
        self._database = Database(settings)
        self._log = Log(self._database)
        #: By the ids of their rows.
        self._views: dict[int, _View] = {}
        #: One query starts at a time; others are stopped meanwhile.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="penstock start")

    def run(self) -> None:
        """Follow the table until a signal. Spark has to run already.

        Raises:
            SparkFailure: The JVM has ended, and this process cannot start another.
        """
        try:
            self._event_loop.run(self._log.open())
            with stop_signal(lambda: self._notify("Stopping after the current cycles.")) as stopped:
                try:
                    while not stopped.wait(_POLL_SECONDS):
                        self._follow()
                finally:
                    self._stop_all()
        finally:
            self._event_loop.run(self._log.close())
            self._event_loop.close()

    def _follow(self) -> None:
        try:
            rows = self._event_loop.run(list_stored_statements(self._database))
            if time.monotonic() - self._seen_at >= _SEEN_SECONDS or any(row.id not in self._views for row in rows):
                self._event_loop.run(mark_seen(self._database, rows))
                self._seen_at = time.monotonic()
        except _DATABASE_ERRORS as error:
            _logger.warning("the stored statements cannot be read: %s", error_summary(error))
            return  # the queries connect again by themselves
        wanted = {row.id for row in rows if not row.is_dropped}
        for row in rows:
            if row.id in wanted and row.id not in self._views:
                self._views[row.id] = _View(row)
        for view in list(self._views.values()):
            self._check(view)
            if view.statement.id not in wanted:
                self._stop(view)
            elif view.start_at is not None and view.start_at <= time.monotonic():
                view.start_at = None
                view.starting = self._starter.submit(self._start_query, view.statement)
        running = {view.statement.id for view in self._views.values()}
        for row in rows:
            if row.is_dropped and row.id not in running:
                self._delete(row)
        self._report_all()

    def _check(self, view: _View) -> None:
        """Note that the query of a view has started, or has ended."""
        name = view.statement.name
        try:
            if view.starting is not None and view.starting.done():
                starting, view.starting = view.starting, None
                view.query = starting.result()
                view.reporter = StatusReporter(view.query.status)
                view.error = None
                self._store_error(view)
                self._notify(f"{name}: started")
            if view.query is not None and view.query.wait(0):
                view.query = view.reporter = None
                self._notify(f"{name}: stopped")
        except Exception as error:
            if view.query is not None and view.query.status.cycles:
                view.failures = 0
            view.query = view.reporter = None
            if not is_jvm_alive():
                raise
            self._fail(view, error)

    def _fail(self, view: _View, error: Exception) -> None:
        message = str(error) if isinstance(error, PenstockError) else error_summary(error)
        view.failures += 1
        view.start_at = time.monotonic() + _RETRY.pause(view.failures)
        if message != view.error:
            view.error = message
            _logger.warning("the view %r has failed, and is tried again: %s", view.statement.name, message)
            _logger.debug("full error", exc_info=error)
        self._store_error(view)

    def _store_error(self, view: _View) -> None:
        with suppress(*_DATABASE_ERRORS):
            self._event_loop.run(set_error(self._database, view.statement, view.error))

    def _stop(self, view: _View) -> None:
        """Stop the query of a deleted row, and forget the view when it has ended."""
        view.start_at = None
        if view.starting is not None:
            view.starting.cancel()
            if view.starting.cancelled():
                view.starting = None
        if view.query is not None:
            view.query.ask_to_stop()
        if view.is_idle:
            del self._views[view.statement.id]

    def _delete(self, row: StoredStatement) -> None:
        """Delete a view with its result. The row stays until no other process runs the view."""
        try:
            self._event_loop.run(Registry(self._log).delete(row.name))
        except GroupBusy:
            return
        except _DATABASE_ERRORS as error:
            if row.error != str(error):
                _logger.warning("the view %r cannot be deleted: %s", row.name, error)
                with suppress(*_DATABASE_ERRORS):
                    self._event_loop.run(set_error(self._database, row, str(error)))
            return
        self._notify(f"{row.name}: deleted")

    def _report_all(self) -> None:
        if not self._report_seconds or time.monotonic() - self._reported_at < self._report_seconds:
            return
        self._reported_at = time.monotonic()
        for view in self._views.values():
            if view.query is not None and view.reporter is not None:
                self._report(view.query, view.reporter)

    def _stop_all(self) -> None:
        """Stop all queries at the same time, each after its current cycle."""
        self._starter.shutdown(cancel_futures=True)
        queries = self._running_queries()
        for query in queries:
            query.ask_to_stop()
        for query in queries:
            try:
                query.wait()
            except Exception as error:
                _logger.warning("the view %r has failed: %s", query.name, error_summary(error))

    def _running_queries(self) -> list[Query]:
        queries = []
        for view in self._views.values():
            if view.query is not None:
                queries.append(view.query)
            elif view.starting is not None and not view.starting.cancelled() and view.starting.exception() is None:
                queries.append(view.starting.result())
        return queries
