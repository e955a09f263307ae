"""``penstock source`` and ``penstock simulate``: events from files, tables and nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.commands.queue import Yes
from penstock.cli.completion import queue_names
from penstock.cli.session import Session, find_queue
from penstock.cli.times import show_time
from penstock.core.errors import InvalidRequest, NotFound
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.client.transport import Transport
    from penstock.sources.base import Source
    from penstock.sources.simulate import Traffic

app = typer.Typer(help="Sources: bring what is in files and tables into a queue, each event once.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=queue_names)]
#: Pushes of a simulation are at least so far apart; what is due meanwhile goes together.
_TICK_SECONDS = 0.05
_MOST = 5_000


def feed_options(
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What its position is kept under.", show_default="named after the source"),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of all events.")] = None,
    key_field: Annotated[str | None, typer.Option(metavar="FIELD", help="The field with an event's key.")] = None,
    id_field: Annotated[str | None, typer.Option(metavar="FIELD", help="The field with an event's id.")] = None,
    time_field: Annotated[str | None, typer.Option(metavar="FIELD", help="The field with an event's time.")] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="When following, end when nothing has come for so long."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Events of a push at the most.")] = 5_000,
) -> dict[str, Any]:
    """How events are pushed."""
    shape = {
        "name": name,
        "key": key,
        "key_field": key_field,
        "id_field": id_field,
        "time_field": time_field,
        "batch": batch,
    }
    return {"shape": shape, "idle_seconds": idle_seconds}


@command(
    app,
    "file",
    options=feed_options,
    examples=[
        "penstock source file orders orders.ndjson --key-field customer",
        "penstock source file visits access.csv --follow",
        "penstock source file readings archive/ --format parquet --time-field at",
    ],
)
async def file(
    session: Session,
    queue: QueueName,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file; of Parquet, a directory of them too.")],
    format: Annotated[
        str | None, typer.Option(metavar="KIND", help="ndjson, csv or parquet.", show_default="by the name")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, until Ctrl-C.")] = False,
    delimiter: Annotated[str, typer.Option(metavar="CHARACTER", help="What separates the fields of CSV.")] = ",",
    **options: Any,
) -> None:
    """Push what is in a file, from where it was left; every line is in the queue once."""
    from penstock.sources.csv import Csv
    from penstock.sources.ndjson import Ndjson
    from penstock.sources.parquet import Parquet

    kind = format or {".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}.get(path.suffix, "ndjson")
    if kind == "csv":
        source: Source = Csv(path, follow=follow, delimiter="\t" if path.suffix == ".tsv" else delimiter)
    elif kind == "parquet":
        source = Parquet(path, follow=follow)
    elif kind == "ndjson":
        source = Ndjson(path, follow=follow)
    else:
        raise InvalidRequest(f"files are ndjson, csv or parquet, not {kind!r}")
    await _feed(session, queue, source, options)


@command(
    app,
    "table",
    options=feed_options,
    examples=[
        "penstock source table orders shop.orders --column id --key-field customer",
        "penstock source table customers shop.customers --column updated_at --behind-seconds 5 --notify customers",
    ],
)
async def table(
    session: Session,
    queue: QueueName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    column: Annotated[
        str, typer.Option(metavar="COLUMN", help="A column that grows: a key for new rows, a time for changed ones.")
    ],
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The table's database.", show_default="that of the queues")
    ] = None,
    notify: Annotated[str | None, typer.Option(metavar="CHANNEL", help="Look at once when it is notified.")] = None,
    behind_seconds: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Leave rows that are younger for later.")
    ] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="End when all rows have been read.")] = False,
    **options: Any,
) -> None:
    """Push the rows of a PostgreSQL table in the order of a column, and go on as they come, until Ctrl-C."""
    from penstock.sources.table import Table

    where = url or session.settings().database_url
    if where is None:
        raise InvalidRequest("name the table's database with --url, or the queues' with --database-url")
    source = Table(table, column=column, url=where, notify=notify, behind_seconds=behind_seconds, follow=not once)
    await _feed(session, queue, source, options)


@command(app, "list", examples=["penstock source list", "penstock source list --json"])
async def list_(session: Session) -> None:
    """How far each source has been read."""
    from dataclasses import asdict

    from penstock.sources.runner import list_sources

    async with session.log() as log:
        found = await list_sources(log)
    if session.out.json:
        session.out.document([asdict(each) for each in found])
        return
    if not found:
        session.out.note("No source has been read yet: `penstock source file QUEUE FILE` does.")
        return
    rows = [
        [each.name, each.queue, number(each.events), number(each.rejected), show_time(each.updated_at)]
        for each in found
    ]
    session.out.table(["source", "queue", "events", "rejected", "last read"], rows, right=["events", "rejected"])


@command(app, "forget", examples=["penstock source forget file:/data/orders.ndjson"])
async def forget_(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The source.")],
    yes: Yes = False,
) -> None:
    """Forget how far a source was read: it begins anew, and its events are pushed again."""
    from penstock.sources.runner import forget_source

    if not yes:
        session.out.confirm(f"Forget how far {name!r} was read?")
    async with session.log() as log:
        if not await forget_source(log, name):
            raise NotFound(f"there is no source {name!r}: `penstock source list` shows them")
    session.out.note(f"Forgotten: {name}")


async def _feed(session: Session, queue: str, source: Source, options: dict[str, Any]) -> None:
    from penstock.sources.runner import SourceRunner

    chosen = feed_options(**options)
    async with session.log() as log:
        await find_queue(log, queue)
        feed = SourceRunner(log, source, queue, **chosen["shape"])
        try:
            await feed.run(chosen["idle_seconds"])
        finally:
            if session.out.json:
                session.out.line({"queue": queue, "pushed": feed.pushed, "rejected": feed.rejected})
            else:
                rejected = f", {number(feed.rejected)} became dead letters" if feed.rejected else ""
                session.out.note(f"{number(feed.pushed)} events pushed to {queue}{rejected}")


def register(root: typer.Typer) -> None:
    """Add the command that stands alone."""
    examples = [
        "penstock simulate sensors",
        "penstock simulate clicks --rate 500 --keys 20 --duration 60 --spikes 0.1",
        "penstock simulate orders --queue orders --bad 0.01 --late 0.05 --duplicates 0.02 --server https://host:6632",
    ]
    command(root, "simulate", examples=examples)(simulate)


async def simulate(
    session: Session,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="sensors, clicks or orders.")],
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Where to push.", show_default="named after the kind")
    ] = None,
    rate: Annotated[float, typer.Option(metavar="N", help="Events a second.")] = 50.0,
    keys: Annotated[int, typer.Option(metavar="N", help="How many sensors, sites or customers.")] = 4,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed, the same events.")] = 0,
    duration: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End after so long.", show_default="until Ctrl-C")
    ] = None,
    spikes: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Keys whose values surge every half minute.")
    ] = 0.0,
    bad: Annotated[float, typer.Option(min=0, max=1, metavar="SHARE", help="Events with a value that is none.")] = 0.0,
    late: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Events that happened up to a minute ago.")
    ] = 0.0,
    duplicates: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Events that come twice, with one id.")
    ] = 0.0,
    fast: Annotated[bool, typer.Option("--fast", help="Push at once what --duration would have brought.")] = False,
    begin: Annotated[
        datetime | None, typer.Option(help="When the first event happened, in UTC.", show_default="now")
    ] = None,
) -> None:
    """Push made-up traffic into a queue, which is made if it is not there, until Ctrl-C."""
    from penstock.sources.simulate import Traffic

    if fast and duration is None:
        raise InvalidRequest("--fast needs --duration: it says how much to push")
    traffic = Traffic(kind, rate, keys, seed, spikes, bad, late, duplicates)
    started = datetime.now(UTC) if begin is None else begin.replace(tzinfo=begin.tzinfo or UTC)
    name, pushed = queue or kind, 0
    async with session.transport() as transport:
        try:
            async for some in _paced(traffic, started, duration, fast):
                await _push(transport, name, some)
                pushed += len(some)
        finally:
            if session.out.json:
                session.out.line({"queue": name, "pushed": pushed})
            else:
                session.out.note(f"{number(pushed)} events pushed to {name}")


async def _paced(
    traffic: Traffic, started: datetime, duration: float | None, fast: bool
) -> AsyncIterator[list[dict[str, Any]]]:
    """What is due, again and again; all at once if it is to go fast."""
    import asyncio

    from penstock.sources.simulate import events

    clock = asyncio.get_running_loop().time
    origin = clock()
    due: list[dict[str, Any]] = []
    for at, event in events(traffic, started):
        if duration is not None and at >= duration:
            break
        if not fast and at > clock() - origin:
            if due:
                yield due
                due = []
            await asyncio.sleep(max(origin + at - clock(), _TICK_SECONDS))
        due.append(event)
        if len(due) >= _MOST:
            yield due
            due = []
    if due:
        yield due


async def _push(transport: Transport, queue: str, events: list[dict[str, Any]]) -> None:
    import asyncio

    from penstock.core.errors import QueueFull
    from penstock.log.write.batch import Batch

    while True:
        try:
            await transport.push([Batch(queue, events)])
            return
        except NotFound:
            await transport.configure(queue, partitioning="hash")
        except QueueFull as error:
            await asyncio.sleep(error.retry_after)
