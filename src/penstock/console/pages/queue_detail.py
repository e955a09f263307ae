"""One queue: its groups, partitions, events and options, a part at a time."""

from __future__ import annotations

from shlex import quote

from penstock.console.data.queue_stats import GroupSight, QueueSight, QueueSights
from penstock.console.page import View, link
from penstock.console.pages import push_event, queue_events, queue_group, queue_options
from penstock.console.widgets import forms, parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.log.queue import Queue
from penstock.log.queue_info import QueueInfo

PATH = "/queues"
_LANES = 50

_GROUPS = (
    "Group",
    Column("Behind", is_number=True),
    Column("Done per second", is_number=True, classes="ps-desk"),
    Column("Partitions behind", is_number=True, classes="ps-desk"),
    Column("Leases", is_number=True, classes="ps-desk"),
    Column("Oldest waits", is_number=True),
    Column("Read by", classes="ps-desk"),
    "State",
)
_PARTITIONS = (
    "Partition",
    Column("Events kept", is_number=True),
    Column("Offsets", is_number=True, classes="ps-desk"),
    Column("Furthest behind", is_number=True),
    Column("Leases", is_number=True, classes="ps-desk"),
    Column("Last event", is_number=True),
)


async def build(view: View, name: str) -> None:
    """Make the page of a queue."""
    try:
        info = await view.log.describe(name) if view.sees(name) else None
    except NotFound:
        info = None
    forms.trail(("Queues", PATH), here=name)
    if info is None:
        parts.nothing("There is no such queue", "It was deleted, or its name is another one.")
        return
    tab = view.params.get("tab", "groups")
    if "group" in view.params:
        await queue_group.build(view, info.queue.name, view.params["group"])
        return
    with parts.element("div", "ps-row ps-between"):
        with parts.element("div", "ps-row"):
            parts.badge(_partitioning(info.queue), "info")
            if info.queue.overflow == "shed":
                parts.badge("sheds when full", "warn")
        push_event.button(view, name)
    forms.tabs(
        "Parts of the queue",
        tab,
        {
            each: (title, link(PATH, queue=name, tab=each if each != "groups" else None))
            for each, title in (
                ("groups", "Groups"),
                ("partitions", "Partitions"),
                ("events", "Events"),
                ("options", "Options"),
            )
        },
    )
    match tab:
        case "partitions":
            await _partitions(view, name)
        case "events":
            await queue_events.build(view, info.queue)
        case "options":
            queue_options.build(view, info.queue)
        case _:
            await _groups(view, info)


async def _groups(view: View, info: QueueInfo) -> None:
    name = info.queue.name
    with parts.tiles():
        kept = parts.tile("Events kept", href=link(PATH, queue=name, tab="events"))
        rate = parts.tile("In per second")
        partitions = parts.tile("Partitions", href=link(PATH, queue=name, tab="partitions"))
        size = parts.tile("On disk")
        dead = parts.tile("Dead letters", href=link("/dead-letters", queue=name))
    size.set(formatting.size(info.size.bytes), f"{formatting.compact(info.size.appended)} ever appended")
    readers = {group.group: group.query_id for group in await view.log.groups(name)}
    with parts.card("Groups", hint="Each reads the queue at its own pace") as card:
        table = parts.table("Groups", _GROUPS)
    none = parts.nothing(
        "Nobody reads this queue yet",
        "A group comes into being when a consumer first asks for events, or a query or a sink starts.",
        f"penstock sink run {quote(name)} --to console",
        icon="group",
    )

    def show(queues: list[QueueSight]) -> None:
        found = next((queue for queue in queues if queue.name == name), None)
        if found is None:
            return
        kept.set(formatting.compact(found.events))
        rate.set(formatting.rate(found.rate), f"{formatting.number(found.shed)} shed" if found.shed else "")
        partitions.set(formatting.number(found.partitions))
        dead.set(formatting.compact(found.dead), tone="bad" if found.dead else None)
        card.set_visibility(bool(found.groups))
        none.set_visibility(not found.groups)
        table.set(_group_rows(found, readers))

    await view.follow("queues", QueueSights(view.console.database_metrics).look, show)


def _group_rows(queue: QueueSight, readers: dict[str, str | None]) -> list[list[Cell | str]]:
    most = max((group.lag for group in queue.groups), default=0)
    rows: list[list[Cell | str]] = []
    for group in queue.groups:
        query = readers.get(group.name)
        rows.append(
            [
                Cell(group.name, href=link(PATH, queue=queue.name, group=group.name), classes="ps-strong ps-break"),
                Cell(formatting.compact(group.lag), bar=group.lag / most if most else None),
                formatting.rate(group.rate),
                formatting.number(group.behind),
                formatting.number(group.leases),
                formatting.duration(group.oldest_seconds) if group.lag else "–",
                _reader(group, query),
                _state(group, query),
            ]
        )
    return rows


def _reader(group: GroupSight, query: str | None) -> Cell | str:
    if query is not None:
        return Cell(query, href=link("/queries", query=query))
    return "consumers" if group.sink is None else "a sink"


def _state(group: GroupSight, query: str | None) -> Cell:
    """What a group does, in a word."""
    if group.sink == "resting":
        return Cell("resting", tone="bad")
    if group.sink == "stopped":
        return Cell("stopped", tone="warn" if group.lag else "idle")
    if not group.counts:
        return Cell("does not count", tone="idle")
    if query is not None or group.leases:
        return Cell("reading", tone="good")
    return Cell("waiting", tone="warn") if group.lag else Cell("caught up", tone="idle")


async def _partitions(view: View, name: str) -> None:
    search = view.params.get("search", "")
    page = forms.whole(view.params, "page")
    found = await view.log.partition_page(name, search=search or None, limit=_LANES + 1, offset=page * _LANES)
    with forms.filters(PATH, "Find partitions", {"queue": name, "tab": "partitions"}):
        forms.field("search", "Name", search, hint="Part of a key", width="260px")
        forms.submit("Find")
    if not found:
        parts.nothing(
            "No partition has that in its name" if search else "No partitions yet",
            "" if search else "Each key gets one when it is first pushed.",
            icon="view_column",
        )
        return
    with parts.card("Partitions", hint="By name; behind is whoever is furthest behind"):
        table = parts.table("Partitions", _PARTITIONS)
    most = max(lane.lag for lane in found)
    table.set(
        [
            Cell(lane.name, href=link(PATH, queue=name, tab="events", partition=lane.name), classes="ps-break"),
            formatting.number(lane.end - lane.first),
            f"{formatting.number(lane.first)} – {formatting.number(lane.end)}",
            Cell(formatting.number(lane.lag), bar=lane.lag / most if most else None),
            formatting.number(lane.leases),
            view.times.ago(lane.last_at) if lane.last_at is not None else "–",
        ]
        for lane in found[:_LANES]
    )
    forms.pager(
        PATH,
        {"queue": name, "tab": "partitions", "search": search or None},
        page,
        len(found) > _LANES,
        "the partitions",
    )


def _partitioning(queue: Queue) -> str:
    if queue.partition_count is None:
        return "a lane for each key"
    return f"{queue.partition_count} partitions by hash"
