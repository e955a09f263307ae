"""``penstock sink``: bring what is in a queue somewhere else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.completion import queue_names
from penstock.cli.session import Session, find_queue
from penstock.core.errors import InvalidRequest, SinkClosed
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.log.start_position import StartPosition
    from penstock.sinks.base import Sink

app = typer.Typer(help="Sinks: bring what is in a queue to a file, a webhook, a table, the screen.")

_PACE = "Pace"

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=queue_names)]
Group = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The group that it reads as.", show_default="named after the sink"),
]


def pace_options(
    batch: Annotated[
        int | None, typer.Option(min=1, max=100_000, metavar="N", help="Events at a time.", rich_help_panel=_PACE)
    ] = None,
    every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for a batch to fill.", rich_help_panel=_PACE)
    ] = 0.0,
    attempts: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="An event that failed so often alone is a dead letter; 0: never.",
            rich_help_panel=_PACE,
        ),
    ] = 10,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="Where a new group begins: beginning or end.", rich_help_panel=_PACE
        ),
    ] = "beginning",
    count: Annotated[
        bool | None,
        typer.Option(
            "--count/--no-count",
            help="Whether pushes wait for it when the queue is full.",
            rich_help_panel=_PACE,
            show_default="as it was; a new group counts",
        ),
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="End when there has been nothing to do for so long.",
            rich_help_panel=_PACE,
            show_default="run until Ctrl-C",
        ),
    ] = None,
) -> dict[str, Any]:
    """How all of them read and try."""
    if from_ not in ("beginning", "end"):
        raise InvalidRequest(f"a new group begins at the beginning or at the end, not at {from_!r}")
    start: StartPosition = from_  # type: ignore[assignment]  # checked above
    pace = {"batch": batch, "every": every, "attempts": attempts or None, "start": start, "counts": count}
    return {"pace": pace, "idle_seconds": idle_seconds}


@command(
    app,
    "run",
    options=pace_options,
    examples=[
        "penstock sink run readings-5s --to console --to file:output.jsonl",
        "penstock sink run orders --to parquet:orders/ --every 60",
        "penstock sink run orders --to https://example.com/hook --group partner",
    ],
)
async def run(
    session: Session,
    queue: QueueName,
    to: Annotated[
        list[str],
        typer.Option(
            metavar="SINK",
            help="console, file:PATH, parquet:DIRECTORY, queue:NAME, table:NAME, or a webhook's URL; may be repeated.",
        ),
    ],
    group: Group = None,
    **options: Any,
) -> None:
    """Bring what is in a queue to one or several sinks, each at its own pace, until Ctrl-C."""
    from penstock.sinks.spec import read_sink

    if group is not None and len(to) > 1:
        raise typer.BadParameter("several sinks cannot read as one group: leave --group out")
    await _run(session, queue, [read_sink(text) for text in to], group, options)


@command(
    app,
    "file",
    options=pace_options,
    examples=[
        "penstock sink file orders orders.jsonl",
        "penstock sink file orders orders.jsonl --rotate-bytes 100000000 --rotate-seconds 3600",
    ],
)
async def file(
    session: Session,
    queue: QueueName,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to append to, as JSONL.")],
    rotate_bytes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Begin a new file when it is this large.")
    ] = None,
    rotate_seconds: Annotated[
        float | None, typer.Option(min=1, metavar="N", help="Begin a new file when it is this old.")
    ] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Write id, key, time and place too, not the data alone.")
    ] = False,
    group: Group = None,
    **options: Any,
) -> None:
    """Append what is in a queue to a file, every event once, until Ctrl-C."""
    from penstock.sinks.files.file import File

    sink = File(path, envelope=envelope, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds)
    await _run(session, queue, [sink], group, options)


@command(
    app,
    "webhook",
    options=pace_options,
    examples=[
        "penstock sink webhook orders https://example.com/hook --secret-file secret.txt",
        "penstock sink webhook orders http://10.0.0.7:8080/hook --allow 10.0.0.0/8 --batch 500",
    ],
)
async def webhook(
    session: Session,
    queue: QueueName,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to post the events.")],
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the secret to sign with.",
            show_default="PENSTOCK_WEBHOOK_SECRET, else unsigned",
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="A header to send; may be repeated.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="Wait so long for an answer.")
    ] = 10.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="A network that is not public and may be called; may be repeated."),
    ] = None,
    group: Group = None,
    **options: Any,
) -> None:
    """Post what is in a queue to a URL in signed batches, until Ctrl-C."""
    from penstock.sinks.http.webhook import Webhook

    secret = os.environ.get("PENSTOCK_WEBHOOK_SECRET") or None
    if secret_file is not None:
        try:
            secret = secret_file.read_text().strip()
        except OSError as error:
            raise InvalidRequest(f"the secret cannot be read: {error}") from None
    headers = {}
    for text in header or []:
        name, colon, value = text.partition(":")
        if not colon:
            raise InvalidRequest(f"a header is given as 'NAME: VALUE', and {name!r} has no colon")
        headers[name.strip().lower()] = value.strip()
    sink = Webhook(url, secret=secret, headers=headers, timeout=timeout, allow=allow or ())
    await _run(session, queue, [sink], group, options)


@command(
    app,
    "table",
    options=pace_options,
    examples=[
        "penstock sink table readings-5s app.readings --key sensor --key window_start",
        "penstock sink table orders app.orders --column 'customer=$key' --column city=address.city",
    ],
)
async def table(
    session: Session,
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table, in the queues' own database.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="A column that tells rows apart; may be repeated.", show_default="the primary key"
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=FIELD",
            help="What a column gets: a field of the data, or $id, $key, $time, $queue, $partition, $offset, $data.",
            show_default="the field of its name",
        ),
    ] = None,
    group: Group = None,
    **options: Any,
) -> None:
    """Write what is in a queue into a table, exactly once, until Ctrl-C."""
    from penstock.sinks.table import Table

    columns = {}
    for text in column or []:
        to, equals, source = text.partition("=")
        if not equals:
            raise InvalidRequest(f"a column is given as COLUMN=FIELD, not as {text!r}")
        columns[to] = source
    await _run(session, queue, [Table(name, key=key, columns=columns or None)], group, options)


async def _run(session: Session, queue: str, sinks: Sequence[Sink], group: str | None, options: dict[str, Any]) -> None:
    from penstock.sinks.runner import Sinks

    chosen = pace_options(**options)
    async with session.log() as log:
        await find_queue(log, queue)
        runner = Sinks(log=log)
        for sink in sinks:
            runner.add(queue, sink, group=group, **chosen["pace"])
        for worker in runner.workers:
            session.out.hint(f"{queue} → {worker.group} ({worker.sink.guarantee.replace('_', ' ')})")
        try:
            await runner.run(chosen["idle_seconds"])
        except SinkClosed as error:
            raise BrokenPipeError from error
        finally:
            for (_, name), counters in runner.counters.items():
                if session.out.json:
                    session.out.line({"queue": queue, "group": name, **asdict(counters)})
                else:
                    session.out.hint(
                        f"{name}: {number(counters.written)} written, {number(counters.retries)} retries, "
                        f"{number(counters.dead_letters)} dead letters"
                    )
