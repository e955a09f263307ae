"""The list of materialized views."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from penstock.console.data.views import ViewSummary, read_views
from penstock.console.page import Page, View, url_for
from penstock.console.pages.first_query import VIEW_COMMAND
from penstock.console.pages.query_detail import STATE_TONES
from penstock.console.pages.views import view_detail, view_editor
from penstock.console.widgets import elements
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.engine.stored.stored_statements import list_stored_statements
from penstock.server.auth.identity import Role

#: Sizes change slowly.
_POLL_SECONDS = 2.0


async def build(view: View) -> None:
    name = view.params.get("view")
    if name is not None:
        await view_detail.build(view, name)
    elif "new" in view.params:
        await view_editor.build(view)
    else:
        await _build_list(view)


async def _build_list(view: View) -> None:
    with elements.element("div", "ps-row ps-end"):
        reason = view.missing_permission(Role.ADMIN)
        elements.button(
            "New view",
            lambda: ui.navigate.to(url_for("/views", new=1)),
            icon="add",
            tone="primary",
            disabled_reason=reason,
        )
    empty = elements.empty_state(
        "No materialized views yet",
        "A view is a query whose result is a table that stays up to date. Write one above, or start one from a shell.",
        VIEW_COMMAND,
        icon="table_view",
    )
    waiting = elements.element("div", "ps-stack")
    shown_waiting: list[str] = []
    with elements.card("Views", hint="rows as PostgreSQL estimates them") as card:
        table = DataTable("Materialized views", _columns(view))

    async def read() -> tuple[Sequence[ViewSummary], Sequence[str]]:
        views = await read_views(view.log)
        names = {each.info.name for each in views}
        stored = await list_stored_statements(view.database)
        return views, [each.name for each in stored if each.name not in names]

    def show(read: tuple[Sequence[ViewSummary], Sequence[str]]) -> None:
        views, waiting_names = read
        table.set(views)
        card.set_visibility(bool(views))
        empty.set_visibility(not views and not waiting_names)
        if waiting_names != shown_waiting:
            shown_waiting[:] = waiting_names
            waiting.clear()
            with waiting:
                for name in waiting_names:
                    elements.link(f"{name} was created and has not run yet", url_for("/views", view=name), "ps-break")

    await view.poll("views", read, show, seconds=_POLL_SECONDS)


def _columns(view: View) -> list[TableColumn[ViewSummary]]:
    return [
        TableColumn("View", lambda each: key_cell(each.info.name, url_for("/views", view=each.info.name))),
        TableColumn("State", lambda each: TableCell(each.info.state, tone=STATE_TONES[each.info.state])),
        number_column("Rows", lambda each: formatting.compact(each.size.rows)),
        number_column("Changes/s", lambda each: formatting.rate(each.size.changes_per_second)),
        number_column("Result", lambda each: formatting.size(each.size.bytes), classes="ps-desktop"),
        number_column("State size", lambda each: formatting.size(each.size.state_bytes), classes="ps-desktop"),
        number_column("State rows", lambda each: formatting.compact(each.size.state_rows), classes="ps-wide"),
        number_column("Lag", lambda each: formatting.compact(each.lag), classes="ps-desktop"),
        number_column("Last commit", lambda each: view.times.ago(each.info.committed_at), classes="ps-desktop"),
    ]


PAGE = Page("/views", "Views", "table_view", build, needs_all=True)
