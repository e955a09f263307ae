"""``penstock group``: where consumer groups stand, and moving them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.commands.queue import QueueName, Yes, holds_back
from penstock.cli.completion import queue_names
from penstock.cli.session import Session, find_queue
from penstock.cli.times import parse_time, show_time
from penstock.core.formatting import number

if TYPE_CHECKING:
    from penstock.client.transport import Transport
    from penstock.log.queue_info import GroupInfo

app = typer.Typer(help="Consumer groups: where each stands, and moving it.")

OptionalQueue = Annotated[
    str | None,
    typer.Argument(metavar="QUEUE", help="This queue only.", autocompletion=queue_names, show_default=False),
]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]

_MOST_BEHIND = 20


@command(app, "list", examples=["penstock group list", "penstock group list orders --json"])
async def list_groups(session: Session, queue: OptionalQueue = None) -> None:
    """List groups and how far each is behind."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        if queue is not None:
            await find_queue(transport, queue)
        found = await transport.groups(queue)
    if session.out.json:
        session.out.document([json_output.group_listing(group) for group in found])
        return
    if not found:
        session.out.hint("There is no group yet: the first pop of a consumer makes one.")
        return
    numbers = ("lag", "partitions behind", "leases")
    rows = [
        (
            group.queue,
            group.group,
            number(group.lag),
            number(group.partitions_behind),
            number(group.leases),
            holds_back(json_output.group_listing(group)),
            group.subscribed_from,
            show_time(group.created_at),
        )
        for group in found
    ]
    columns = ("queue", "group", *numbers, "holds pushes back", "subscribed from", "since")
    session.out.table(columns, rows, right=numbers)


@command(app, "show", examples=["penstock group show orders billing", "penstock group show orders billing --json"])
async def show(session: Session, queue: QueueName, group: GroupName) -> None:
    """Show where a group stands in each partition, the ones furthest behind first."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        info = await _find_group(transport, queue, group)
        lanes = [json_output.group_lane(lane) for lane in await transport.group_positions(queue, group)]
    lanes.sort(key=lambda lane: -lane["lag"])
    if session.out.json:
        session.out.document({**json_output.group_listing(info), "partitions": lanes})
        return
    session.out.facts(
        f"Group {group} of queue {queue}",
        [
            ("lag", f"{number(info.lag)} events in {number(info.partitions_behind)} partitions"),
            ("leases", number(info.leases)),
            ("holds pushes back", holds_back(json_output.group_listing(info))),
            ("last seen", show_time(info.seen_at)),
            ("subscribed from", info.subscribed_from),
            ("since", show_time(info.created_at)),
            *([("query", info.query_id)] if info.query_id is not None else []),
        ],
    )
    if not lanes:
        return
    shown = lanes[:_MOST_BEHIND]
    numbers = ("lag", "next offset", "end", "failed attempts")
    rows = [_row(lane) for lane in shown]
    title = "Partitions" if len(shown) == len(lanes) else f"The {len(shown)} of {len(lanes):,} partitions most behind"
    session.out.table(("partition", *numbers, "lease", "last moved"), rows, title=title, right=numbers)


def _row(lane: dict[str, Any]) -> tuple[str, ...]:
    lease = "until " + show_time(lane["available_at"]) if lane["leased"] else ""
    counts = ("lag", "next_offset", "end_offset", "attempts")
    return (lane["partition"], *(number(lane[name]) for name in counts), lease, show_time(lane["moved_at"]))


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
    session: Session,
    queue: QueueName,
    group: GroupName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="beginning, end, a time (2026-01-31T12:00:00Z, or 2h for two hours ago), "
            "or with --partition an offset.",
        ),
    ],
    partition: Annotated[str | None, typer.Option(metavar="NAME", help="Move it in this partition only.")] = None,
) -> None:
    """Move a group, back to read again or forward to skip. What it held under leases is delivered anew."""
    place = _place(to)
    async with session.transport() as transport:
        await _find_group(transport, queue, group)
        moved = await transport.seek(queue, group, place, partition=partition)  # type: ignore[arg-type]  # it checks strings
        lag = (await _find_group(transport, queue, group)).lag
    if session.out.json:
        session.out.document({"queue": queue, "group": group, "partitions": moved, "lag": lag})
    else:
        session.out.note(f"Moved group {group} in {number(moved)} partitions: {number(lag)} events to read.")


@command(
    app,
    "configure",
    examples=[
        "penstock group configure orders nightly-report --no-count",
        "penstock group configure orders billing --count",
    ],
)
async def configure(
    session: Session,
    queue: QueueName,
    group: GroupName,
    count: Annotated[
        bool, typer.Option("--count/--no-count", help="Whether pushes wait for the group when the queue is full.")
    ],
) -> None:
    """Say whether a group counts for the depth of its queue (max_depth_events)."""
    from penstock.cli import json_output

    async with session.transport() as transport:
        await _find_group(transport, queue, group)
        await transport.configure_group(queue, group, counts=count)
        info = await _find_group(transport, queue, group)
    if session.out.json:
        session.out.document(json_output.group_listing(info))
    else:
        does = "counts" if count else "no longer counts"
        session.out.note(f"Group {group} {does} for the depth of queue {queue}.")


@command(app, "delete", examples=["penstock group delete orders billing", "penstock group delete orders billing --yes"])
async def delete(session: Session, queue: QueueName, group: GroupName, yes: Yes = False) -> None:
    """Forget a group and where it stood. The events stay, and so do its dead letters."""
    async with session.transport() as transport:
        info = await _find_group(transport, queue, group)
        if not yes:
            session.out.confirm(f"Forget group {group} of queue {queue}, {number(info.lag)} events behind?")
        deleted = await transport.delete_group(queue, group)
    if session.out.json:
        session.out.document({"queue": queue, "group": group, "deleted": deleted})
    else:
        session.out.note(f"Deleted group {group} of queue {queue}.")


async def _find_group(transport: Transport, queue: str, group: str) -> GroupInfo:
    from penstock.core.errors import NotFound

    await find_queue(transport, queue)
    for info in await transport.groups(queue):
        if info.group == group:
            return info
    raise NotFound(f"queue {queue!r} has no group {group!r}: `penstock group list {queue}` shows those it has")


def _place(text: str) -> str | datetime | int:
    if text in ("beginning", "end"):
        return text
    return int(text) if text.isdecimal() else parse_time(text)
