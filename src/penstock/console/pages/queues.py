"""The list of queues with depth, rate and lag."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from nicegui.element import Element

from penstock.console.assets import asset_url
from penstock.console.data.queue_summary import QueueSummary, QueueSummaryReader
from penstock.console.page import Page, View, url_for
from penstock.console.pages import queue_detail
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn
from penstock.core import formatting

PATH = "/queues"
#: Largest number of queues on the page.
_MAX_QUEUES = 300

_COLUMNS = (
    "Queue",
    TableColumn("Partitions", is_number=True, classes="ps-desk"),
    TableColumn("Events", is_number=True, classes="ps-desk"),
    TableColumn("Events in/s", is_number=True),
    TableColumn("Groups", is_number=True, classes="ps-desk"),
    TableColumn("Lag", is_number=True),
    TableColumn("Slowest group", classes="ps-desk"),
    TableColumn("Dead letters", is_number=True),
)


async def build(view: View) -> None:
    ui.add_head_html(f'<link rel="stylesheet" href="{asset_url("detail_pages.css")}">')
    if view.params.get("queue"):
        await queue_detail.build(view, view.params["queue"])
    else:
        await _build_list(view)


async def _build_list(view: View) -> None:
    search = view.params.get("search", "")
    with forms.filter_form(PATH, "Find queues", {}):
        forms.text_field("search", "Name", search, hint="Part of a name", width="260px")
        forms.submit_button("Find")
    with elements.card("All queues") as card:
        table = DataTable("Queues", _COLUMNS)
    empty = _empty_state(is_search=bool(search))
    truncation = elements.text("", "ps-muted ps-small")

    def show(queues: list[QueueSummary]) -> None:
        visible = [queue for queue in queues if view.can_see(queue.name) and search.lower() in queue.name.lower()]
        card.set_visibility(bool(visible))
        empty.set_visibility(not visible)
        table.set(_rows(visible[:_MAX_QUEUES]))
        note = f"The first {_MAX_QUEUES} of {formatting.number(len(visible))} queues. Search for others by name."
        truncation.set_text(note if len(visible) > _MAX_QUEUES else "")

    await view.poll("queues", QueueSummaryReader(view.console.database_metrics).read, show)


def _empty_state(*, is_search: bool) -> Element:
    if is_search:
        return elements.empty_state("No queue matches", "Search for another part of a name, or clear the field.")
    return elements.empty_state(
        "No queues yet",
        "A queue stores events in order until every group has read them. Create one, then push to it.",
        "penstock queue create orders",
        icon="inbox",
    )


def _rows(queues: Sequence[QueueSummary]) -> list[list[TableCell | str]]:
    return [
        [
            TableCell(queue.name, href=url_for(PATH, queue=queue.name), classes="ps-strong ps-break"),
            formatting.number(queue.partitions),
            formatting.compact(queue.events),
            TableCell(formatting.rate(queue.rate), sparkline=queue.rate_history),
            formatting.number(len(queue.groups)),
            _lag(queue),
            "–" if queue.slowest_group is None else queue.slowest_group.name,
            _dead(queue),
        ]
        for queue in queues
    ]


def _lag(queue: QueueSummary) -> TableCell:
    slowest = queue.slowest_group
    return TableCell("–" if slowest is None else formatting.compact(slowest.lag))


def _dead(queue: QueueSummary) -> TableCell:
    if not queue.dead:
        return TableCell("0", classes="ps-muted")
    return TableCell(formatting.compact(queue.dead), href=url_for("/dead-letters", queue=queue.name), tone="bad")


PAGE = Page(PATH, "Queues", "inbox", build)
