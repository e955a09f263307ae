"""``penstock source`` and ``penstock simulate``: push events from files, tables and a generator."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession, find_queue
from penstock.cli.commands.queue import IdField, KeyField, QueueName, TimeField, Yes
from penstock.cli.times import format_time
from penstock.core import formatting
from penstock.core.errors import InvalidRequest, NotFound, QueueFull
from penstock.core.formatting import counted, number

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.transport import Transport
    from penstock.sources.base import Source
    from penstock.sources.simulate import Traffic

root = typer.Typer()
app = typer.Typer(help="Sources: push the contents of files and tables to a queue, exactly once.")

#: The shortest pause between two pushes of a simulation.
_TICK_SECONDS = 0.05
_MAX_BATCH_EVENTS = 5_000


def source_options(
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The name under which the position is stored.", show_default="named after the source"
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of all events.")] = None,
    key_field: KeyField = None,
    id_field: IdField = None,
    time_field: TimeField = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="When following, exit after this long without an event."),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="The maximum number of events per push.")
    ] = 5_000,
) -> None:
    """The options of a source runner, and the idle timeout."""


@command(
    app,
    "file",
    options=source_options,
    examples=[
        "penstock source file orders orders.ndjson --key-field customer",
        "penstock source file visits access.csv --follow",
        "penstock source file readings archive/ --format parquet --time-field at",
    ],
)
async def file(
    session: CommandSession,
    queue: QueueName,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file, or a directory of Parquet files.")],
    format: Annotated[
        str | None, typer.Option(metavar="KIND", help="ndjson, csv or parquet.", show_default="from the file name")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the file as it grows, until Ctrl-C.")] = False,
    delimiter: Annotated[str, typer.Option(metavar="CHARACTER", help="The delimiter of CSV fields.")] = ",",
    **options: Any,
) -> None:
    """Push the contents of a file, exactly once. Continues from the stored position."""
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
        raise InvalidRequest(f"--format must be ndjson, csv or parquet, not {kind!r}")
    await _run_source(session, queue, source, options)


@command(
    app,
    "table",
    options=source_options,
    examples=[
        "penstock source table orders shop.orders --column id --key-field customer",
        "penstock source table customers shop.customers --column updated_at --behind-seconds 5 --notify customers",
    ],
)
async def table(
    session: CommandSession,
    queue: QueueName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    column: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="An increasing column: a key to read new rows, a timestamp to read changed rows too."
        ),
    ],
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The database of the table.", show_default="the database of the queues"),
    ] = None,
    notify: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Read immediately on a notification of this channel.")
    ] = None,
    behind_seconds: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Read only rows older than this.")
    ] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="Exit when all rows have been read.")] = False,
    **options: Any,
) -> None:
    """Push the rows of a PostgreSQL table in the order of a column, and new rows until Ctrl-C."""
    from penstock.sources.table import Table

    table_url = url or session.settings().database_url
    if table_url is None:
        raise InvalidRequest("name the database of the table with --url, or that of the queues with --database-url")
    source = Table(table, column=column, url=table_url, notify=notify, behind_seconds=behind_seconds, follow=not once)
    await _run_source(session, queue, source, options)


@command(app, "list", examples=["penstock source list", "penstock source list --json"])
async def list_(session: CommandSession) -> None:
    """List the sources and their positions."""
    from penstock.sources.source_runner import list_sources

    async with session.log() as log:
        positions = await list_sources(log)
    rows = [
        [source.name, source.queue, number(source.events), number(source.rejected), format_time(source.updated_at)]
        for source in positions
    ]
    columns = ("source", "queue", "events", "rejected", "last read")
    empty = "No source has been read yet. `penstock source file QUEUE FILE` reads a file."
    session.out.listing(
        [asdict(source) for source in positions], columns, rows, right=("events", "rejected"), empty=empty
    )


@command(app, "forget", examples=["penstock source forget file:/data/orders.ndjson"])
async def forget_(
    session: CommandSession,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the source.")],
    yes: Yes = False,
) -> None:
    """Delete the position of a source. The next run pushes its events again."""
    from penstock.sources.source_runner import forget_source, list_sources

    missing = NotFound(f"there is no source {name!r}: `penstock source list` lists the sources")
    async with session.log() as log:
        if not any(source.name == name for source in await list_sources(log)):
            raise missing
        if not yes:
            session.out.confirm(f"Delete the position of source {name!r}?")
        if not await forget_source(log, name):
            raise missing
    session.out.note(f"Deleted the position of source {name}.")


async def _run_source(session: CommandSession, queue: str, source: Source, options: dict[str, Any]) -> None:
    from penstock.sources.source_runner import SourceRunner

    idle_seconds = options.pop("idle_seconds")
    async with session.log() as log:
        await find_queue(log, queue)
        runner = SourceRunner(log, source, queue, **options)
        try:
            await runner.run(idle_seconds)
        finally:
            rejected = f", {counted(runner.rejected, 'dead letter')}" if runner.rejected else ""
            session.out.result(
                {"queue": queue, "pushed": runner.pushed, "rejected": runner.rejected},
                f"{counted(runner.pushed, 'event')} pushed to {queue}{rejected}",
            )


@command(
    root,
    "simulate",
    examples=[
        "penstock simulate sensors",
        "penstock simulate clicks --rate 500 --keys 20 --duration 60 --spikes 0.1",
        "penstock simulate orders --queue orders --bad 0.01 --late 0.05 --duplicates 0.02 --server https://host:6632",
    ],
)
async def simulate(
    session: CommandSession,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="sensors, clicks or orders.")],
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="The queue to push to.", show_default="the kind")
    ] = None,
    rate: Annotated[float, typer.Option(metavar="N", help="Events per second.")] = 50.0,
    keys: Annotated[int, typer.Option(metavar="N", help="The number of sensors, sites or customers.")] = 4,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The random seed. The same seed generates the same events.")
    ] = 0,
    duration: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Exit after this long.", show_default="until Ctrl-C")
    ] = None,
    spikes: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="The share of keys whose values surge every 30 seconds."),
    ] = 0.0,
    bad: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="The share of events with an invalid value.")
    ] = 0.0,
    late: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="The share of events that are up to a minute late.")
    ] = 0.0,
    duplicates: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="SHARE", help="The share of events that are pushed twice, with the same id."
        ),
    ] = 0.0,
    fast: Annotated[bool, typer.Option("--fast", help="Push the events of --duration without waiting.")] = False,
    begin: Annotated[
        datetime | None, typer.Option(help="The time of the first event, in UTC.", show_default="now")
    ] = None,
) -> None:
    """Push generated events to a queue until Ctrl-C. Creates the queue if it does not exist."""
    from penstock.sources.simulate import Traffic

    if fast and duration is None:
        raise InvalidRequest("--fast needs --duration, which determines how many events to push")
    traffic = Traffic(kind, rate, keys, seed, spikes, bad, late, duplicates)
    started = datetime.now(UTC) if begin is None else begin.replace(tzinfo=begin.tzinfo or UTC)
    name = queue or kind
    async with session.transport() as transport:
        simulation = _Simulation(session.out, transport, name, round(rate * duration) if duration else None)
        try:
            with session.out.progress() as show:
                async for events in _batch_due_events(traffic, started, duration, fast):
                    await simulation.push(events, show)
        finally:
            pushed = simulation.pushed
            session.out.result({"queue": name, "pushed": pushed}, f"{counted(pushed, 'event')} pushed to {name}")


async def _batch_due_events(
    traffic: Traffic, started: datetime, duration: float | None, fast: bool
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the events that are due, in batches, without waiting if ``fast``."""
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
        if len(due) >= _MAX_BATCH_EVENTS:
            yield due
            due = []
    if due:
        yield due


