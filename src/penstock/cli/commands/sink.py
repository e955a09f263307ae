"""``penstock sink``: write the events of a queue to a sink."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession, find_queue
from penstock.cli.commands.queue import QueueName
from penstock.cli.commands.run import parse_pairs
from penstock.core.errors import InvalidRequest, SinkClosed
from penstock.core.formatting import counted, number

if TYPE_CHECKING:
    from penstock.sinks.base import Sink

app = typer.Typer(help="Sinks: write the events of a queue to files, webhooks, tables or the terminal.")

_option: Any = partial(typer.Option, rich_help_panel="Reading")

Group = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The consumer group of the sink.", show_default="named after the sink"),
]


def sink_options(
    batch: Annotated[
        int | None, _option(min=1, max=100_000, metavar="N", help="The maximum number of events per batch.")
    ] = None,
    every: Annotated[float, _option(min=0, metavar="SECONDS", help="Wait this long for a batch to fill.")] = 0.0,
    attempts: Annotated[
        int,
        _option(min=0, metavar="N", help="Attempts with a single event before it becomes a dead letter; 0: no limit."),
    ] = 10,
    start: Annotated[Literal["beginning", "end"], _option("--from", help="Where a new group starts.")] = "beginning",
    counts: Annotated[
        bool | None,
        _option(
            "--count/--no-count",
            help="Whether pushes wait for this group when the queue is full.",
            show_default="unchanged; a new group counts",
        ),
    ] = None,
    idle_seconds: Annotated[
        float | None,
        _option(
            min=0, metavar="SECONDS", help="Exit after this long without an event.", show_default="run until Ctrl-C"
        ),
    ] = None,
) -> None:
    """The fields of SinkOptions, and the idle timeout."""


@command(
    app,
    "run",
    options=sink_options,
    examples=[
        "penstock sink run readings-5s --to console --to file:output.jsonl",
        "penstock sink run orders --to parquet:orders/ --every 60",
        "penstock sink run orders --to https://example.com/hook --group partner",
    ],
)
async def run(
    session: CommandSession,
    queue: QueueName,
    to: Annotated[
        list[str],
        typer.Option(
            metavar="SINK",
            help="console, file:PATH, parquet:DIRECTORY, queue:NAME, table:NAME, changes:TABLE, or a webhook URL; may "
            "be repeated.",
        ),
    ],
    group: Group = None,
    **options: Any,
) -> None:
    """Write the events of a queue to one or more independent sinks until Ctrl-C."""
    from penstock.sinks.spec import read_sink

    if group is not None and len(to) > 1:
        raise typer.BadParameter("several sinks cannot share one group: omit --group")
    await _run(session, queue, [read_sink(text) for text in to], group, options)


@command(
    app,
    "file",
    options=sink_options,
    examples=[
        "penstock sink file orders orders.jsonl",
        "penstock sink file orders orders.jsonl --rotate-bytes 100000000 --rotate-seconds 3600",
    ],
)
async def file(
    session: CommandSession,
    queue: QueueName,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to append to, as JSONL.")],
    rotate_bytes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Start a new file at this size.")] = None,
    rotate_seconds: Annotated[
        float | None, typer.Option(min=1, metavar="N", help="Start a new file at this age.")
    ] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Write id, key, time, partition and offset too, not the data alone.")
    ] = False,
    group: Group = None,
    **options: Any,
) -> None:
    """Append the events of a queue to a file, exactly once, until Ctrl-C."""
    from penstock.sinks.files.file import File

    sink = File(path, envelope=envelope, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds)
    await _run(session, queue, [sink], group, options)


@command(
    app,
    "webhook",
    options=sink_options,
    examples=[
        "penstock sink webhook orders https://example.com/hook --secret-file secret.txt",
        "penstock sink webhook orders http://10.0.0.7:8080/hook --allow 10.0.0.0/8 --batch 500",
        "penstock sink webhook ota.approved https://example.com/hook --batch 1 --concurrency 16",
    ],
)
async def webhook(
    session: CommandSession,
    queue: QueueName,
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL to post to.")],
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file with the signing secret.",
            show_default="PENSTOCK_WEBHOOK_SECRET, else unsigned",
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="A header to send; may be repeated.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="The timeout of a request.")
    ] = 10.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="A private network that may be called; may be repeated."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="The most requests at the same time, each of other keys.")
    ] = 1,
    limits: Annotated[
        bool,
        typer.Option("--limits/--no-limits", help="Whether the limits of a gate in front of the queue hold here too."),
    ] = True,
    group: Group = None,
    **options: Any,
) -> None:
    """Post the events of a queue to a URL in signed batches until Ctrl-C."""
    from penstock.sinks.http.webhook import Webhook

    secret = os.environ.get("PENSTOCK_WEBHOOK_SECRET") or None
    if secret_file is not None:
        try:
            secret = secret_file.read_text().strip()
        except OSError as error:
            raise InvalidRequest(f"--secret-file cannot be read: {error}") from None
    headers = {}
    for text in header or []:
        name, colon, value = text.partition(":")
        if not colon:
            raise InvalidRequest(f"a header has the form 'NAME: VALUE', and {name!r} has no colon")
        headers[name.strip().lower()] = value.strip()
    sink = Webhook(url, secret=secret, headers=headers, timeout=timeout, allow=allow or (), concurrency=concurrency)
    await _run(session, queue, [sink], group, {**options, "limits": limits})


@command(
    app,
    "table",
    options=sink_options,
    examples=[
        "penstock sink table readings-5s app.readings --key sensor --key window_start",
        "penstock sink table orders app.orders --column 'customer=$key' --column city=address.city",
        "penstock sink table totals.changes app.totals --changes",
    ],
)
async def table(
    session: CommandSession,
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table, in the database of the queues.")],
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A key column; may be repeated.", show_default="the primary key"),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=FIELD",
            help="The value of a column: a field of the data, or $id, $key, $time, $queue, $partition, $offset, $data.",
            show_default="the field with the name of the column",
        ),
    ] = None,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="The events are changes of a materialized view: update rows, and delete those that disappear.",
        ),
    ] = False,
    group: Group = None,
    **options: Any,
) -> None:
    """Write the events of a queue to a table, exactly once, until Ctrl-C."""
    from penstock.sinks.table import Table

    columns = parse_pairs("--column", column) or None
    await _run(session, queue, [Table(name, key=key, columns=columns, changes=changes)], group, options)


async def _run(
    session: CommandSession, queue: str, sinks: Sequence[Sink], group: str | None, options: dict[str, Any]
) -> None:
    from penstock.sinks.delivery.sinks import Sinks

    idle_seconds = options.pop("idle_seconds")
    options["attempts"] = options["attempts"] or None
    async with session.log() as log:
        await find_queue(log, queue)
        runner = Sinks(log=log)
        for sink in sinks:
            runner.add(queue, sink, group=group, **options)
        for worker in runner.workers:
            session.out.hint(f"{queue} → {worker.group} ({worker.sink.guarantee.replace('_', ' ')})")
        try:
            await runner.run(idle_seconds)
        except SinkClosed as error:
            raise BrokenPipeError from error
        finally:
            for (_, name), counters in runner.counters.items():
                if session.out.json:
                    session.out.line({"queue": queue, "group": name, **asdict(counters)})
                else:
                    session.out.hint(
                        f"{name}: {number(counters.written)} written, {counted(counters.retries, 'retry', 'retries')}, "
                        f"{counted(counters.dead_letters, 'dead letter')}"
                    )
