"""A group of a queue: where it is behind, and moving it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from nicegui import ui

from penstock.console.data.sink_stats import SinkSight, sink_of
from penstock.console.page import View, link
from penstock.console.widgets import forms, parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting
from penstock.log.groups import PartitionPosition
from penstock.log.queue_info import GroupInfo
from penstock.server.auth.identity import Role

PATH = "/queues"
_MOST = 50

_LANES = (
    "Partition",
    Column("Behind", is_number=True),
    Column("Next offset", is_number=True, classes="ps-desk"),
    Column("Attempts", is_number=True),
    "State",
    Column("Last moved", is_number=True, classes="ps-desk"),
)


async def build(view: View, queue: str, name: str) -> None:
    """Make the page of a group."""
    group = next((each for each in await view.log.groups(queue) if each.group == name), None)
    with parts.element("div", "ps-row ps-between"):
        with parts.element("div", "ps-row"):
            with parts.element("a", "ps-step", href=link(PATH, queue=queue)):
                ui.icon("chevron_left").props("aria-hidden=true")
                parts.text("All groups")
            parts.text(f"Group {name}", "ps-strong ps-break", tag="h3")
        if group is not None:
            _seek_button(view, group)
    if group is None:
        parts.nothing("There is no such group", "It was deleted, or its name is another one.")
        return
    with parts.tiles():
        behind = parts.tile("Behind")
        partitions = parts.tile("Partitions behind")
        leases = parts.tile("Leases")
        seen = parts.tile("Last asked for events")
    sink = await sink_of(view.database, queue, name)
    show_sink = _sink_card(queue) if sink is not None else None
    with parts.card("About"):
        forms.facts(
            [
                ("Read by", _reader(group, sink)),
                ("Began at", group.subscribed_from),
                ("Made", view.times.full(group.created_at)),
                ("Counts for the queue's depth", "yes" if group.counts else "no"),
            ]
        )
    with parts.card("Where it is furthest behind", hint=f"Up to {_MOST} partitions") as card:
        table = parts.table("Partitions in which the group has something to read", _LANES)
    done = parts.nothing(
        "It has read everything", "What is pushed next appears here until it is read.", icon="done_all"
    )

    async def read() -> tuple[GroupInfo | None, list[PartitionPosition], SinkSight | None]:
        groups = await view.log.groups(queue)
        now = next((each for each in groups if each.group == name), None)
        lanes = [] if now is None else await view.log.positions_behind(queue, name, _MOST)
        return now, lanes, await sink_of(view.database, queue, name)

    def show(found: tuple[GroupInfo | None, list[PartitionPosition], SinkSight | None]) -> None:
        now, lanes, wrote = found
        if now is None:
            return
        if show_sink is not None and wrote is not None:
            show_sink(wrote, now.lag)
        behind.set(formatting.compact(now.lag), tone="warn" if now.away and now.lag else None)
        partitions.set(formatting.number(now.partitions_behind))
        leases.set(formatting.number(now.leases))
        seen.set(view.times.clock(now.seen_at), "away: no longer counts" if now.away else view.times.ago(now.seen_at))
        card.set_visibility(bool(lanes))
        done.set_visibility(not lanes)
        most = max((lane.lag for lane in lanes), default=0)
        table.set(
            [
                Cell(
                    lane.partition,
                    href=link(PATH, queue=queue, tab="events", partition=lane.partition, offset=lane.next_offset),
                    classes="ps-break",
                ),
                Cell(formatting.number(lane.lag), bar=lane.lag / most if most else None),
                formatting.number(lane.next_offset),
                formatting.number(lane.attempts),
                Cell("leased", tone="good") if lane.leased else Cell("waits", tone="warn" if lane.attempts else "idle"),
                view.times.ago(lane.moved_at),
            ]
            for lane in lanes
        )

    await view.follow(("group", queue, name), read, show)


def _reader(group: GroupInfo, sink: SinkSight | None) -> str:
    if sink is not None:
        return f"a sink, {sink.guarantee.replace('_', ' ')}"
    return f"the query {group.query_id}" if group.query_id else "consumers"


def _sink_card(queue: str) -> Callable[[SinkSight, int], None]:
    """What a sink does and what it has done; answers what shows it."""
    with parts.card("Sink", hint="added up over all who ran it"):
        with parts.tiles():
            doing = parts.tile("State")
            written = parts.tile("Written")
            retries = parts.tile("Tried again")
            dead = parts.tile("Dead letters", href=link("/dead-letters", queue=queue))
        said = parts.text("", "ps-trouble ps-break", tag="p")

    def show(sink: SinkSight, waiting: int) -> None:
        if not sink.is_running:
            doing.set("stopped", "nobody runs it", "warn" if waiting else None)
        elif sink.is_resting:
            doing.set("resting", "one attempt now and then", "bad")
        elif sink.error:
            doing.set("failing", "tries again", "warn")
        else:
            doing.set("running", tone="good")
        written.set(formatting.compact(sink.written))
        retries.set(formatting.compact(sink.retries + sink.busy), f"{formatting.number(sink.busy)} times it was busy")
        dead.set(formatting.compact(sink.dead_letters), "ever", "bad" if sink.dead_letters else None)
        said.set_text(sink.error or "")
        said.set_visibility(bool(sink.error))

    return show


def _seek_button(view: View, group: GroupInfo) -> None:
    may = view.may(Role.CONSUME, queue=group.queue)
    why_not = "Your key may not move groups of this queue: it needs the role consume"
    if group.query_id is not None:
        why_not = f"It belongs to the query {group.query_id}, which would count events twice: reset the query instead"
    parts.button(
        "Move the group",
        lambda: _seek(view, group),
        icon="fast_rewind",
        enabled=may and group.query_id is None,
        why_not=why_not,
    )


async def _seek(view: View, group: GroupInfo) -> None:
    # Not in the button's own place: what asks next must outlive this dialog.
    with view.client.content:
        place = await _ask_where(view, group)
        if place is None:
            return
        said = f"the {place}" if isinstance(place, str) else view.times.full(place)
        question = f"Move {group.group} to {said}?"
        if not await parts.confirm(question, f"It is {formatting.number(group.lag)} events behind now.", "Move it"):
            return
        async with view.acting(
            "seek a group",
            Role.CONSUME,
            subject=f"{group.queue}, {group.group}",
            queue=group.queue,
            done=f"{group.group} was moved to {said}",
        ):
            await view.log.seek(group.queue, group.group, place)


async def _ask_where(view: View, group: GroupInfo) -> datetime | Literal["beginning", "end"] | None:
    with ui.dialog() as dialog, ui.card().classes("ps-dialog"):
        dialog.props["aria-label"] = f"Move the group {group.group}"
        parts.text(f"Move the group {group.group}", tag="h2")
        parts.text(
            "It reads on from there in every partition. Consumers that hold events now lose them, and what was "
            "acknowledged after that place is delivered again.",
            "ps-muted",
            tag="p",
        )
        choices = {
            "beginning": "To the beginning: everything that is kept, again",
            "end": "To the end: leave out what it has not read",
            "time": "To a time",
        }
        where = ui.radio(choices, value="beginning").props("dense")
        where.props["aria-label"] = "Where to"
        given = ui.input(f"Time ({view.times.name})").props("type=datetime-local outlined dense stack-label step=1")
        given.bind_visibility_from(where, "value", value="time")
        wrong = parts.text("", "ps-trouble")
        wrong.props["role"] = "alert"

        def choose() -> None:
            place = where.value if where.value != "time" else forms.moment(given.value, view.times.zone)
            if place is None:
                wrong.set_text("Say which time")
            else:
                dialog.submit(place)

        with parts.element("div", "ps-row ps-end"):
            parts.button("Cancel", dialog.close)
            parts.button("Go on", choose, tone="primary")
    chosen: datetime | Literal["beginning", "end"] | None = await parts.answer_of(dialog)
    return chosen
