"""``penstock queue`` and ``penstock push``: create, inspect, fill and change queues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli import json_output
from penstock.cli.command import command
from penstock.cli.command_session import CommandSession, find_queue
from penstock.cli.completion import queue_names
from penstock.cli.queue_options import QUEUE_CHANGES, QUEUE_OPTIONS, parse_queue_options
from penstock.cli.times import format_time
from penstock.core.errors import NotFound
from penstock.core.formatting import counted, number, size
from penstock.log.queue_options import format_option

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.transport import Transport
    from penstock.log.queue import Queue
    from penstock.log.queue_info import GroupInfo, QueueInfo
    from penstock.log.storage.partitions import Partition

app = typer.Typer(help="Queues: create, inspect, fill and change them.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.", autocompletion=queue_names)]
By = Annotated[
    Literal["key", "hash"] | None,
    typer.Option(
        help="key: one partition per key, created on first use. hash: a fixed number of partitions.",
        show_default="key, or hash if --partitions is given",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(help="The number of partitions of a queue partitioned by hash.", show_default="8", metavar="N"),
]
KeyField = Annotated[str | None, typer.Option(metavar="FIELD", help="The field that holds the key.")]
IdField = Annotated[str | None, typer.Option(metavar="FIELD", help="The field that holds the id.")]
TimeField = Annotated[str | None, typer.Option(metavar="FIELD", help="The field that holds the time.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_SHOWN_PARTITIONS = 5


@command(app, "list", examples=["penstock queue list", "penstock queue list --json | jq '.[].name'"])
async def list_queues(session: CommandSession) -> None:
    """List all queues with their size, the lag of their slowest group and their dead letters."""
    await print_queues(session)


async def print_queues(session: CommandSession) -> None:
    async with session.transport() as transport:
        listing = [
            json_output.queue_listing(await transport.describe(queue.name)) for queue in await transport.queues()
        ]
    numbers = ("partitions", "events", "size", "groups", "lag", "dead letters")
    rows = [
        (
            queue["name"],
            queue["partitioning"],
            number(queue["partitions"]),
            number(queue["events"]),
            size(queue["bytes"]),
            number(queue["groups"]),
            number(queue["lag"]),
            number(queue["dead_letters"]),
        )
        for queue in listing
    ]
    empty = "There is no queue yet. Create one with `penstock queue create orders`."
    session.out.listing(listing, ("queue", "by", *numbers), rows, right=numbers, empty=empty)


@command(
    app,
    "create",
    examples=[
        "penstock queue create orders",
        "penstock queue create clicks --by hash --partitions 16 --retention-seconds 604800",
        "penstock queue create emails --retry-limit 5 --retry-delay-ms 30000",
    ],
    options=QUEUE_OPTIONS,
)
async def create(
    session: CommandSession,
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")],
    by: By = None,
    partitions: Partitions = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Succeed without a change if the queue exists.")
    ] = False,
    **options: Any,
) -> None:
    """Create a queue.

    Options that are not given get their default. `penstock queue configure` changes them later.
    """
    queue_settings = parse_queue_options(options)
    async with session.transport() as transport:
        created = not if_missing or not await _exists(transport, name)
        if created:
            await transport.configure(name, queue_settings, partitioning=by, partitions=partitions, only_new=True)
        queue = await find_queue(transport, name)
    session.out.result(
        {"created": created, **json_output.queue_summary(queue)},
        f"Created queue {name}, {_format_partitioning(queue)}." if created else f"Queue {name} exists already.",
    )


@command(
    app,
    "show",
    examples=["penstock queue show orders", "penstock queue show orders --json | jq .groups"],
)
async def show(session: CommandSession, name: QueueName) -> None:
    """Show a queue: its options, size, largest partitions, groups and dead letters."""
    async with session.transport() as transport:
        await find_queue(transport, name)
        partitions = await transport.partitions(name, _SHOWN_PARTITIONS)
        info = await transport.describe(name)
    if session.out.json:
        session.out.document(json_output.queue_details(info, partitions))
    else:
        _show(session.out, info, partitions)


def _show(out: Output, info: QueueInfo, partitions: Sequence[Partition]) -> None:
    from penstock.log.catalog import many_partitions_advice
    from penstock.log.queue_info import describe_unread_limit, find_holding_group

    queue, totals = info.queue, info.size
    out.fields(
        f"Queue {queue.name}, {_format_partitioning(queue)}",
        [
            ("events", f"{number(totals.events)} kept, {number(totals.appended)} ever appended"),
            *(
                [("inbox", f"{counted(totals.inbox, 'event')} pushed from SQL, not yet in a partition")]
                if totals.inbox
                else []
            ),
            ("size", size(totals.bytes)),
            ("partitions", number(totals.partitions)),
            ("dead letters", number(info.dead_letters)),
            *([("shed", f"{counted(totals.shed, 'event')}, because the queue was full")] if totals.shed else []),
        ],
    )
    out.fields("Options", [(name, format_option(value)) for name, value in json_output.queue_options(queue).items()])
    if partitions:
        rows = [
            (partition.name, number(partition.end - partition.first), number(partition.first), number(partition.end))
            for partition in partitions
        ]
        title = "Partitions" if len(rows) == totals.partitions else f"The {len(rows)} largest partitions"
        numbers = ("events", "from offset", "to before")
        out.table(("partition", *numbers), rows, title=title, right=numbers)
    if info.groups:
        out.table(
            ("group", *GROUP_COLUMNS),
            [group_row(group) for group in info.groups],
            title="Groups",
            right=GROUP_COLUMNS[:3],
        )
        if (group := find_holding_group(queue, info.groups)) is not None:
            out.warn(_format_holding_group(group, queue.max_depth_events))
    else:
        out.hint("No group reads the queue yet. The first pop of a consumer creates one.")
        if (problem := describe_unread_limit(queue, totals.events)) is not None:
            out.warn(problem)
    if queue.partitions_warned_at:
        out.warn(many_partitions_advice(queue.name))


def _format_holding_group(group: GroupInfo, limit: int | None) -> str:
    action = {"failed": "Start it, or let", "paused": "Resume it, or let"}.get(group.query_state or "", "Let")
    return (
        f"pushes wait for {group.reader}: it is {counted(group.lag, 'event')} behind, and max_depth_events is "
        f"{number(limit)}. {action} pushes pass it: `{group.release_command}`"
    )


GROUP_COLUMNS = ("lag", "partitions behind", "leases", "holds pushes back", "read by")


def group_row(group: GroupInfo) -> tuple[str, ...]:
    """Return the name of a group and its GROUP_COLUMNS."""
    counts = map(number, (group.lag, group.partitions_behind, group.leases))
    return (group.group, *counts, format_backpressure(group), format_reader(group))


def format_backpressure(group: GroupInfo) -> str:
    """Return whether a full queue holds pushes back for a group, as text."""
    if not group.counts:
        return "no"
    if group.query_state == "stopped":
        return "no, stopped"
    return f"no, inactive since {format_time(group.seen_at)}" if group.away else "yes"


def format_reader(group: GroupInfo) -> str:
    """Return what reads a group: consumers, or a query and whether it runs."""
    if group.query_state is None:
        return "consumers" if group.query_id is None else "a query"
    return f"a {group.query_state} query"


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
    session: CommandSession,
    name: QueueName,
    events: Annotated[
        list[str] | None,
        typer.Argument(metavar="JSON", help="One or more events, each a JSON value.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The key of events without a key of their own.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the event; for a single event only.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Read events from a file, one JSON value per line; - is stdin."
        ),
    ] = None,
    key_field: KeyField = None,
    id_field: IdField = None,
    time_field: TimeField = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long to retry while the queue is full.")] = 0.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Skip the parts of this file that an earlier run with --once has pushed within a day."
        ),
    ] = False,
) -> None:
    """Push events: arguments in one transaction, a file or stdin batch by batch.

    A file may be compressed with gzip or zstd. The queue does not store an event again if it has seen its id, so a
    file of events with ids can safely be pushed twice. Use --once for a file of events without ids.
    """
    from penstock.cli.event_input import EventPusher, PushTarget

    fields = PushTarget(name, key, key_field, id_field, time_field)
    if events and file is not None:
        raise typer.BadParameter("give events as arguments or in a file, not both")
    if once and (events or file is None or str(file) == "-"):
        raise typer.BadParameter("--once works with --file only: a pipe cannot be read again")
    if id is not None and (not events or len(events) != 1):
        raise typer.BadParameter("--id is the id of one event: give one event as argument, or use --id-field")
    async with session.transport() as transport:
        await find_queue(transport, name)
        pusher = EventPusher(transport, fields, session.out, wait)
        if events:
            result = await pusher.push_arguments(events, id)
        else:
            result = await pusher.push_file(file, once=once)
    duplicates = f", without {counted(result['duplicates'], 'duplicate')}" if result["duplicates"] else ""
    session.out.result(result, f"Pushed {counted(result['accepted'], 'event')} to {name}{duplicates}.")


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
    session: CommandSession,
    name: QueueName,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="The number of newest events to show.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new events as they are pushed, until Ctrl-C.")
    ] = False,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Show events of this key only.")] = None,
) -> None:
    """Show the newest events of a queue, oldest first, without consuming them."""
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
    options=QUEUE_CHANGES,
)
async def configure(session: CommandSession, name: QueueName, **options: Any) -> None:
    """Change options of a queue. Options that are not given keep their value."""
    changes = parse_queue_options(options)
    if not changes:
        raise typer.BadParameter("give at least one option to change")
    async with session.transport() as transport:
        before = json_output.queue_options(await find_queue(transport, name))
        queue = await transport.configure(name, changes)
    after = json_output.queue_options(queue)
    changed = [
        f"{option}: {format_option(before[option])} → {format_option(value)}"
        for option, value in after.items()
        if value != before[option]
    ]
    text = "\n".join(changed) or "Nothing changed: the options already have these values."
    session.out.result(json_output.queue_summary(queue), text)


@command(
    app,
    "repartition",
    examples=["penstock queue repartition clicks --partitions 32", "penstock queue repartition clicks --by key"],
)
async def repartition(session: CommandSession, name: QueueName, by: By = None, partitions: Partitions = None) -> None:
    """Change the partitioning of a queue for new events.

    Every group finishes the old partitions first, which preserves the order of each key.
    """
    if by is None and partitions is None:
        raise typer.BadParameter("give --by key, or --partitions with a number")
    async with session.transport() as transport:
        before = await find_queue(transport, name)
        queue = await transport.repartition(name, by or "hash", partitions)
    changed = queue.epoch != before.epoch
    session.out.result(
        {"changed": changed, **json_output.queue_summary(queue)},
        f"Queue {name} is partitioned {_format_partitioning(queue)}{' now' if changed else ' already'}.",
    )


@command(app, "delete", examples=["penstock queue delete orders", "penstock queue delete orders --yes"])
async def delete(session: CommandSession, name: QueueName, yes: Yes = False) -> None:
    """Delete a queue with its events, groups and dead letters permanently."""
    async with session.transport() as transport:
        await find_queue(transport, name)
        if not yes:
            events = (await transport.describe(name)).size.events
            session.out.confirm(f"Delete queue {name} with its {counted(events, 'event')}, groups and dead letters?")
        deleted = await transport.delete_queue(name)
    session.out.result(
        {"queue": name, "deleted": deleted},
        f"Deleted queue {name}." if deleted else f"Queue {name} was deleted by another process.",
    )


async def _exists(transport: Transport, name: str) -> bool:
    try:
        await transport.queue(name)
    except NotFound:
        return False
    return True


def _format_partitioning(queue: Queue) -> str:
    return "by key" if queue.partition_count is None else f"by hash, {counted(queue.partition_count, 'partition')}"
