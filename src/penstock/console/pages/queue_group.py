"""One consumer group: its lag by partition, its sink, and a dialog to seek."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from nicegui import ui

from penstock.console.data.queue_summary import SinkSummary, read_sink_summary
from penstock.console.page import View, url_for
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.log.groups import PartitionPosition
from penstock.log.queue_info import GroupInfo
from penstock.server.auth.identity import Role

PATH = "/queues"
_MAX_PARTITIONS = 50


async def build(view: View, queue: str, name: str) -> None:
    group = await _find_group(view, queue, name)
    with elements.element("div", "ps-row ps-between"):
        with elements.element("div", "ps-row"):
            elements.link("All groups", url_for(PATH, queue=queue), "ps-button", "chevron_left")
            elements.text(f"Group {name}", "ps-strong ps-break", tag="h3")
        if group is not None:
            _seek_button(view, group)
    if group is None:
        elements.empty_state("There is no such group", "It was deleted, or its name is different.")
        return
    with elements.tiles():
        lag_tile = elements.tile("Lag")
        partitions_tile = elements.tile("Partitions behind")
        leases_tile = elements.tile("Leases")
        seen_tile = elements.tile("Last read")
    sink = await read_sink_summary(view.database, queue, name)
    show_sink = _sink_card(queue) if sink is not None else None
    with elements.card("About"):
        forms.description_list(
            [
                ("Read by", _reader(group, sink)),
                ("Subscribed from", group.subscribed_from),
                ("Created", view.times.full(group.created_at)),
                ("Counts for the queue's depth", "yes" if group.counts else "no"),
            ]
        )
    largest_lag = 0

    def partition(position: PartitionPosition) -> TableCell:
        href = url_for(PATH, queue=queue, tab="events", partition=position.partition, offset=position.next_offset)
        return key_cell(position.partition, href)

    def lag(position: PartitionPosition) -> TableCell:
        return TableCell(formatting.number(position.lag), bar=position.lag / largest_lag if largest_lag else None)

    columns: list[TableColumn[PartitionPosition]] = [
        TableColumn("Partition", partition),
        number_column("Lag", lag),
        number_column("Next offset", lambda position: formatting.number(position.next_offset), classes="ps-desktop"),
        number_column("Attempts", lambda position: formatting.number(position.attempts)),
        TableColumn("State", _position_state),
        number_column("Last moved", lambda position: view.times.ago(position.moved_at), classes="ps-desktop"),
    ]
    with elements.card("Partitions with the largest lag", hint=f"up to {_MAX_PARTITIONS}") as card:
        table = DataTable("Partitions with unread events", columns)
    all_read = elements.empty_state(
        "The group has read all events", "Partitions with unread events are listed here.", icon="done_all"
    )

    async def read() -> tuple[GroupInfo | None, list[PartitionPosition], SinkSummary | None]:
        group = await _find_group(view, queue, name)
        positions = [] if group is None else await view.log.positions_behind(queue, name, _MAX_PARTITIONS)
        return group, positions, await read_sink_summary(view.database, queue, name)

    def show(data: tuple[GroupInfo | None, list[PartitionPosition], SinkSummary | None]) -> None:
        nonlocal largest_lag
        group, positions, sink = data
        if group is None:
            return
        if show_sink is not None and sink is not None:
            show_sink(sink, group.lag)
        lag_tile.set(formatting.compact(group.lag), tone="warn" if group.away and group.lag else "idle")
        partitions_tile.set(formatting.number(group.partitions_behind))
        leases_tile.set(formatting.number(group.leases))
        since = view.times.ago(group.seen_at)
        state = "stopped" if group.query_state == "stopped" else "inactive"
        seen_tile.set(view.times.clock(group.seen_at), f"{state}: ignored for the depth" if group.away else since)
        card.set_visibility(bool(positions))
        all_read.set_visibility(not positions)
        largest_lag = max((position.lag for position in positions), default=0)
        table.set(positions)

    await view.poll(("group", queue, name), read, show)


async def _find_group(view: View, queue: str, name: str) -> GroupInfo | None:
    return next((group for group in await view.log.groups(queue) if group.group == name), None)


def _position_state(position: PartitionPosition) -> TableCell:
    if position.leased:
        return TableCell("leased", tone="good")
    return TableCell("waiting", tone="warn" if position.attempts else "idle")


def _reader(group: GroupInfo, sink: SinkSummary | None) -> str:
    if sink is not None:
        return f"a sink, {sink.guarantee.replace('_', ' ')}"
    if group.query_id is None:
        return "consumers"
    return f"the query {group.query_id}" + ("" if group.query_state is None else f", {group.query_state}")


def _sink_card(queue: str) -> Callable[[SinkSummary, int], None]:
    """Create the card of a sink, and return the function that updates it."""
    with elements.card("Sink", hint="totals of all processes"):
        with elements.tiles():
            state_tile = elements.tile("State")
            written_tile = elements.tile("Written")
            retries_tile = elements.tile("Retries")
            dead_tile = elements.tile("Dead letters", href=url_for("/dead-letters", queue=queue))
        error = elements.text("", "ps-field-error ps-break", tag="p")

    def show(sink: SinkSummary, lag: int) -> None:
        if not sink.is_running:
            state_tile.set("stopped", "no process runs it", "warn" if lag else "idle")
        elif sink.is_resting:
            state_tile.set("resting", "retries at a long interval", "bad")
        elif sink.error:
            state_tile.set("failing", "retrying", "warn")
        else:
            state_tile.set("running", tone="good")
        written_tile.set(formatting.compact(sink.written))
        busy = f"{formatting.number(sink.busy)} because the target was busy"
        retries_tile.set(formatting.compact(sink.retries + sink.busy), busy)
        dead_tile.set(formatting.compact(sink.dead_letters), "in total", "bad" if sink.dead_letters else "idle")
        error.set_text(sink.error or "")
        error.set_visibility(bool(sink.error))

    return show


def _seek_button(view: View, group: GroupInfo) -> None:
    reason = view.missing_permission(Role.CONSUME, queue=group.queue)
    if group.query_id is not None:
        reason = f"The query {group.query_id} would count events twice: reset the query instead"
    elements.button("Seek", lambda: _seek(view, group), icon="fast_rewind", disabled_reason=reason)


async def _seek(view: View, group: GroupInfo) -> None:
    # The page owns the second dialog, since the first one is deleted when it closes.
    with view.client.content:
        target = await _choose_target(view, group)
        if target is None:
            return
        target_name = f"the {target}" if isinstance(target, str) else view.times.full(target)
        question = f"Seek {group.group} to {target_name}?"
        if not await elements.confirm(question, f"Its lag is {formatting.counted(group.lag, 'event')} now.", "Confirm"):
            return
        async with view.action(
            "seek a group",
            Role.CONSUME,
            subject=f"{group.queue}, {group.group}",
            queue=group.queue,
            done=f"{group.group} is at {target_name}",
        ):
            await view.log.seek(group.queue, group.group, target)


async def _choose_target(view: View, group: GroupInfo) -> datetime | Literal["beginning", "end"] | None:
    with elements.dialog(
        f"Seek the group {group.group}",
        "The group continues from the new position in every partition. Consumers lose their leases, and events "
        "after the new position are delivered again.",
    ) as dialog:
        choices = {
            "beginning": "Beginning: read all stored events again",
            "end": "End: skip all unread events",
            "time": "Time",
        }
        position = ui.radio(choices, value="beginning").props("dense")
        position.props["aria-label"] = "Position"
        time = ui.input(f"Time ({view.times.name})").props("type=datetime-local outlined dense stack-label step=1")
        time.bind_visibility_from(position, "value", value="time")
        error = elements.error_text()

        def choose() -> None:
            target = position.value if position.value != "time" else forms.parse_time(time.value, view.times.zone)
            if target is None:
                error.set_text("Enter a time")
            else:
                dialog.submit(target)

        with elements.element("div", "ps-row ps-end"):
            elements.button("Cancel", dialog.close)
            elements.button("Continue", choose, tone="primary")
    chosen: datetime | Literal["beginning", "end"] | None = await elements.open_dialog(dialog)
    return chosen