class _Simulation:
    """Pushes events and shows how many, how fast, and what it waits for."""

    def __init__(self, out: Output, transport: Transport, queue: str, total: int | None) -> None:
        self.pushed = 0
        self._out = out
        self._transport = transport
        self._queue = queue
        #: The number of events of the whole simulation, without duplicates.
        self._total = total
        self._started = time.monotonic()

    async def push(self, events: list[dict[str, Any]], show: Callable[[str], None]) -> None:
        import asyncio

        from penstock.core.wait_notice import WaitNotice
        from penstock.log.write.encode.batch import Batch

        notice = WaitNotice(self._out.warn)
        full_since = time.monotonic()
        while True:
            try:
                await self._transport.push([Batch(self._queue, events)])
                break
            except NotFound:
                await self._transport.configure(self._queue, partitioning="hash")
            except QueueFull as error:
                notice.waits(error, error.retry_after)
                waited = formatting.duration(time.monotonic() - full_since)
                show(f"{self._progress()}; queue full for {waited}")
                await asyncio.sleep(error.retry_after)
        self.pushed += len(events)
        show(self._progress())

    def _progress(self) -> str:
        total = "" if self._total is None else f" of {number(self._total)}"
        per_second = self.pushed / max(time.monotonic() - self._started, 0.001)
        return f"{number(self.pushed)}{total} events pushed to {self._queue}, {formatting.rate(per_second)} per second"
