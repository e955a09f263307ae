"""Several queries in the foreground: until all have ended, or a signal ends them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Output
from penstock.core.formatting import number

if TYPE_CHECKING:
    from types import FrameType

    from rich.table import Table

    from penstock.engine.query import Query
    from penstock.engine.status import StatusReporter

_LOOK_SECONDS = 0.25


class Signals:
    """Whether somebody wants this to end. The second time that they say so, it ends at once."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {which: signal.signal(which, self._note) for which in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, which: int, frame: FrameType | None) -> None:
        self.wanted.set()
        self._restore()

    def _restore(self) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)
        self._before = {}


def run_together(starters: Sequence[Callable[[], Query]], out: Output, report_seconds: float) -> list[Query]:
    """Start queries one after the other, and wait for them. If one fails, the others are stopped and it is raised."""
    queries: list[Query] = []
    with Signals() as signals:
        try:
            for start in starters:
                if signals.wanted.is_set():
                    break
                with out.busy("Starting Spark" if not queries else "Starting"):
                    queries.append(start())
            with _Screen(queries, out, report_seconds) as screen:
                while not all([query.wait(0) for query in queries]):
                    if signals.wanted.wait(_LOOK_SECONDS):
                        break
                    screen.show()
        finally:
            _stop(queries)
    for query in queries:
        query.wait()
    return queries


def _stop(queries: Sequence[Query]) -> None:
    """Let each finish the cycle that it is in, all at the same time. What one ended with is told by its wait()."""

    def stop(query: Query) -> None:
        try:
            query.stop()
        except Exception:
            return

    if queries:
        with ThreadPoolExecutor(len(queries)) as pool:
            list(pool.map(stop, queries))


class _Screen:
    """What a person sees meanwhile: a table, on a terminal, and every so often a line for each query that stays."""

    def __init__(self, queries: Sequence[Query], out: Output, report_seconds: float) -> None:
        from penstock.engine.status import StatusReporter

        self._meters = {query: StatusReporter(query.status) for query in queries}
        self._out = out
        self._every = report_seconds
        self._reported = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> _Screen:
        if self._out.errors.is_terminal and not (self._out.quiet or self._out.json):
            from rich.live import Live

            self._live = Live(self._table(), console=self._out.errors, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def show(self) -> None:
        if self._live is not None:
            self._live.update(self._table())
        if self._every and time.monotonic() - self._reported >= self._every:
            self._reported = time.monotonic()
            for query, meter in self._meters.items():
                report(self._out, query, meter)

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table

        # Wide enough for 80 columns; where it is not, long names take two lines.
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
        table.add_column("query", overflow="fold")
        table.add_column("state", no_wrap=True)
        for name in ("events", "per\nsecond", "behind", "windows\nopen", "closed", "late", "dead\nletters"):
            table.add_column(name, justify="right", no_wrap=True)
        for query, meter in self._meters.items():
            status = query.status
            now = (status.events_in, round(meter.events_per_second), status.lag, status.open_windows)
            ended = (status.windows, status.late, status.dead)
            table.add_row(query.name, status.summary, *map(number, (*now, *ended)))
        return table


def facts_of(query: Query) -> dict[str, Any]:
    """What a query has done since it was started."""
    status = query.status
    names = (
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
    facts = {name: getattr(status, name) for name in names}
    return {"query": query.name, "state": status.summary, **facts, "error": status.error}


def report(out: Output, query: Query, meter: StatusReporter) -> None:
    """Say what a query has done: a line for people, or one of JSON."""
    if out.json:
        out.line({**facts_of(query), "per_second": round(meter.events_per_second, 1)})
    else:
        out.hint(f"{query.name}: {meter.format_line()}")
