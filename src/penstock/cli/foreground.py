"""Runs queries in the foreground until they end or a signal stops them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Output
from penstock.core.errors import QueryChanged
from penstock.core.formatting import number

if TYPE_CHECKING:
    from types import FrameType

    from rich.table import Table

    from penstock.engine.query import Query
    from penstock.engine.status import StatusReporter

_POLL_SECONDS = 0.25

_COUNTERS = (
    "events_in",
    "events_out",
    "lag",
    "open_windows",
    "windows",
    "late",
    "dead",
    "dropped",
    "cycles",
    "failed_cycles",
)


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets. The second one has its usual effect."""
    received = threading.Event()
    previous_handlers: dict[int, Any] = {}

    def handle(signum: int, frame: FrameType | None) -> None:
        received.set()
        restore()

    def restore() -> None:
        while previous_handlers:
            signal.signal(*previous_handlers.popitem())

    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):
            previous_handlers[signum] = signal.signal(signum, handle)
    try:
        yield received
    finally:
        restore()


def run_queries(starters: Sequence[Callable[[], Query]], out: Output, report_seconds: float) -> None:
    """Start queries one after the other, wait for all, and print their final status.

    If one fails, stop the others and raise its error.
    """
    from penstock.engine.status import StatusReporter

    queries: list[Query] = []
    with stop_signal() as stopped:
        try:
            for start in starters:
                if stopped.is_set():
                    break
                with out.spinner("Starting Spark" if not queries else "Starting"):
                    queries.append(_start(start))
            with QueryDisplay(queries, out, report_seconds) as display:
                while not all([query.wait(0) for query in queries]):
                    if stopped.wait(_POLL_SECONDS):
                        break
                    display.update()
        finally:
            _stop(queries)
    for query in queries:
        query.wait()
    for query in queries:
        print_status(out, query, StatusReporter(query.status))


def _start(start: Callable[[], Query]) -> Query:
    try:
        return start()
    except QueryChanged as error:
        raise QueryChanged(
            error.name,
            error.changes,
            "Run it with --reset to start over, or give the new stream another query id "
            "(with --from it can read from another position)",
        ) from None


def _stop(queries: Sequence[Query]) -> None:
    """Stop all queries at the same time, each after its current cycle. ``Query.wait`` raises their errors."""

    def stop(query: Query) -> None:
        try:
            query.stop()
        except Exception:
            return

    if queries:
        with ThreadPoolExecutor(len(queries)) as pool:
            list(pool.map(stop, queries))


class QueryDisplay:
    """The progress of running queries: a live table on a terminal, and a status line every ``report_seconds``."""

    def __init__(self, queries: Sequence[Query], out: Output, report_seconds: float) -> None:
        from penstock.engine.status import StatusReporter

        self._reporters = {query: StatusReporter(query.status) for query in queries}
        self._out = out
        self._report_seconds = report_seconds
        self._reported_at = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> QueryDisplay:
        if self._out.errors.is_terminal and not (self._out.quiet or self._out.json):
            from rich.live import Live

            self._live = Live(self._table(), console=self._out.errors, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def update(self) -> None:
        if self._live is not None:
            self._live.update(self._table())
        if self._report_seconds and time.monotonic() - self._reported_at >= self._report_seconds:
            self._reported_at = time.monotonic()
            for query, reporter in self._reporters.items():
                print_status(self._out, query, reporter)

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table

        # The table fits 80 columns; in narrower terminals, long names take two lines.
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
        table.add_column("query", overflow="fold")
        table.add_column("state", no_wrap=True)
        for name in ("events", "per\nsecond", "behind", "windows\nopen", "closed", "late", "dead\nletters"):
            table.add_column(name, justify="right", no_wrap=True)
        for query, reporter in self._reporters.items():
            status = query.status
            counts = (
                status.events_in,
                round(reporter.events_per_second),
                status.lag,
                status.open_windows,
                status.windows,
                status.late,
                status.dead,
            )
            table.add_row(query.name, status.summary, *map(number, counts))
        return table


def print_status(out: Output, query: Query, reporter: StatusReporter) -> None:
    """Print the counters of a query since its start, as one line of text or JSON."""
    if not out.json:
        out.hint(f"{query.name}: {reporter.format_line()}")
        return
    status = query.status
    out.line(
        {
            "query": query.name,
            "state": status.summary,
            **{name: getattr(status, name) for name in _COUNTERS},
            "error": status.error,
            "per_second": round(reporter.events_per_second, 1),
        }
    )
