"""One queue, with tabs for its groups, partitions, events and options."""

from __future__ import annotations

from shlex import quote

from penstock.console.data.queue_summary import GroupSummary, QueueSummary, read_queues
from penstock.console.page import View, url_for
from penstock.console.pages import queue_events, queue_group, queue_options
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.log.queue import Queue
from penstock.log.queue_info import GroupInfo, QueueInfo, describe_unread_limit, find_holding_group
from penstock.log.storage.partitions import PartitionStatus

PATH = "/queues"
_PAGE_SIZE = 50


async def build(view: View, name: str) -> None:
    try:
        info = await view.log.describe(name) if view.can_see(name) else None
    except NotFound:
        info = None
    forms.breadcrumb(("Queues", PATH), current=name)
    if info is None:
        elements.empty_state("There is no such queue", "It was deleted, or its name is different.")
        return
    tab = view.params.get("tab", "groups")
    if "group" in view.params:
        await queue_group.build(view, info.queue.name, view.params["group"])
        return
    with elements.element("div", "ps-row ps-between"):
        with elements.element("div", "ps-row"):
            elements.badge(_partitioning(info.queue), "info")
            if info.queue.overflow == "shed":
                elements.badge("sheds when full", "warn")
        queue_events.push_button(view, name)
    forms.tabs(
        "Queue tabs",
        tab.capitalize(),
        {
            title: url_for(PATH, queue=name, tab=title.lower())
            for title in ("Groups", "Partitions", "Events", "Options")
        },
    )
    match tab:
        case "partitions":
            await _build_partitions(view, name)
        case "events":
            await queue_events.build(view, info.queue)
        case "options":
            queue_options.build(view, info.queue)
        case _:
            await _build_groups(view, info)


async def _build_groups(view: View, info: QueueInfo) -> None:
    name = info.queue.name
    with elements.tiles():
        events_tile = elements.tile("Events stored", href=url_for(PATH, queue=name, tab="events"))
        rate_tile = elements.tile("Events in/s")
        partitions_tile = elements.tile("Partitions", href=url_for(PATH, queue=name, tab="partitions"))
        size_tile = elements.tile("On disk")
        dead_tile = elements.tile("Dead letters", href=url_for("/dead-letters", queue=name))
    size_tile.set(formatting.size(info.size.bytes), "when the page was opened")
    infos: dict[str, GroupInfo] = {}
    holding_area = elements.element("div")
    largest_lag = 0
    columns: list[TableColumn[GroupSummary]] = [
        TableColumn(
            "Group",
            lambda group: key_cell(group.name, url_for(PATH, queue=name, group=group.name)),
        ),
        number_column("Lag", lambda group: _lag_cell(group.lag, largest_lag)),
        number_column("Events read/s", lambda group: formatting.rate(group.rate), classes="ps-desktop"),
        number_column("Partitions behind", lambda group: formatting.number(group.behind), classes="ps-desktop"),
        number_column("Leases", lambda group: formatting.number(group.leases), classes="ps-desktop"),
        number_column("Oldest unread", lambda group: formatting.duration(group.oldest_seconds) if group.lag else "–"),
        TableColumn("Read by", lambda group: _reader(group, infos.get(group.name)), classes="ps-desktop"),
        TableColumn("State", lambda group: _state(group, infos.get(group.name))),
    ]
    with elements.card("Groups", hint="each has its own position") as card:
        table = DataTable("Groups", columns)
    with elements.card("Unread events") as unread_card:
        unread_text = elements.text("", tag="p")
    unread_card.set_visibility(False)
    empty = elements.empty_state(
        "No groups yet",
        "A group is created when a consumer, a query or a sink reads from the queue for the first time.",
        f"penstock sink run {quote(name)} --to console",
        icon="group",
    )

    def show_holding_group(groups: list[GroupInfo]) -> None:
        infos.update((group.group, group) for group in groups)
        group = find_holding_group(info.queue, groups)
        holding_area.clear()
        holding_area.set_visibility(group is not None)
        if group is None:
            return
        behind, limit = formatting.counted(group.lag, "event"), formatting.number(info.queue.max_depth_events)
        hint = {"failed": " Start it to go on.", "paused": " Resume it to go on."}.get(group.query_state or "", "")
        with holding_area, elements.card("Pushes wait"):
            elements.text(
                f"The {group.reader} is {behind} behind, and max_depth_events of the queue is {limit}.{hint}",
                tag="p",
            )
            elements.text("To let pushes pass the group, run:", "ps-muted", tag="p")
            elements.command_line(group.release_command)

    def show(queues: list[QueueSummary]) -> None:
        nonlocal largest_lag
        queue = next((queue for queue in queues if queue.name == name), None)
        if queue is None:
            return
        events_tile.set(formatting.compact(queue.events), f"{formatting.compact(queue.appended)} ever appended")
        rate_tile.set(formatting.rate(queue.rate), f"{formatting.number(queue.shed)} shed" if queue.shed else "")
        partitions_tile.set(formatting.number(queue.partitions))
        dead_tile.set(formatting.compact(queue.dead), tone="bad" if queue.dead else "idle")
        problem = None if queue.groups else describe_unread_limit(info.queue, queue.events)
        unread_card.set_visibility(problem is not None)
        unread_text.set_text(f"{problem[0].upper()}{problem[1:]}." if problem else "")
        card.set_visibility(bool(queue.groups))
        empty.set_visibility(not queue.groups)
        largest_lag = max((group.lag for group in queue.groups), default=0)
        table.set(queue.groups)

    await view.poll(("groups", name), lambda: view.log.groups(name), show_holding_group, seconds=2.0)
    await view.poll("queues", lambda: read_queues(view.console.overview_history), show)


