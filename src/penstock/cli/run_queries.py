"""Queries in the foreground of a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli.output import Output
from penstock.core.errors import QueryChanged

if TYPE_CHECKING:
    from penstock.cli.command_session import CommandSession
    from penstock.engine.query import Query
    from penstock.engine.query_status import StatusReporter
    from penstock.stream.statements.application import Application

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


def run_queries(starters: Sequence[Callable[[], Query]], out: Output, report_seconds: float) -> None:
    """Run queries until they end or a signal stops them, with their status on the output of the command."""
    from penstock.engine import foreground

    starting = ["Starting Spark"] + ["Starting"] * len(starters)
    console = out.errors if out.errors.is_terminal and not (out.quiet or out.json) else None
    foreground.run_queries(
        [partial(_start, start, out, text) for start, text in zip(starters, starting, strict=False)],
        partial(print_status, out),
        report_seconds,
        console,
    )


async def create_queues(session: CommandSession, application: Application) -> None:
    """Create the missing queues that statements define or write to. A query waits for the queues that it reads."""
    async with session.log() as log:
        for queue in application.queues.values():
            if await log.catalog.find(queue.name) is None:
                await log.configure(
                    queue.name, queue.options, partitioning=queue.partitioning or "hash", partitions=queue.partitions
                )
        for query in application.queries.values():
            if query.stream.sink is not None and await log.catalog.find(query.stream.sink) is None:
                await log.configure(query.stream.sink, partitioning="hash", partitions=8)


def _start(start: Callable[[], Query], out: Output, text: str) -> Query:
    try:
        with out.spinner(text):
            return start()
    except QueryChanged as error:
        advice = (
            "Run it with --rebuild to compute the new version beside the old one and then switch, with --reset to "
            "start over, or give the new view another name"
            if error.is_view
            else "Run it with --reset to start over, or give the new stream another query id "
            "(with --from it can read from another position)"
        )
        raise QueryChanged(error.name, error.changes, advice, is_view=error.is_view) from None


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
