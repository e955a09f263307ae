"""``penstock query``: state, lag and cycles of queries, and control of running ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli import json_output
from penstock.cli.command import command
from penstock.cli.command_session import CommandSession
from penstock.cli.commands.queue import Yes
from penstock.cli.completion import query_names
from penstock.cli.times import format_time, parse_time
from penstock.core.errors import NotFound
from penstock.core.formatting import counted, duration, number, size

if TYPE_CHECKING:
    from penstock.engine.cycle_ledger import CycleRecord
    from penstock.engine.query_registry import QueryInfo
    from penstock.engine.views.view_size import OperatorSize, ViewStatus
    from penstock.log.log import Log
    from penstock.log.queue_info import GroupInfo

app = typer.Typer(help="Queries: show their state, lag and cycles; pause, resume, stop and delete them.")

QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The id of the query.", autocompletion=query_names)]

_ACTIVITY_PERIOD = timedelta(minutes=5)
_MAX_ERROR_CHARACTERS = 60


@command(
    app,
    "list",
    examples=["penstock query list", "penstock query list --views", "penstock query list --json | jq '.[].name'"],
)
async def list_queries(
    session: CommandSession,
    views: Annotated[bool, typer.Option("--views", help="List materialized views only.")] = False,
) -> None:
    """List all queries with their state, driver, queues, lag and last commit."""
    await print_queries(session, views_only=views)


async def print_queries(session: CommandSession, *, views_only: bool = False) -> None:
    from penstock.engine.client_queries import list_client_queries
    from penstock.engine.query_registry import Registry

    async with session.log() as log:
        groups = await log.groups()
        queries = [query for query in await Registry(log).list() if query.is_view or not views_only]
        client_queries = [] if views_only else await list_client_queries(log, groups=groups)
    listing = [json_output.query_listing(query, _groups_of(query, groups)) for query in queries]
    listing += [json_output.query_listing(query, query.groups) for query in client_queries]
    listing.sort(key=itemgetter("name"))
    rows = [
        (
            query["name"],
            query["state"],
            "clients" if query["computed_by"] == "clients" else query["driver"] or "–",
            ", ".join(query["queues"]),
            query["sink"] or "–",
            number(query["lag"]),
            number(query["cycle"]),
            format_time(query["committed_at"]),
        )
        for query in listing
    ]
    numbers = ("lag", "cycle")
    columns = ("query", "state", "driver", "reads", "writes", *numbers, "last commit")
    empty = (
        "There is no materialized view yet. `penstock sql FILE` runs those of a file."
        if views_only
        else "There is no query yet. `penstock run app.py` runs the streams of a file."
    )
    session.out.listing(listing, columns, rows, right=numbers, empty=empty)


@command(app, "show", examples=["penstock query show orders_5s", "penstock query show orders_5s --json"])
async def show(session: CommandSession, query: QueryName) -> None:
    """Show a query: its state, driver, lag, open windows, steps, and its activity in the last five minutes."""
    from penstock.engine.cycle_ledger import read_activity
    from penstock.engine.views.view_size import read_view_status

    async with session.log() as log:
        info = await find_query(log, query)
        groups = _groups_of(info, await log.groups())
        activity = await read_activity(log.database, info.id, _ACTIVITY_PERIOD)
        view = await read_view_status(log.database, info.id)
    if activity is None:
        raise _missing(query)
    details = json_output.query_details(info, groups, activity, _ACTIVITY_PERIOD.total_seconds(), view)
    if session.out.json:
        session.out.document(details)
        return
    suffix = f", by {info.driver}" if info.is_running else ", will be paused when it is started" * info.is_paused
    session.out.fields(
        f"Query {query}",
        [
            ("state", details["state"] + suffix),
            *((f"lag in {group.queue}", counted(group.lag, "event")) for group in groups),
            *([("open windows", number(activity.open_windows))] if activity.has_result else []),
            *([("view", details["live_view"])] if details["live_view"] else []),
            *([] if view is None else view_fields(view)),
            *([("history kept", duration(activity.history_seconds))] if activity.has_result else []),
            *([] if activity.watermark is None else [("watermark", format_time(activity.watermark))]),
            ("last commit", format_time(info.committed_at)),
            ("cycle", number(info.cycle)),
            ("created", format_time(info.created_at)),
        ],
    )
    session.out.section("Steps", "\n".join(info.description))
    if view is not None and view.operators:
        session.out.section("State", "\n".join(map(operator_line, view.operators)))
    session.out.fields(
        "In the last five minutes",
        [
            ("cycles", number(activity.cycles) + (f", {number(activity.failed)} failed" if activity.failed else "")),
            ("events", number(activity.events_in)),
            ("windows closed", number(activity.windows)),
            ("late", number(activity.late)),
            ("dead letters", number(activity.dead)),
        ],
    )


def view_fields(view: ViewStatus) -> list[tuple[str, str]]:
    """The lines of a materialized view: its key, its rows, and the size of its state."""
    state = size(view.state_bytes)
    if view.max_state_bytes is not None:
        state += f" of at most {size(view.max_state_bytes)}"
        if view.is_near_limit:
            state += ". The query stops at the limit: start it with a larger max_state_bytes"
    return [
        ("key", ", ".join(view.key) or "hidden"),
        ("rows", f"about {number(view.rows)}, {size(view.bytes)}"),
        ("state", state),
        *([] if view.state_ttl_seconds is None else [("state expires after", duration(view.state_ttl_seconds))]),
    ]


def operator_line(operator: OperatorSize) -> str:
    return f"{operator.name}: {counted(operator.rows, 'row')}, {size(operator.bytes)}"


@command(
    app,
    "cycles",
    examples=[
        "penstock query cycles orders_5s",
        "penstock query cycles orders_5s --failed",
        "penstock query cycles orders_5s -n 100 --json | jq .took",
    ],
)
async def cycles(
    session: CommandSession,
    query: QueryName,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="The maximum number.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="List failed cycles only.")] = False,
) -> None:
    """List the newest cycles of a query with their events, closed windows, duration and state.

    The ledger keeps the last 10,000 cycles.
    """
    from penstock.engine.cycle_ledger import read_cycles

    async with session.log() as log:
        info = await find_query(log, query)
        records = await read_cycles(log.database, info.id, limit=limit, failed=failed)
    records.reverse()
    numbers = ("cycle", "events", "out", "windows", "late", "dead", "ms")
    empty = "No cycle has failed." if failed else "The query has run no cycle yet."
    rows = [_row(cycle) for cycle in records]
    listing = map(json_output.cycle, records)
    session.out.listing(listing, (*numbers, "planned", "state"), rows, right=numbers, empty=empty, lines=True)


@command(
    app,
    "rows",
    examples=[
        "penstock query rows orders_5s",
        "penstock query rows online --current --watch",
        "penstock query rows usage --history --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z --json",
    ],
)
async def rows(
    session: CommandSession,
    query: QueryName,
    current: Annotated[bool, typer.Option("--current", help="Only the current window of each key.")] = False,
    history: Annotated[bool, typer.Option("--history", help="The closed windows.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only the windows of this key.", show_default="all")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only windows that end after this time: 2h for two hours ago.",
            show_default="the first",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="Only windows that end at this time or before.", show_default="the last"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Print only the last N rows; not with --json.")
    ] = 50,
    watch: Annotated[bool, typer.Option("--watch", help="Print the rows again whenever they change.")] = False,
) -> None:
    """Print the result of a query: its open windows, the current one of each key, or the closed ones.

    With `--json`, print each row as a JSON document, and with `--watch` only the rows that have changed.
    """
    from penstock.cli.query_rows import print_rows, watch_rows
    from penstock.engine.results.result_reader import RowRequest, read_rows

    if current and history:
        raise typer.BadParameter("--current and --history exclude each other: give one of them")
    request = RowRequest(
        query,
        "current" if current else "history" if history else "live",
        key,
        None if since is None else parse_time(since),
        None if until is None else parse_time(until),
    )
    async with session.transport() as transport:
        if watch:
            await watch_rows(session.out, transport, request, limit)
        else:
            print_rows(session.out, await read_rows(transport.result_rows, request), limit)


def _row(cycle: CycleRecord) -> tuple[str, ...]:
    counts = (cycle.events_in, cycle.events_out, cycle.windows, cycle.late, cycle.dead)
    millis = None if cycle.seconds is None else round(cycle.seconds * 1000)
    error = " ".join((cycle.error or "").split())[:_MAX_ERROR_CHARACTERS]
    state = f"{cycle.state}: {error}" if error else cycle.state
    return (number(cycle.cycle), *map(number, (*counts, millis)), format_time(cycle.planned_at, millis=True), state)


@command(app, "pause", examples=["penstock query pause orders_5s"])
async def pause(session: CommandSession, query: QueryName) -> None:
    """Pause a query after its current cycle, until it is resumed.

    Its driver keeps the lease, so that it continues immediately on resume. A driver that starts while the query is
    paused waits too.
    """
    await _control(session, query, "pause", "paused", f"is paused. `penstock query resume {query}` resumes it.")


@command(app, "resume", examples=["penstock query resume orders_5s"])
async def resume(session: CommandSession, query: QueryName) -> None:
    """Resume a paused query."""
    await _control(session, query, "resume", "resumed", "is resumed.")


@command(app, "stop", examples=["penstock query stop orders_5s"])
async def stop(session: CommandSession, query: QueryName) -> None:
    """Stop the drivers of a query after their current cycle, as SIGTERM does. Standby drivers stop too.

    Start the query again to run it again.
    """
    await _control(session, query, "stop", "stopping", "stops after its current cycle.")


async def _control(
    session: CommandSession, query: str, action: Literal["pause", "resume", "stop"], state: str, done: str
) -> None:
    from penstock.engine import query_commands

    async with session.log() as log:
        await getattr(query_commands, action)(log.database, query)
    session.out.result({"query": query, "state": state}, f"Query {query} {done}")


@command(app, "delete", examples=["penstock query delete orders_5s", "penstock query delete orders_5s --yes"])
async def delete(session: CommandSession, query: QueryName, yes: Yes = False) -> None:
    """Delete a query that does not run: its open windows, history, views and positions.

    The events it wrote and its dead letters stay.
    """
    from penstock.engine.client_queries import delete_client_query, find_client_query
    from penstock.engine.query_registry import Registry
    from penstock.engine.stored.stored_statements import find_stored_statement

    async with session.log() as log:
        client_query = await find_client_query(log, query)
        if client_query is None and await find_stored_statement(log.database, query) is None:
            await find_query(log, query)
        if not yes:
            session.out.confirm(f"Delete query {query}, its open windows and its history?")
        deleted = await (Registry(log).delete(query) if client_query is None else delete_client_query(log, query))
    session.out.result({"query": query, "deleted": deleted}, f"Deleted query {query}.")


async def find_query(log: Log, name: str) -> QueryInfo:
    from penstock.engine.client_queries import find_client_query
    from penstock.engine.query_registry import Registry

    for info in await Registry(log).list():
        if info.name == name:
            return info
    if await find_client_query(log, name) is not None:
        raise NotFound(
            f"clients compute the query {name!r}, so this command has no information about it: see "
            "`penstock query list` and the view penstock.state"
        )
    raise _missing(name)


def _missing(name: str) -> Exception:
    return NotFound(f"there is no query {name!r}: `penstock query list` lists the queries")


def _groups_of(query: QueryInfo, groups: Sequence[GroupInfo]) -> list[GroupInfo]:
    return [group for group in groups if group.query_id == query.name]
