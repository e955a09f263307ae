"""SQL statements on the live and history views, run with a read-only login."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from nicegui import ui
from psycopg import sql

from penstock.console.data.saved_statements import (
    MAX_NAME_CHARACTERS,
    SavedStatement,
    delete_statement,
    list_saved_statements,
    save_statement,
)
from penstock.console.page import Page, View, url_for
from penstock.console.widgets import elements, query_result
from penstock.console.widgets.editor import code_editor
from penstock.core import formatting
from penstock.core.errors import ConfigurationError, DatabaseError
from penstock.db.adhoc_query import AdhocResult, StatementRefused, VisibleTable
from penstock.db.readonly_login import ReadOnlyLoginMissing
from penstock.server.auth.identity import Role

#: Servers and browsers accept longer addresses, chat programs and mail often do not.
_MAX_LINK_CHARACTERS = 4000
_DEFAULT_STATEMENT = "SELECT queue, events, appended, partitions\nFROM penstock.depth\nORDER BY events DESC"

_EXAMPLES = {
    "Depth of each queue": _DEFAULT_STATEMENT,
    "Lag of each group": (
        "SELECT queue, group_name, lag, partitions_behind, leases, seen_at\nFROM penstock.lag\nORDER BY lag DESC"
    ),
    "Partitions with the largest lag": (
        "SELECT queue, group_name, partition, lag, leased\nFROM penstock.partition_lag\nORDER BY lag DESC\nLIMIT 50"
    ),
    "Duration of cycles by minute": (
        "SELECT date_trunc('minute', c.committed_at) AS minute, q.name AS query,\n"
        "       round(avg(extract(epoch FROM c.committed_at - c.planned_at)) * 1000) AS ms,\n"
        "       sum(c.events_in) AS events\n"
        "FROM penstock.cycles c JOIN penstock.queries q ON q.id = c.query_id\n"
        "WHERE c.committed_at > now() - interval '1 hour'\nGROUP BY 1, 2\nORDER BY 1, 2"
    ),
    "Open windows of all queries": (
        "SELECT query, key, window_start, window_end, value\nFROM penstock.state\nORDER BY window_end DESC\nLIMIT 200"
    ),
    "Keys that wait at a gate": (
        'SELECT query, key, kind, tokens, used, "limit", backlog, denied_since, next_at\nFROM penstock.gates\n'
        "WHERE denied_since IS NOT NULL\nORDER BY denied_since"
    ),
    "Dead letters by queue and stage": (
        "SELECT q.name AS queue, d.group_name, d.stage, count(*) AS waiting, max(d.failed_at) AS last\n"
        "FROM penstock.dead_letters d JOIN penstock.queues q ON q.id = d.queue_id\n"
        "WHERE d.redriven_at IS NULL\nGROUP BY 1, 2, 3\nORDER BY waiting DESC"
    ),
}


async def build(view: View) -> None:
    if view.missing_permission(Role.READ):
        elements.empty_state("Your key may not run SQL", "Sign in with a key that has the role read for all queues.")
        return
    try:
        tables = await view.console.adhoc_queries.list_tables()
    except ReadOnlyLoginMissing as missing:
        _show_setup(view, missing)
    except (ConfigurationError, DatabaseError) as error:
        elements.empty_state("The read-only login does not work", f"{error}.", icon="lock")
    else:
        await _SqlEditor(view, tables, await list_saved_statements(view.database)).open()


def _show_setup(view: View, missing: ReadOnlyLoginMissing) -> None:
    with elements.card("SQL needs a read-only login", hint="PENSTOCK_READER_URL"):
        elements.text(
            "Statements on this page run as a role that can only read. Run these statements as an administrator of "
            "the database, set PENSTOCK_READER_URL to the login, and restart the console.",
            tag="p",
        )
        script = elements.text(missing.statements, "ps-code-block", tag="pre")
        script.props["tabindex"] = "0"
        script.props["aria-label"] = "Statements that create the login"
        if missing.can_create:
            _create_login_button(view)


def _create_login_button(view: View) -> None:
    async def create_login() -> None:
        async with view.action("create the login for SQL", Role.ADMIN, subject="penstock_reader"):
            await view.console.adhoc_queries.login.create()
            ui.navigate.to(PAGE.path)

    with elements.element("div", "ps-row ps-end"):
        elements.text("Penstock's role may create roles, so it can create the login.", "ps-muted")
        elements.button(
            "Create the login", create_login, tone="primary", disabled_reason=view.missing_permission(Role.ADMIN)
        )


class _SqlEditor:
    """The editor, the result of the last statement, and the list of tables."""

    def __init__(self, view: View, tables: Sequence[VisibleTable], saved: Sequence[SavedStatement]) -> None:
        self._view = view
        self._saved = {each.name: each for each in saved}
        #: The saved statement that the address names.
        self._opened = self._saved.get(view.params.get("saved", ""))
        self._task: asyncio.Task[AdhocResult] | None = None
        view.client.on_delete(self._stop)
        examples = {**_EXAMPLES, **_query_examples(tables)}
        with elements.element("div", "ps-grid ps-main-and-side"):
            with elements.element("div", "ps-stack"):
                with elements.card("Statement", hint=self._limits()):
                    first = view.params.get("statement") or _DEFAULT_STATEMENT
                    self._text = code_editor(
                        self._opened.statement if self._opened else first,
                        "PostgreSQL",
                        "SQL statement",
                        height="13rem",
                        run=self._run,
                    )
                    with elements.element("div", "ps-row ps-between"):
                        example = ui.select(list(examples), label="Examples", with_input=False)
                        example.props("outlined dense options-dense").classes("ps-search")
                        example.on_value_change(lambda event: self._set_text(examples.get(event.value or "", "")))
                        with elements.element("div", "ps-row"):
                            self._stop_button = elements.button("Stop", self._stop, icon="stop")
                            self._stop_button.set_visibility(False)
                            reason = view.missing_permission(Role.ADMIN)
                            elements.button("Save", self._save, icon="bookmark_add", disabled_reason=reason)
                            elements.button("Copy link", self._copy_link, icon="link")
                            elements.text("Ctrl+Enter", "ps-muted ps-small ps-desktop")
                            self._run_button = elements.button("Run", self._run, icon="play_arrow", tone="primary")
                if not view.missing_permission(Role.ADMIN) and not view.console.adhoc_queries.is_memory_limited:
                    elements.text(
                        "The memory of a statement is not limited, because PostgreSQL runs on another machine or as "
                        "another account. Limit it there, or set PENSTOCK_READER_URL to a replica.",
                        "ps-muted ps-small",
                        tag="p",
                    )
                self._output = elements.element("div", "ps-stack")
                self._output.props["aria-live"] = "polite"
            with elements.element("div", "ps-stack"):
                self._saved_list()
                _table_list(tables, self._set_text)

    async def open(self) -> None:
        """Run the saved statement that the address names. A statement in the address does not run by itself."""
        if self._opened is not None:
            await self._run()
        elif self._view.params.get("saved"):
            self._show_error(StatementRefused(f"no statement is saved as {self._view.params['saved']}"))

    def _saved_list(self) -> None:
        if not self._saved:
            return
        reason = self._view.missing_permission(Role.ADMIN)
        with elements.card("Saved"), elements.element("ul"):
            for name, saved in self._saved.items():
                with elements.element("li", "ps-row ps-between"):
                    is_current = saved is self._opened
                    classes, current = (
                        ("ps-break ps-strong", {"aria_current": "page"}) if is_current else ("ps-break", {})
                    )
                    elements.link(name, url_for(PAGE.path, saved=name), classes, **current)
                    button = elements.button("", partial(self._delete, name), icon="delete", disabled_reason=reason)
                    button.props["aria-label"] = f"Delete {name}"

    async def _save(self) -> None:
        statement = (self._text.value or "").strip()
        # The page owns the dialog, so that the action can continue when it closes.
        with self._view.client.content:
            name = await self._ask_name()
            if name is None or not statement:
                return
            by = self._view.viewer.identity.id
            async with self._view.action("save a statement", Role.ADMIN, subject=name):
                await save_statement(self._view.database, name, statement, by)
                ui.navigate.to(url_for(PAGE.path, saved=name))

    async def _ask_name(self) -> str | None:
        with elements.dialog("Save the statement", "All users of this page can run it.") as dialog:
            given = ui.input("Name", value=self._opened.name if self._opened else "")
            given.props(f'outlined dense maxlength="{MAX_NAME_CHARACTERS}"')
            error = elements.error_text()

            def submit() -> None:
                name = str(given.value or "").strip()
                if name:
                    dialog.submit(name)
                else:
                    error.set_text("Enter a name")

            def warn() -> None:
                name = str(given.value or "").strip()
                error.set_text(f"This replaces {name}" if name in self._saved else "")

            given.on_value_change(warn)
            warn()
            with elements.element("div", "ps-row ps-end"):
                elements.button("Cancel", dialog.close)
                elements.button("Save", submit, tone="primary")
        chosen: str | None = await elements.open_dialog(dialog)
        return chosen

    async def _delete(self, name: str) -> None:
        with self._view.client.content:
            if not await elements.confirm(f"Delete {name}?", "The saved statement is deleted for all users.", "Delete"):
                return
            async with self._view.action("delete a saved statement", Role.ADMIN, subject=name):
                await delete_statement(self._view.database, name)
                ui.navigate.to(PAGE.path)

    def _copy_link(self) -> None:
        statement = (self._text.value or "").strip()
        if self._opened is not None and statement == self._opened.statement:
            path = url_for(PAGE.path, saved=self._opened.name)
        else:
            path = url_for(PAGE.path, statement=statement)
        if len(path) > _MAX_LINK_CHARACTERS:
            ui.notify("The statement is too long for a link: save it", type="warning", position="bottom")
            return
        ui.run_javascript(f"penstock.copy(location.origin + {json.dumps(path)})")
        ui.notify("Link copied", type="positive", position="bottom")

    def _limits(self) -> str:
        limits = self._view.console.adhoc_queries.limits
        return f"Read-only · up to {formatting.duration(limits.seconds)} and {formatting.number(limits.rows)} rows"

    def _set_text(self, statement: str) -> None:
        if statement:
            self._text.set_value(statement)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        if self._task is not None:
            return
        view = self._view
        self._stop_button.set_visibility(True)
        self._run_button.disable()
        try:
            async with view.action("run a statement", Role.READ):
                self._task = asyncio.create_task(view.console.adhoc_queries.run(self._text.value or ""))
                try:
                    self._show(await self._task)
                except StatementRefused as error:
                    self._show_error(error)
                except asyncio.CancelledError:
                    if not self._task.cancelled():
                        raise
                    self._show_error(StatementRefused("the statement was stopped"))
        finally:
            self._task = None
            self._run_button.enable()
            self._stop_button.set_visibility(False)

    def _show(self, result: AdhocResult) -> None:
        self._output.clear()
        with self._output:
            if not result.rows:
                elements.empty_state(
                    "No rows",
                    f"The statement ran in {formatting.duration(result.seconds)}.",
                    icon="search_off",
                )
                return
            query_result.show_chart(result)
            with elements.card("Result", hint=query_result.summarize(result)):
                with elements.element("div", "ps-row ps-end"):
                    elements.button("Download CSV", lambda: query_result.download_csv(result), icon="download")
                query_result.show_table(result, self._view.times)

    def _show_error(self, error: StatementRefused) -> None:
        self._output.clear()
        with self._output, elements.card("Error"):
            position = "" if error.line is None else f"Line {error.line}, column {error.column}: "
            message = elements.text(f"{position}{error}", "ps-error", tag="p")
            message.props["role"] = "alert"
            if error.hint:
                elements.text(error.hint, "ps-muted", tag="p")


def _query_examples(tables: Sequence[VisibleTable]) -> dict[str, str]:
    """Return example statements for the views of each query."""
    examples: dict[str, str] = {}
    for table in tables:
        source = f"{table.schema}.{_quote_name(table.name)}"
        names = {name for name, _ in table.columns}
        if table.schema == "penstock_live" and "window_end" not in names:
            examples[f"Rows of {table.name}"] = f"SELECT *\nFROM {source}\nORDER BY updated_at DESC\nLIMIT 200"
        elif table.schema == "penstock_live":
            examples[f"Open windows of {table.name}"] = f"SELECT *\nFROM {source}\nORDER BY window_end DESC\nLIMIT 200"
        elif table.schema == "penstock_history":
            numbers = [
                name
                for name, column_type in table.columns
                if column_type in _NUMERIC_TYPES and name not in _INTERNAL_COLUMNS
            ]
            shown = ", ".join(_quote_name(name) for name in numbers[:1]) or "is_open"
            examples[f"{table.name} over the last 10 minutes"] = (
                f"SELECT window_start, key, {shown}\nFROM {source}\n"
                "WHERE window_end > now() - interval '10 minutes'\nORDER BY window_start\nLIMIT 1000"
            )
    return examples


_NUMERIC_TYPES = ("bigint", "integer", "numeric", "double precision", "real")
_INTERNAL_COLUMNS = ("revision",)
_SHORT_TYPES = {"timestamp with time zone": "timestamptz", "double precision": "float8"}


def _quote_name(name: str) -> str:
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else sql.Identifier(name).as_string()


def _table_list(tables: Sequence[VisibleTable], set_text: Callable[[str], None]) -> None:
    titles = {"penstock_live": "Live", "penstock_history": "History", "penstock": "State"}
    with elements.card("Tables"), elements.element("div", "ps-table-list", tabindex="0"):
        for schema, tables_of_schema in groupby(tables, key=lambda table: table.schema):
            elements.text(titles.get(schema, schema), "ps-muted ps-small", tag="h3")
            for table in tables_of_schema:
                _table_details(table, set_text)


def _table_details(table: VisibleTable, set_text: Callable[[str], None]) -> None:
    columns = ", ".join(_quote_name(name) for name, _ in table.columns)
    with elements.element("details"):
        elements.text(table.name, tag="summary")
        with elements.element("ul"):
            for name, column_type in table.columns:
                with elements.element("li", "ps-row ps-between"):
                    elements.text(name, "ps-mono")
                    elements.text(_SHORT_TYPES.get(column_type, column_type), "ps-muted ps-small")
        with elements.element("div", "ps-row ps-end"):
            statement = f"SELECT {columns}\nFROM {table.schema}.{_quote_name(table.name)}\nLIMIT 100"
            button = elements.button("Select", lambda: set_text(statement))
            button.props["aria-label"] = f"Write a SELECT from {table.name}"


PAGE = Page("/sql", "SQL", "terminal", build, needs_all=True)