def _lag_cell(lag: int, largest: int) -> TableCell:
    return TableCell(formatting.compact(lag), bar=lag / largest if largest else None)


def _reader(group: GroupSummary, info: GroupInfo | None) -> TableCell | str:
    if info is not None and info.query_id is not None:
        return TableCell(info.query_id, href=url_for("/queries", query=info.query_id))
    return "consumers" if group.sink is None else "a sink"


def _state(group: GroupSummary, info: GroupInfo | None) -> TableCell:
    query_state = None if info is None else info.query_state
    if group.sink == "resting":
        return TableCell("resting", tone="bad")
    if group.sink == "stopped":
        return TableCell("stopped", tone="warn" if group.lag else "idle")
    if query_state in ("paused", "stopped", "failed"):
        return TableCell(query_state, tone="warn" if group.lag else "idle")
    if not group.counts:
        return TableCell("inactive", tone="idle")
    if query_state is not None or group.leases:
        return TableCell("reading", tone="good")
    return TableCell("waiting", tone="warn") if group.lag else TableCell("caught up", tone="idle")


async def _build_partitions(view: View, name: str) -> None:
    search = view.params.get("search", "")
    page = forms.parse_int(view.params, "page")
    partitions = await view.log.partition_page(
        name, search=search or None, limit=_PAGE_SIZE + 1, offset=page * _PAGE_SIZE
    )
    with forms.filter_form(PATH, "Find partitions", {"queue": name, "tab": "partitions"}):
        forms.text_field("search", "Partition", search, hint="Part of a key", width="260px")
        forms.submit_button("Find")
    if not partitions:
        elements.empty_state(
            "No partition matches" if search else "No partitions yet",
            "" if search else "A partition is created with its first event.",
            icon="view_column",
        )
        return
    largest_lag = max(partition.lag for partition in partitions)
    columns: list[TableColumn[PartitionStatus]] = [
        TableColumn(
            "Partition",
            lambda partition: key_cell(
                partition.name, url_for(PATH, queue=name, tab="events", partition=partition.name)
            ),
        ),
        number_column("Events", lambda partition: formatting.number(partition.end - partition.first)),
        number_column(
            "Offsets",
            lambda partition: f"{formatting.number(partition.first)} – {formatting.number(partition.end)}",
            classes="ps-desktop",
        ),
        number_column("Lag", lambda partition: _lag_cell(partition.lag, largest_lag)),
        number_column("Leases", lambda partition: formatting.number(partition.leases), classes="ps-desktop"),
        number_column(
            "Last event", lambda partition: "–" if partition.last_at is None else view.times.ago(partition.last_at)
        ),
    ]
    with elements.card("Partitions", hint="by name; lag of the slowest group"):
        DataTable("Partitions", columns).set(partitions[:_PAGE_SIZE])
    forms.pager(
        PATH,
        {"queue": name, "tab": "partitions", "search": search or None},
        page,
        len(partitions) > _PAGE_SIZE,
        "the partitions",
    )


def _partitioning(queue: Queue) -> str:
    if queue.partition_count is None:
        return "a partition per key"
    return f"{formatting.counted(queue.partition_count, 'partition')} by hash"
