"""``penstock group``: positions of consumer groups."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import json_output
from penstock.cli.command import command
from penstock.cli.command_session import CommandSession, find_queue
from penstock.cli.commands.queue import GROUP_COLUMNS, QueueName, Yes, format_backpressure, group_row
from penstock.cli.completion import queue_names
from penstock.cli.times import format_time, parse_time
from penstock.core.errors import NotFound
from penstock.core.formatting import counted, number

if TYPE_CHECKING:
    from penstock.client.transport import Transport
    from penstock.log.queue_info import GroupInfo

app = typer.Typer(help="Consumer groups: show their positions and move them.")

OptionalQueue = Annotated[
    str | None,
    typer.Argument(metavar="QUEUE", help="This queue only.", autocompletion=queue_names, show_default=False),
]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]

_SHOWN_PARTITIONS = 20


@command(app, "list", examples=["penstock group list", "penstock group list orders --json"])
async def list_groups(session: CommandSession, queue: OptionalQueue = None) -> None:
    """List groups with their lag."""
    async with session.transport() as transport:
        if queue is not None:
            await find_queue(transport, queue)
        groups = await transport.groups(queue)
    listing = [asdict(group) for group in groups]
    rows = [(group.queue, *group_row(group), group.subscribed_from, format_time(group.created_at)) for group in groups]
    columns = ("queue", "group", *GROUP_COLUMNS, "subscribed from", "since")
    empty = "There is no group yet. The first pop of a consumer creates one."
    session.out.listing(listing, columns, rows, right=GROUP_COLUMNS[:3], empty=empty)


@command(app, "show", examples=["penstock group show orders billing", "penstock group show orders billing --json"])
async def show(session: CommandSession, queue: QueueName, group: GroupName) -> None:
    """Show the position of a group in each partition, the largest lag first."""
    async with session.transport() as transport:
        info = await _find_group(transport, queue, group)
        partitions = [
            json_output.group_partition(position) for position in await transport.group_positions(queue, group)
        ]
    partitions.sort(key=lambda partition: -partition["lag"])
    if session.out.json:
        session.out.document({**asdict(info), "partitions": partitions})
        return
    session.out.fields(
        f"Group {group} of queue {queue}",
        [
            ("lag", f"{counted(info.lag, 'event')} in {counted(info.partitions_behind, 'partition')}"),
            ("leases", number(info.leases)),
            ("holds pushes back", format_backpressure(info)),
            ("last seen", format_time(info.seen_at)),
            ("subscribed from", info.subscribed_from),
            ("since", format_time(info.created_at)),
            *([("query", ", ".join(filter(None, (info.query_id, info.query_state))))] if info.query_id else []),
        ],
    )
    if not partitions:
        return
    shown = partitions[:_SHOWN_PARTITIONS]
    numbers = ("lag", "next offset", "end", "failed attempts")
    rows = [_row(partition) for partition in shown]
    title = (
        "Partitions"
        if len(shown) == len(partitions)
        else f"The {len(shown)} of {len(partitions):,} partitions with the largest lag"
    )
    session.out.table(("partition", *numbers, "lease", "last moved"), rows, title=title, right=numbers)


def _row(partition: dict[str, Any]) -> tuple[str, ...]:
    lease = "until " + format_time(partition["available_at"]) if partition["leased"] else ""
    counts = ("lag", "next_offset", "end_offset", "attempts")
    return (
        partition["partition"],
        *(number(partition[name]) for name in counts),
        lease,
        format_time(partition["moved_at"]),
    )


@command(
    app,
    "seek",
    examples=[
        "penstock group seek orders billing --to beginning",
        "penstock group seek orders billing --to 2026-01-31T12:00:00Z",
        "penstock group seek orders billing --to 2h",
        "penstock group seek orders billing --to 1500 --partition tenant-1",
    ],
)
async def seek(
    session: CommandSession,
    queue: QueueName,
    group: GroupName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="beginning, end, a time (2026-01-31T12:00:00Z, or 2h for two hours ago), "
            "or, with --partition, an offset.",
        ),
    ],
    partition: Annotated[
        str | None, typer.Option(metavar="NAME", help="Move the group in this partition only.")
    ] = None,
) -> None:
    """Move a group back to read events again, or forward to skip events. Leased events are delivered again."""
    position = _parse_position(to)
    async with session.transport() as transport:
        await _find_group(transport, queue, group)
        moved = await transport.seek(queue, group, position, partition=partition)  # type: ignore[arg-type]  # seek validates strings
        lag = (await _find_group(transport, queue, group)).lag
    session.out.result(
        {"queue": queue, "group": group, "partitions": moved, "lag": lag},
        f"Moved group {group} in {counted(moved, 'partition')}: {counted(lag, 'event')} to read.",
    )


@command(
    app,
    "configure",
    examples=[
        "penstock group configure orders nightly-report --no-count",
        "penstock group configure orders billing --count",
    ],
)
async def configure(
    session: CommandSession,
    queue: QueueName,
    group: GroupName,
    count: Annotated[
        bool, typer.Option("--count/--no-count", help="Whether pushes wait for this group when the queue is full.")
    ],
) -> None:
    """Set whether a group counts for the depth of its queue (max_depth_events)."""
    async with session.transport() as transport:
        await _find_group(transport, queue, group)
        await transport.configure_group(queue, group, counts=count)
        info = await _find_group(transport, queue, group)
    verb = "counts" if count else "no longer counts"
    session.out.result(asdict(info), f"Group {group} {verb} for the depth of queue {queue}.")


@command(app, "delete", examples=["penstock group delete orders billing", "penstock group delete orders billing --yes"])
async def delete(session: CommandSession, queue: QueueName, group: GroupName, yes: Yes = False) -> None:
    """Delete a group and its position. Its events and dead letters stay."""
    async with session.transport() as transport:
        info = await _find_group(transport, queue, group)
        if not yes:
            session.out.confirm(f"Delete group {group} of queue {queue}, {counted(info.lag, 'event')} behind?")
        deleted = await transport.delete_group(queue, group)
    session.out.result({"queue": queue, "group": group, "deleted": deleted}, f"Deleted group {group} of queue {queue}.")


async def _find_group(transport: Transport, queue: str, group: str) -> GroupInfo:
    await find_queue(transport, queue)
    for info in await transport.groups(queue):
        if info.group == group:
            return info
    raise NotFound(f"queue {queue!r} has no group {group!r}: `penstock group list {queue}` lists its groups")


def _parse_position(text: str) -> str | datetime | int:
    if text in ("beginning", "end"):
        return text
    return int(text) if text.isdecimal() else parse_time(text)
