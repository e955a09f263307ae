"""``penstock query``: what runs on Spark, how far it is, and what its cycles did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.commands.queue import Yes
from penstock.cli.completion import query_names
from penstock.cli.session import Session
from penstock.cli.times import show_time
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.engine.ledger import CycleRecord
    from penstock.engine.registry import QueryInfo
    from penstock.log.log import Log
    from penstock.log.queue_info import GroupInfo

app = typer.Typer(help="Queries: streams that run on Spark, or did, and what each of their cycles did.")

QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The query's id.", autocompletion=query_names)]

_LATELY = timedelta(minutes=5)
_LONGEST_ERROR = 60


@command(app, "list", examples=["penstock query list", "penstock query list --json | jq '.[].name'"])
async def list_queries(session: Session) -> None:
    """List all queries: who runs each, how far behind it is, and when it last committed."""
    from penstock.cli import json_output
    from penstock.engine.client_queries import list_client_queries
    from penstock.engine.registry import Registry

    async with session.log() as log:
        groups = await log.groups()
        listing = [json_output.query_listing(each, _of(each, groups)) for each in await Registry(log).list()]
        listing += [json_output.shared_listing(each) for each in await list_client_queries(log, groups=groups)]
        listing.sort(key=itemgetter("name"))
    if session.out.json:
        session.out.document(listing)
        return
    if not listing:
        session.out.hint("There is no query yet: `penstock run app.py` starts the streams of a file.")
        return
    rows = [
        (
            query["name"],
            query["state"],
            "clients" if query["computed_by"] == "clients" else query["driver"] or "–",
            ", ".join(query["queues"]),
            query["sink"] or "–",
            number(query["lag"]),
            number(query["cycle"]),
            show_time(query["committed_at"]),
        )
        for query in listing
    ]
    numbers = ("lag", "cycle")
    session.out.table(("query", "state", "driver", "reads", "writes", *numbers, "last commit"), rows, right=numbers)


@command(app, "show", examples=["penstock query show orders_5s", "penstock query show orders_5s --json"])
async def show(session: Session, query: QueryName) -> None:
    """Show a query: its steps, who runs it, its lag, its open windows, and what it did in the last five minutes."""
    from penstock.cli import json_output
    from penstock.engine.ledger import read_activity

    async with session.opened() as opened:
        info = await _find_query(opened.log, query)
        groups = await _groups(opened.log, info)
        lately = await read_activity(opened.database, info.id, _LATELY)
    if lately is None:
        raise _missing(query)
    details = json_output.query_details(info, groups, lately, _LATELY.total_seconds())
    if session.out.json:
        session.out.document(details)
        return
    session.out.facts(
        f"Query {query}",
        [
            ("state", details["state"] + (f", by {info.driver}" if info.is_running else "") + _when_it_runs(info)),
            *((f"lag in {group.queue}", f"{number(group.lag)} events") for group in groups),
            ("open windows", number(lately.open_windows) if lately.has_result else "–"),
            *([("read them in", details["live_view"])] if lately.has_result else []),
            *([] if lately.watermark is None else [("event time is at", show_time(lately.watermark))]),
            ("last commit", show_time(info.committed_at)),
            ("cycle", number(info.cycle)),
            ("since", show_time(info.created_at)),
        ],
    )
    session.out.section("Steps", "\n".join(info.description))
    session.out.facts(
        "In the last five minutes",
        [
            ("cycles", number(lately.cycles) + (f", and {number(lately.failed)} that failed" if lately.failed else "")),
            ("events", number(lately.events_in)),
            ("windows closed", number(lately.windows)),
            ("late", number(lately.late)),
            ("dead letters", number(lately.dead)),
        ],
    )


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
    session: Session,
    query: QueryName,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many at the most.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that came to nothing.")] = False,
) -> None:
    """List the newest cycles of a query: what each read, closed and wrote, and how long it took.

    The ledger keeps the last 10,000 cycles.
    """
    from penstock.cli import json_output
    from penstock.engine.ledger import read_cycles

    async with session.opened() as opened:
        info = await _find_query(opened.log, query)
        found = await read_cycles(opened.database, info.id, limit=limit, failed=failed)
    if session.out.json:
        for cycle in reversed(found):
            session.out.line(json_output.cycle(cycle))
        return
    if not found:
        session.out.hint("No cycle has failed." if failed else "It has had no cycle yet.")
        return
    numbers = ("cycle", "events", "out", "windows", "late", "dead", "ms")
    rows = [_row(cycle) for cycle in reversed(found)]
    session.out.table((*numbers, "planned", "state"), rows, right=numbers)


def _when_it_runs(query: QueryInfo) -> str:
    return ", and paused when it is started" if query.is_paused and not query.is_running else ""


def _row(cycle: CycleRecord) -> tuple[str, ...]:
    counts = (cycle.events_in, cycle.events_out, cycle.windows, cycle.late, cycle.dead)
    millis = None if cycle.seconds is None else round(cycle.seconds * 1000)
    error = " ".join((cycle.error or "").split())[:_LONGEST_ERROR]
    state = f"{cycle.state}: {error}" if error else cycle.state
    return (number(cycle.cycle), *map(number, (*counts, millis)), show_time(cycle.planned_at, millis=True), state)


@command(app, "pause", examples=["penstock query pause orders_5s"])
async def pause(session: Session, query: QueryName) -> None:
    """Let a query finish the cycle that it is in, and begin no other until it is resumed.

    Its driver keeps it, and goes on at once when it is resumed; one that is started meanwhile waits too.
    """
    from penstock.engine import commands

    async with session.opened() as opened:
        await commands.pause(opened.database, query)
    _tell(session, query, "paused", f"Query {query} is paused: `penstock query resume {query}` lets it go on.")


@command(app, "resume", examples=["penstock query resume orders_5s"])
async def resume(session: Session, query: QueryName) -> None:
    """Let a paused query go on."""
    from penstock.engine import commands

    async with session.opened() as opened:
        await commands.resume(opened.database, query)
    _tell(session, query, "resumed", f"Query {query} goes on.")


@command(app, "stop", examples=["penstock query stop orders_5s"])
async def stop(session: Session, query: QueryName) -> None:
    """Let the drivers of a query end, as SIGTERM would: after the cycle that they are in. Standbys end too.

    To run it again, start it again.
    """
    from penstock.engine import commands

    async with session.opened() as opened:
        await commands.stop(opened.database, query)
    _tell(session, query, "stopping", f"Query {query} ends after the cycle that it is in.")


def _tell(session: Session, query: str, state: str, sentence: str) -> None:
    if session.out.json:
        session.out.document({"query": query, "state": state})
    else:
        session.out.note(sentence)


@command(app, "delete", examples=["penstock query delete orders_5s", "penstock query delete orders_5s --yes"])
async def delete(session: Session, query: QueryName, yes: Yes = False) -> None:
    """Forget a query that does not run: its open windows, its history, its views and its place in the queues.

    What it wrote to its queue stays, and so do its dead letters.
    """
    from penstock.engine.client_queries import delete_client_query, find_client_query
    from penstock.engine.registry import Registry

    async with session.log() as log:
        shared = await find_client_query(log, query)
        if shared is None:
            await _find_query(log, query)
        if not yes:
            session.out.confirm(f"Forget query {query}, its open windows and its history?")
        deleted = await (Registry(log).delete(query) if shared is None else delete_client_query(log, query))
    if session.out.json:
        session.out.document({"query": query, "deleted": deleted})
    else:
        session.out.note(f"Deleted query {query}.")


async def _find_query(log: Log, name: str) -> QueryInfo:
    from penstock.core.errors import NotFound
    from penstock.engine.client_queries import find_client_query
    from penstock.engine.registry import Registry

    for info in await Registry(log).list():
        if info.name == name:
            return info
    if await find_client_query(log, name) is not None:
        raise NotFound(
            f"clients of the message plane compute the query {name!r}, so nothing more is known here than "
            "`penstock query list` shows, and its state, which is in the view penstock.state"
        )
    raise _missing(name)


def _missing(name: str) -> Exception:
    from penstock.core.errors import NotFound

    return NotFound(f"there is no query {name!r}: `penstock query list` shows those there are")


async def _groups(log: Log, query: QueryInfo) -> list[GroupInfo]:
    """The query's groups, one in each queue that it reads."""
    return _of(query, await log.groups())


def _of(query: QueryInfo, groups: Sequence[GroupInfo]) -> list[GroupInfo]:
    return [group for group in groups if group.query_id == query.name]
