"""Runs queries in the foreground until they end or a signal stops them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.core.formatting import number
from penstock.engine.query_status import StatusReporter

if TYPE_CHECKING:
    from types import FrameType

    from penstock.engine.query import Query

_POLL_SECONDS = 0.25

#: Prints the status of a query.
Report: TypeAlias = "Callable[[Query, StatusReporter], None]"


def run_until_stopped(query: Query) -> Query:
    """Run a query, with its status on standard error. A signal ends it after its start or current cycle."""
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)

    def report(query: Query, reporter: StatusReporter) -> None:
        if console.is_terminal or query.report_seconds:
            moment = time.strftime("%H:%M:%S")
            console.print(f"{moment} {query.name}: {reporter.format_line()}", soft_wrap=True)

    run_queries([query.start], report, query.report_seconds, console if console.is_terminal else None)
    return query


def run_queries(
    starters: Sequence[Callable[[], Query]], report: Report, report_seconds: float, console: Console | None
) -> None:
    """Start queries one after the other, wait for all, and report their final status.

    ``console`` shows a table of all, if given; ``report`` is called every ``report_seconds``. If one fails, stop the
    others and raise its error.
    """
    reporters: dict[Query, StatusReporter] = {}

    def announce_stop() -> None:
        if console is not None and len(reporters) < len(starters):
            console.print("Stopping as soon as Spark has started. A second Ctrl-C ends it at once.", style="dim")

    with stop_signal(announce_stop) as stopped:
        try:
            for start in starters:
                if stopped.is_set():
                    break
                query = start()
                reporters[query] = StatusReporter(query.status)
            live = None if console is None else Live(console=console, auto_refresh=False, transient=True)
            reported_at = time.monotonic()
            with live or nullcontext():
                while not all([query.wait(0) for query in reporters]) and not stopped.wait(_POLL_SECONDS):
                    if live is not None:
                        live.update(_status_table(reporters), refresh=True)
                    if report_seconds and time.monotonic() - reported_at >= report_seconds:
                        reported_at = time.monotonic()
                        for query, reporter in reporters.items():
                            report(query, reporter)
        finally:
            _stop(list(reporters))
    for query in reporters:
        query.wait()
    for query, reporter in reporters.items():
        report(query, reporter)


@contextmanager
def stop_signal(on_signal: Callable[[], None]) -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT, SIGTERM or SIGHUP sets. The second one has its usual effect."""
    received = threading.Event()
    previous_handlers: dict[int, Any] = {}

    def handle(signum: int, frame: FrameType | None) -> None:
        received.set()
        restore()
        on_signal()

    def restore() -> None:
        while previous_handlers:
            signal.signal(*previous_handlers.popitem())

    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup ignores it
                previous_handlers[signum] = signal.signal(signum, handle)
    try:
        yield received
    finally:
        restore()


def _stop(queries: Sequence[Query]) -> None:
    """Stop all queries at the same time, each after its current cycle. ``Query.wait`` raises their errors."""

    def stop(query: Query) -> None:
        with suppress(Exception):
            query.stop()

    if queries:
        with ThreadPoolExecutor(len(queries)) as pool:
            list(pool.map(stop, queries))


def _status_table(reporters: dict[Query, StatusReporter]) -> Table:
    # The table fits 80 columns; in narrower terminals, long names take two lines.
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("query", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("events", "per\nsecond", "behind", "windows\nopen", "closed", "late", "dead\nletters"):
        table.add_column(name, justify="right", no_wrap=True)
    for query, reporter in reporters.items():
        status = query.status
        rate = round(reporter.events_per_second)
        counts = (status.events_in, rate, status.lag, status.open_windows, status.windows, status.late, status.dead)
        table.add_row(query.name, status.summary, *map(number, counts))
    return table
