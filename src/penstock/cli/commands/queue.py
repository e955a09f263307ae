"""``penstock queue``: make, look at, fill and change queues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.command import command
from penstock.cli.completion import queue_names
from penstock.cli.queue_options import queue_changes, queue_options, show_option
from penstock.cli.session import Session, find_queue
from penstock.cli.times import show_time
from penstock.core.formatting import number, size

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.transport import Transport
    from penstock.log.queue import Queue

app = typer.Typer(help="Queues: make, look at, fill and change them.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=queue_names)]
By = Annotated[
    Literal["key", "hash"] | None,
    typer.Option(
        help="key: a partition, a lane, for each key, made on first use. hash: a fixed number of partitions.",
        show_default="key, or hash if --partitions is given",
    ),
]
Partitions = Annotated[
    int | None, typer.Option(help="How many partitions a queue by hash has.", show_default="8", metavar="N")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_BUSIEST = 5


@command(app, "list", examples=["penstock queue list", "penstock queue list --json | jq '.[].name'"])
async def list_queues(session: Session) -> None:
    """List all queues: how much each holds, and how far behind its slowest group is."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        listing = [
            json_output.queue_listing(await transport.describe(queue.name)) for queue in await transport.queues()
        ]
    if session.out.json:
        session.out.document(listing)
        return
    if not listing:
        session.out.hint("There is no queue yet. Make one with `penstock queue create orders`.")
        return
    numbers = ("partitions", "events", "size", "groups", "lag", "dead letters")
    counted = ("groups", "lag", "dead_letters")
    rows = [
        (
            queue["name"],
            queue["partitioning"],
            number(queue["partitions"]),
            number(queue["events"]),
            size(queue["bytes"]),
            *(number(queue[name]) for name in counted),
        )
        for queue in listing
    ]
    session.out.table(("queue", "by", *numbers), rows, right=numbers)


@command(
    app,
    "create",
    examples=[
        "penstock queue create orders",
        "penstock queue create clicks --by hash --partitions 16 --retention-seconds 604800",
        "penstock queue create emails --retry-limit 5 --retry-delay-ms 30000",
    ],
    options=queue_options,
)
async def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    by: By = None,
    partitions: Partitions = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave a queue that exists already as it is, and be content.")
    ] = False,
    **options: Any,
) -> None:
    """Make a queue.

    What is not said gets its default, and can be changed later with `penstock queue configure`.
    """
    from penstock.cli import json_output

    given = queue_options(**options)
    async with session.transport() as transport:
        created = not if_missing or not await _exists(transport, name)
        if created:
            await transport.configure(name, given, partitioning=by, partitions=partitions, only_new=True)
        queue = await find_queue(transport, name)
    if session.out.json:
        session.out.document({"created": created, **json_output.queue_summary(queue)})
    else:
        session.out.note(f"Created queue {name}, {_kind(queue)}." if created else f"Queue {name} exists already.")


