"""One materialized view: its sizes, its operators, its readers and its rows."""

from __future__ import annotations

from collections.abc import Container

from penstock.console.data.views import ViewDefinition, ViewDetails, find_view, read_view
from penstock.console.page import View, url_for
from penstock.console.pages.query_detail import STATE_TONES
from penstock.console.pages.views.stored_view import StoredViewCard, build_waiting
from penstock.console.pages.views.view_rows import ViewRowsTable
from penstock.console.widgets import elements, forms
from penstock.console.widgets.operator_tree import OperatorTree, ResultNode
from penstock.console.widgets.tables import LiveHtml, render_link
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine.stored.stored_statements import StoredStatement, find_stored_statement
from penstock.log.queue_info import GroupInfo


async def build(view: View, name: str) -> None:
    definition = await find_view(view.log, name)
    stored = await find_stored_statement(view.database, name)
    if definition is None and stored is not None:
        await build_waiting(view, stored)
        return
    if definition is None:
        elements.empty_state(
            f"There is no view {name}", "It was deleted, or it has not run yet.", "penstock query list", "table_view"
        )
        return
    await _ViewDetail(view, name, definition, stored).build()


class _ViewDetail:
    def __init__(self, view: View, name: str, definition: ViewDefinition, stored: StoredStatement | None) -> None:
        self._view = view
        self._name = name
        self._definition = definition
        #: None for a view of a file or a program.
        self._stored = stored

    async def build(self) -> None:
        with elements.element("div", "ps-row ps-between"):
            with elements.element("div", "ps-row"):
                forms.breadcrumb(("Views", "/views"), current=self._name)
                self._state = elements.badge("…")
            elements.link("Query and cycles", url_for("/queries", query=self._name), "ps-button")
        with elements.tiles():
            self._rows = elements.tile("Rows")
            self._changes = elements.tile("Changes", "/s")
            self._result = elements.tile("Result")
            self._state_size = elements.tile("State")
            self._lag = elements.tile("Lag")
            self._committed = elements.tile("Last commit")
        with elements.card("Operators", hint="rows and bytes of their state"):
            self._tree = OperatorTree()
        with elements.card("Table", hint=f"penstock_live.{self._name}"):
            self._properties = LiveHtml()
        if self._stored is not None:
            await StoredViewCard(self._view, self._stored).poll(waits=False)
        await ViewRowsTable(self._view, self._name, self._definition).build()
        await self._view.poll(("view", self._name), self._read, self._show)

    async def _read(self) -> ViewDetails:
        details = await read_view(self._view.log, self._name)
        if details is None:
            raise NotFound(f"there is no view {self._name!r}: list the queries with `penstock query list`")
        return details

    def _show(self, details: ViewDetails) -> None:
        info, status, times = details.info, details.status, self._view.times
        elements.set_badge(self._state, info.state, STATE_TONES[info.state])
        self._rows.set(formatting.compact(status.rows), "estimate")
        self._changes.set(formatting.rate(details.changes_per_second), f"cycle {formatting.number(info.cycle)}")
        self._result.set(formatting.size(status.bytes), "with its indexes")
        state_rows = sum(each.rows for each in status.operators)
        self._state_size.set(
            formatting.size(sum(each.bytes for each in status.operators)), formatting.counted(state_rows, "row")
        )
        lag = sum(group.lag for group in details.sources)
        self._lag.set(formatting.compact(lag), "events to read" if lag else "all read")
        self._committed.set(times.clock(info.committed_at), times.ago(info.committed_at))
        self._tree.show(
            self._definition.operators,
            status.operators,
            {group.queue: group.lag for group in details.sources},
            ResultNode(self._name, status.rows, status.bytes),
        )
        self._properties.set_content(_render_properties(self._definition, details))


def _render_properties(definition: ViewDefinition, details: ViewDetails) -> str:
    changes = details.info.sink
    pairs = [
        ("Key", render_link(key_text(definition))),
        ("Indexes", render_link("; ".join(", ".join(index) for index in definition.indexes) or "only the key")),
        (
            "Changes",
            render_link("not in a queue")
            if changes is None
            else render_link(changes, url_for("/queues", queue=changes)),
        ),
        (
            "Read by",
            ", ".join(_render_reader(group, details.reading_views) for group in details.readers) or "no other query",
        ),
    ]
    items = "".join(
        f'<div><dt class="ps-muted ps-small">{title}</dt><dd class="ps-break">{value}</dd></div>'
        for title, value in pairs
    )
    return f'<dl class="ps-grid ps-properties">{items}</dl>'


def _render_reader(group: GroupInfo, views: Container[str]) -> str:
    if group.query_id is None:
        return render_link(f"group {group.group}", url_for("/queues", queue=group.queue, group=group.group))
    if group.query_id in views:
        return render_link(group.query_id, url_for("/views", view=group.query_id))
    return render_link(group.query_id, url_for("/queries", query=group.query_id))


def key_text(definition: ViewDefinition) -> str:
    """Return the columns that identify a row, in words."""
    visible = definition.visible_key
    if not visible:
        return "columns that are stored and hidden"
    return ", ".join(visible) + (" and hidden columns" if len(visible) < len(definition.key) else "")
