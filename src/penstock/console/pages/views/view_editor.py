"""The editor of a view's statement: checks it as it is typed, previews it on recent events, and creates the view."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from nicegui import ui

from penstock.console.data.statement_check import CheckedStatements, CheckedView, check_new_view, check_statements
from penstock.console.data.statement_preview import PreviewFailed, ViewPreview
from penstock.console.formatting import exact_decimals, exact_number
from penstock.console.page import View, error_message, url_for
from penstock.console.widgets import elements, forms
from penstock.console.widgets.editor import code_editor
from penstock.console.widgets.operator_tree import OperatorTree
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn
from penstock.core import formatting
from penstock.core.errors import InvalidRequest
from penstock.engine.query_registry import Registry
from penstock.engine.stored.stored_statements import create_stored_statement, list_stored_statements
from penstock.server.auth.identity import Role

#: The statement is checked after a pause of so many seconds.
_PAUSE_SECONDS = 0.3
_EVENTS = {100: "100", 1_000: "1,000", 10_000: "10,000"}
_MAX_ROWS = 100
_FILE = "views.sql"


async def build(view: View) -> None:
    forms.breadcrumb(("Views", "/views"), current="New view")
    reason = view.missing_permission(Role.ADMIN)
    if reason:
        elements.empty_state("The editor is for administrators", f"{reason}.", icon="lock")
        return
    queues = [queue.name for queue in await view.log.queues()]
    names = {query.name for query in await Registry(view.log).list()}
    names |= {stored.name for stored in await list_stored_statements(view.database)}
    await _ViewEditor(view, queues, names).open()


def _example(queues: Sequence[str]) -> str:
    """Return a statement that every queue allows."""
    queue = queues[0] if queues else "orders"
    source = queue if queue.isidentifier() else f"`{queue.replace('`', '``')}`"
    return (
        "CREATE MATERIALIZED VIEW events_by_key AS\n"
        f"SELECT _key AS key, count(*) AS events, max(_time) AS last_event\nFROM {source}\nGROUP BY _key"
    )


class _ViewEditor:
    def __init__(self, view: View, queues: Sequence[str], names: set[str]) -> None:
        self._view = view
        self._queues = set(queues)
        #: The names of the queries and stored views that exist.
        self._names = names
        self._check_task: asyncio.Task[None] | None = None
        self._preview_task: asyncio.Task[list[ViewPreview]] | None = None
        #: None while the statement has an error.
        self._checked: CheckedStatements | None = None
        view.client.on_delete(self._stop)
        with elements.card("Statement", hint="CREATE MATERIALIZED VIEW, or a SELECT to try it"):
            self._text = code_editor(
                _example(queues), "PostgreSQL", "Statement of the view", height="15rem", run=self._preview
            )
            self._text.on_value_change(self._check_later)
            self._error = elements.text("", "ps-error", tag="p")
            self._error.props["role"] = "alert"
            self._notes = elements.element("div", "ps-stack")
            self._build_controls()
        with elements.card("Plan", hint="computed without running it"):
            self._stale = elements.text("The plan of the last statement without errors.", "ps-muted", tag="p")
            self._plan = elements.element("div", "ps-stack")
        self._output = elements.element("div", "ps-stack")
        self._output.props["aria-live"] = "polite"
        self._build_run_card()

    def _build_controls(self) -> None:
        with elements.element("div", "ps-row ps-between"):
            self._newest = ui.select(_EVENTS, label="Newest events", value=1_000)
            self._newest.props("outlined dense options-dense").style("width: 140px")
            with elements.element("div", "ps-row"):
                self._progress = elements.text("", "ps-muted ps-small")
                self._stop_button = elements.button("Stop", self._stop, icon="stop")
                self._stop_button.set_visibility(False)
                elements.text("Ctrl+Enter", "ps-muted ps-small ps-desktop")
                self._preview_button = elements.button("Preview", self._preview, icon="play_arrow", tone="primary")

    def _build_run_card(self) -> None:
        with elements.card("Run it", hint="the console itself runs no queries") as self._run_card:
            elements.text(
                "Create stores the statement in the database, and the processes of penstock sql --stored run it. "
                "Or save it in a file, and run it where your queries run.",
                tag="p",
            )
            with elements.element("div", "ps-row"):
                self._create_button = elements.button("Create", self._create, icon="add", tone="primary")
                elements.button(f"Download {_FILE}", self._download, icon="download")
                elements.button("Copy the file", self._copy, icon="content_copy")
                elements.command_line(f"penstock sql {_FILE}")

    async def open(self) -> None:
        await self._check()

    def _check_later(self) -> None:
        if self._check_task is not None:
            self._check_task.cancel()
        self._check_task = asyncio.create_task(self._check_after_pause())

    async def _check_after_pause(self) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)
        with self._view.client.content:
            await self._check()

    async def _check(self) -> None:
        try:
            checked = await asyncio.to_thread(check_statements, self._statement)
        except InvalidRequest as error:
            self._checked = None
            self._error.set_text(error_message(error))
            self._error.set_visibility(True)
            self._stale.set_visibility(True)
            self._preview_button.disable()
            self._run_card.set_visibility(False)
            return
        self._error.set_visibility(False)
        self._stale.set_visibility(False)
        self._preview_button.set_enabled(bool(checked.views) and self._preview_task is None)
        self._run_card.set_visibility(bool(checked.views) and not any(each.is_draft for each in checked.views))
        self._create_button.set_enabled(len(checked.views) == 1)
        if checked != self._checked:
            self._checked = checked
            self._show_notes(checked)
            self._show_plan(checked.views)

    @property
    def _statement(self) -> str:
        return str(self._text.value or "")

    def _show_notes(self, checked: CheckedStatements) -> None:
        notes = [
            f"There is no queue and no view {queue}: create it before the view runs, or write CREATE QUEUE {queue};"
            for queue in checked.queues
            if queue not in self._queues and queue not in self._names
        ]
        notes += [
            f"A query {each.name} exists: give the view another name, or run the file with --rebuild to change it"
            for each in checked.views
            if each.name in self._names
        ]
        if any(each.is_draft for each in checked.views):
            notes.append("To run it, begin with CREATE MATERIALIZED VIEW name AS")
        self._notes.clear()
        with self._notes:
            for note in notes:
                elements.text(note, "ps-muted ps-break", tag="p")

    def _show_plan(self, views: Sequence[CheckedView]) -> None:
        self._plan.clear()
        with self._plan:
            if not views:
                elements.text("Write a SELECT.", "ps-muted", tag="p")
            for view in views:
                if len(views) > 1:
                    elements.text(view.name, tag="h3")
                forms.description_list(
                    [
                        ("Key", ", ".join(view.key) or "columns that are stored and hidden"),
                        ("Columns", ", ".join(view.columns)),
                        ("Indexes", "; ".join(", ".join(index) for index in view.indexes) or "only the key"),
                        ("Changes", view.changes_queue or "not in a queue"),
                    ]
                )
                OperatorTree().show(view.operators)

    def _download(self) -> None:
        ui.download.content(self._statement.encode(), _FILE, "text/plain")

    def _copy(self) -> None:
        ui.run_javascript(f"penstock.copy({json.dumps(self._statement)})")
        ui.notify("File copied", type="positive", position="bottom")

    async def _create(self) -> None:
        view, statement = self._view, self._statement  # the text may be newer than the last check
        try:
            name = (await asyncio.to_thread(check_new_view, statement)).name
        except InvalidRequest as error:
            ui.notify(error_message(error), type="negative", position="bottom")
            return
        async with view.action("create a view", Role.ADMIN, subject=name, done=f"Created {name}"):
            await create_stored_statement(view.database, name, statement, view.viewer.identity.id)
            ui.navigate.to(url_for("/views", view=name))

    def _stop(self) -> None:
        if self._preview_task is not None:
            self._preview_task.cancel()

    async def _preview(self) -> None:
        if self._preview_task is not None:
            return
        view, statement, newest = self._view, self._statement, int(self._newest.value)
        self._set_running(True)
        try:
            async with view.action("preview a view", Role.ADMIN):
                check_statements(statement)  # the text may be newer than the last check
                self._preview_task = asyncio.create_task(view.console.previews.run(statement, newest))
                try:
                    self._show_previews(await self._preview_task)
                except PreviewFailed as error:
                    self._show_failure(error_message(error))
                except asyncio.CancelledError:
                    if not self._preview_task.cancelled():
                        raise
                    self._show_failure("The preview was stopped")
        finally:
            self._preview_task = None
            self._set_running(False)

    def _set_running(self, is_running: bool) -> None:
        self._stop_button.set_visibility(is_running)
        self._preview_button.set_enabled(not is_running)
        self._progress.set_text("Spark starts and computes the view…" if is_running else "")

    def _show_previews(self, previews: Sequence[ViewPreview]) -> None:
        columns = {each.name: each.columns for each in (self._checked.views if self._checked else ())}
        self._output.clear()
        with self._output:
            for preview in previews:
                _show_preview(preview, columns.get(preview.name, ()))

    def _show_failure(self, message: str) -> None:
        self._output.clear()
        with self._output, elements.card("Preview"):
            elements.text(message, "ps-error", tag="p").props["role"] = "alert"


def _show_preview(preview: ViewPreview, columns: Sequence[str]) -> None:
    shown = preview.rows[:_MAX_ROWS]
    names = list(dict.fromkeys((*(name for row in shown for name in row), *columns)))
    count = formatting.counted(len(preview.rows), "row")
    hint = count if len(shown) == len(preview.rows) else f"the first {_MAX_ROWS} of {count}"
    with elements.card(f"Preview of {preview.name}", hint=hint):
        for warning in preview.warnings:
            elements.text(warning, "ps-muted ps-break", tag="p")
        table = DataTable[dict[str, Any]](f"Rows of {preview.name}", [_column(name, shown) for name in names])
        table.set(shown)


def _column(name: str, rows: Sequence[dict[str, Any]]) -> TableColumn[dict[str, Any]]:
    values = [row.get(name) for row in rows]
    numbers = [str(value) for value in values if _is_number(value)]
    decimals = exact_decimals(numbers)

    def cell(row: dict[str, Any]) -> TableCell | str:
        value = row.get(name)
        if value is None:
            return TableCell("null", classes="ps-muted")
        if _is_number(value):
            return exact_number(str(value), decimals)
        return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)

    return TableColumn(name, cell, is_number=bool(numbers))


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)
