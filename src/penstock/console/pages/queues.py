"""Queues: what each holds, how fast it fills, who reads it and how far behind; and one of them in detail."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from nicegui.element import Element

from penstock.console.assets import address_of_asset
from penstock.console.data.queue_stats import QueueSight, QueueSights
from penstock.console.page import Page, View, link
from penstock.console.pages import queue_detail
from penstock.console.widgets import forms, parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting

PATH = "/queues"
#: More are not shown at once: a search finds them.
_MOST = 300

_COLUMNS = (
    "Queue",
    Column("Partitions", is_number=True, classes="ps-desk"),
    Column("Events kept", is_number=True, classes="ps-desk"),
    Column("In per second", is_number=True),
    Column("Groups", is_number=True, classes="ps-desk"),
    Column("Furthest behind", is_number=True),
    Column("Group", classes="ps-desk"),
    Column("Dead letters", is_number=True),
)


async def build(view: View) -> None:
    """Make the page."""
    ui.add_head_html(f'<link rel="stylesheet" href="{address_of_asset("details.css")}">')
    if view.params.get("queue"):
        await queue_detail.build(view, view.params["queue"])
    else:
        await _list(view)


async def _list(view: View) -> None:
    search = view.params.get("search", "")
    with forms.filters(PATH, "Find queues", {}):
        forms.field("search", "Name", search, hint="Part of a name", width="260px")
        forms.submit("Find")
    with parts.card("All queues") as card:
        table = parts.table("Queues", _COLUMNS)
    none = _nothing(bool(search))
    said = parts.text("", "ps-muted ps-small")

    def show(queues: list[QueueSight]) -> None:
        seen = [queue for queue in queues if view.sees(queue.name) and search.lower() in queue.name.lower()]
        card.set_visibility(bool(seen))
        none.set_visibility(not seen)
        table.set(_rows(seen[:_MOST]))
        more = f"The first {_MOST} of {formatting.number(len(seen))} queues: find others by name."
        said.set_text(more if len(seen) > _MOST else "")

    await view.follow("queues", QueueSights(view.console.database_metrics).look, show)


def _nothing(is_search: bool) -> Element:
    if is_search:
        return parts.nothing("No queue has that in its name", "Find another part of the name, or clear the field.")
    return parts.nothing(
        "No queues yet",
        "A queue holds events in order until every group has read them. Make one, then push to it.",
        "penstock queue create orders",
        icon="inbox",
    )


def _rows(queues: Sequence[QueueSight]) -> list[list[Cell | str]]:
    return [
        [
            Cell(queue.name, href=link(PATH, queue=queue.name), classes="ps-strong ps-break"),
            formatting.number(queue.partitions),
            formatting.compact(queue.events),
            Cell(formatting.rate(queue.rate), line=queue.course),
            formatting.number(len(queue.groups)),
            _lag(queue),
            "–" if queue.slowest is None else queue.slowest.name,
            _dead(queue),
        ]
        for queue in queues
    ]


def _lag(queue: QueueSight) -> Cell:
    slowest = queue.slowest
    return Cell("–" if slowest is None else formatting.compact(slowest.lag))


def _dead(queue: QueueSight) -> Cell:
    if not queue.dead:
        return Cell("0", classes="ps-muted")
    return Cell(formatting.compact(queue.dead), href=link("/dead-letters", queue=queue.name), tone="bad")


PAGE = Page(PATH, "Queues", "inbox", build)