@command(
    app,
    "show",
    examples=["penstock queue show orders", "penstock queue show orders --json | jq .groups"],
)
async def show(session: Session, name: QueueName) -> None:
    """Show a queue: its options, what it holds and where, its groups and its dead letters."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        queue = await find_queue(transport, name)
        busiest = await transport.partitions(name, _BUSIEST)
        details = json_output.queue_details(await transport.describe(name), busiest)
    if session.out.json:
        session.out.document(details)
    else:
        _show(session.out, queue, details)


def _show(out: Output, queue: Queue, details: dict[str, Any]) -> None:
    held = details["size"]
    out.facts(
        f"Queue {queue.name}, {_kind(queue)}",
        [
            ("events", f"{number(held['events'])} kept, {number(held['appended'])} ever appended"),
            ("size", size(held["bytes"])),
            ("partitions", number(held["partitions"])),
            ("dead letters", number(details["dead_letters"])),
            *([("shed", f"{number(held['shed'])} events, because it was full")] if held["shed"] else []),
        ],
    )
    out.facts("Options", [(name, show_option(value)) for name, value in details["options"].items()])
    if details["busiest_partitions"]:
        rows = _rows(details["busiest_partitions"], "partition", "events", "first_offset", "end_offset")
        title = "Partitions" if len(rows) == held["partitions"] else f"The fullest {len(rows)} partitions"
        numbers = ("events", "from offset", "to before")
        out.table(("partition", *numbers), rows, title=title, right=numbers)
    if details["groups"]:
        rows = _rows(details["groups"], "group", "lag", "partitions_behind", "leases")
        rows = [[*row, holds_back(group)] for row, group in zip(rows, details["groups"], strict=True)]
        numbers = ("lag", "partitions behind", "leases")
        out.table(("group", *numbers, "holds pushes back"), rows, title="Groups", right=numbers)
    else:
        out.hint("No group reads it yet: the first pop of a consumer makes one.")
    if details["advice"]:
        out.warn(details["advice"])


def holds_back(group: dict[str, Any]) -> str:
    """Whether pushes wait for a group when the queue is full, in words."""
    if not group["counts"]:
        return "no"
    return f"no, away since {show_time(group['seen_at'])}" if group["away"] else "yes"


def _rows(facts: Sequence[dict[str, Any]], name: str, *counts: str) -> list[list[str]]:
    return [[each[name], *(number(each[count]) for count in counts)] for each in facts]


@command(
    app,
    "push",
    examples=[
        """penstock queue push orders '{"amount": 12.5}' --key tenant-1""",
        """penstock queue push orders '{"n": 1}' '{"n": 2}'""",
        "penstock queue push orders --file orders.ndjson --key-field tenant --id-field order_id",
        "penstock queue push orders --file orders.ndjson.zst --once --wait 300",
        "cat orders.ndjson | penstock queue push orders --file -",
    ],
)
async def push(
    session: Session,
    name: QueueName,
    events: Annotated[
        list[str] | None, typer.Argument(metavar="JSON", help="Events, each a JSON value.", show_default=False)
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The key of every event that has none of its own.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id of the event, if it is one.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read events from a file, a JSON value a line; - is stdin."),
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Take each event's key from this field.")
    ] = None,
    id_field: Annotated[str | None, typer.Option(metavar="FIELD", help="Take each event's id from this field.")] = None,
    time_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Take each event's time from this field.")
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for room while the queue is full.")
    ] = 0.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Leave out what an earlier run with --once has pushed of the same file within a day."
        ),
    ] = False,
) -> None:
    """Push events: from the command line all or none, from a file or stdin batch by batch.

    A file may be compressed with gzip or zstd. An event whose id the queue has seen is not stored again, so that a file
    can be pushed twice without harm; one without ids is pushed with --once, and then it can be too.
    """
    from penstock.cli.event_input import Pusher, Shape

    shape = Shape(name, key, key_field, id_field, time_field)
    if events and file is not None:
        raise typer.BadParameter("give events as arguments or in a file, not both")
    if once and (events or file is None or str(file) == "-"):
        raise typer.BadParameter("--once is for a file: a pipe cannot be told again")
    if id is not None and (not events or len(events) != 1):
        raise typer.BadParameter("--id is the id of one event: give one as argument, or use --id-field")
    async with session.transport() as transport:
        await find_queue(transport, name)
        pusher = Pusher(transport, shape, session.out, wait)
        if events:
            result = await pusher.push_arguments(events, id)
        else:
            result = await pusher.push_file(file, once=once)
    if session.out.json:
        session.out.document(result)
    else:
        duplicates = f", {number(result['duplicates'])} were there already" if result["duplicates"] else ""
        session.out.note(
            f"Pushed {number(result['accepted'])} event{'' if result['accepted'] == 1 else 's'} to {name}{duplicates}."
        )


@command(
    app,
    "tail",
    examples=[
        "penstock queue tail orders",
        "penstock queue tail orders -n 0 --follow",
        "penstock queue tail orders -f --key tenant-1 --json | jq .data",
    ],
)
async def tail(
    session: Session,
    name: QueueName,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="How many of the newest events.")
    ] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is pushed, until Ctrl-C.")] = False,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Events of this key only.")] = None,
) -> None:
    """Show the newest events of a queue, the oldest of them first, without consuming them."""
    from penstock.cli.tail import Tail, print_events

    async with session.transport() as transport:
        await find_queue(transport, name)
        tail = Tail(transport, name, key)
        print_events(session.out, await tail.newest(lines))
        if follow:
            async for events in tail.follow():
                print_events(session.out, events)


@command(
    app,
    "configure",
    examples=[
        "penstock queue configure orders --lease-seconds 60 --retry-limit 5",
        "penstock queue configure orders --retention-seconds none",
    ],
    options=queue_changes,
)
async def configure(session: Session, name: QueueName, **options: Any) -> None:
    """Change the options that are named; the others stay as they are."""
    from penstock.cli import json_output

    changes = queue_changes(**options)
    if not changes:
        raise typer.BadParameter("name at least one option to change")
    async with session.transport() as transport:
        before = json_output.queue_options(await find_queue(transport, name))
        queue = await transport.configure(name, changes)
    after = json_output.queue_options(queue)
    if session.out.json:
        session.out.document(json_output.queue_summary(queue))
        return
    changed = [
        f"{option}: {show_option(before[option])} → {show_option(value)}"
        for option, value in after.items()
        if value != before[option]
    ]
    session.out.note("\n".join(changed) if changed else "Nothing changed: that is how it was.")


@command(
    app,
    "repartition",
    examples=["penstock queue repartition clicks --partitions 32", "penstock queue repartition clicks --by key"],
)
async def repartition(session: Session, name: QueueName, by: By = None, partitions: Partitions = None) -> None:
    """Partition a queue differently from now on.

    Every group finishes what is in the old partitions first, so that the order of each key is kept.
    """
    from penstock.cli import json_output

    if by is None and partitions is None:
        raise typer.BadParameter("say how: --by key, or --partitions and a number")
    async with session.transport() as transport:
        before = await find_queue(transport, name)
        queue = await transport.repartition(name, by or "hash", partitions)
    changed = queue.epoch != before.epoch
    if session.out.json:
        session.out.document({"changed": changed, **json_output.queue_summary(queue)})
    else:
        session.out.note(f"Queue {name} is partitioned {_kind(queue)}{' now' if changed else ' already'}.")


@command(app, "delete", examples=["penstock queue delete orders", "penstock queue delete orders --yes"])
async def delete(session: Session, name: QueueName, yes: Yes = False) -> None:
    """Delete a queue with its events, groups and dead letters, for good."""
    async with session.transport() as transport:
        await find_queue(transport, name)
        if not yes:
            held = (await transport.describe(name)).size.events
            session.out.confirm(f"Delete queue {name} with its {number(held)} events, groups and dead letters?")
        deleted = await transport.delete_queue(name)
    if session.out.json:
        session.out.document({"queue": name, "deleted": deleted})
    else:
        session.out.note(f"Deleted queue {name}." if deleted else f"Queue {name} was deleted by somebody else.")


async def _exists(transport: Transport, name: str) -> bool:
    from penstock.core.errors import NotFound

    try:
        await transport.queue(name)
    except NotFound:
        return False
    return True


def _kind(queue: Queue) -> str:
    return "by key" if queue.partition_count is None else f"by hash, {queue.partition_count} partitions"
