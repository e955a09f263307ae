"""The list of queues with depth, rate and lag."""

from __future__ import annotations

from penstock.console.data.queue_summary import QueueSummary, read_queues
from penstock.console.page import Page, View, url_for
from penstock.console.pages import queue_detail
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting

PATH = "/queues"
#: Largest number of queues on the page.
_MAX_QUEUES = 300


def _lag(queue: QueueSummary) -> str:
    return "–" if queue.slowest_group is None else formatting.compact(queue.slowest_group.lag)


def _dead_letters(queue: QueueSummary) -> TableCell:
    if not queue.dead:
        return TableCell("0", classes="ps-muted")
    return TableCell(formatting.compact(queue.dead), href=url_for("/dead-letters", queue=queue.name), tone="bad")


_COLUMNS: list[TableColumn[QueueSummary]] = [
    TableColumn(
        "Queue",
        lambda queue: key_cell(queue.name, url_for(PATH, queue=queue.name)),
    ),
    number_column("Partitions", lambda queue: formatting.number(queue.partitions), classes="ps-desktop"),
    number_column("Events", lambda queue: formatting.compact(queue.events), classes="ps-desktop"),
    number_column("Events in/s", lambda queue: TableCell(formatting.rate(queue.rate), sparkline=queue.rate_history)),
    number_column("Groups", lambda queue: formatting.number(len(queue.groups)), classes="ps-desktop"),
    number_column("Lag", _lag),
    TableColumn(
        "Slowest group",
        lambda queue: "–" if queue.slowest_group is None else queue.slowest_group.name,
        classes="ps-desktop",
    ),
    number_column("Dead letters", _dead_letters),
]


async def build(view: View) -> None:
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
    if search:
        empty = elements.empty_state("No queue matches", "Search for another part of a name, or clear the field.")
    else:
        empty = elements.empty_state(
            "No queues yet",
            "A queue stores events in order until every group has read them. Create one, then push to it.",
            "penstock queue create orders",
            icon="inbox",
        )
    truncation = elements.text("", "ps-muted ps-small")

    def show(queues: list[QueueSummary]) -> None:
        visible = [queue for queue in queues if view.can_see(queue.name) and search.lower() in queue.name.lower()]
        card.set_visibility(bool(visible))
        empty.set_visibility(not visible)
        table.set(visible[:_MAX_QUEUES])
        note = f"The first {_MAX_QUEUES} of {formatting.number(len(visible))} queues. Search for others by name."
        truncation.set_text(note if len(visible) > _MAX_QUEUES else "")

    await view.poll("queues", lambda: read_queues(view.console.overview_history), show)


PAGE = Page(PATH, "Queues", "inbox", build)
