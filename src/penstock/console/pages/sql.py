"""SQL: questions to the live and history views, over a login that may look and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby

from nicegui import ui

from penstock.console.assets import address_of_asset
from penstock.console.data import query_result
from penstock.console.page import Page, View
from penstock.console.widgets import parts
from penstock.console.widgets.editor import editor
from penstock.core import formatting
from penstock.core.errors import ConfigurationError, DatabaseError
from penstock.db.adhoc_query import AdhocResult, StatementRefused, VisibleTable
from penstock.db.readonly_login import ReadOnlyLoginMissing
from penstock.server.auth.identity import Role

_FIRST = "SELECT queue, events, appended, partitions\nFROM penstock.depth\nORDER BY events DESC"

#: What people ask most: a title, and the statement.
_READY = {
    "How much each queue holds": _FIRST,
    "How far each group is behind": (
        "SELECT queue, group_name, lag, partitions_behind, leases, seen_at\nFROM penstock.lag\nORDER BY lag DESC"
    ),
    "The partitions furthest behind": (
        "SELECT queue, group_name, partition, lag, leased\nFROM penstock.partition_lag\nORDER BY lag DESC\nLIMIT 50"
    ),
    "How long cycles take, by the minute": (
        "SELECT date_trunc('minute', c.committed_at) AS minute, q.name AS query,\n"
        "       round(avg(extract(epoch FROM c.committed_at - c.planned_at)) * 1000) AS ms,\n"
        "       sum(c.events_in) AS events\n"
        "FROM penstock.cycles c JOIN penstock.queries q ON q.id = c.query_id\n"
        "WHERE c.committed_at > now() - interval '1 hour'\nGROUP BY 1, 2\nORDER BY 1, 2"
    ),
    "Open windows of all queries": (
        "SELECT query, key, window_start, window_end, value\nFROM penstock.state\nORDER BY window_end DESC\nLIMIT 200"
    ),
    "Who waits at a gate": (
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
    """Make the page."""
    ui.add_head_html(f'<link rel="stylesheet" href="{address_of_asset("details.css")}">')
    if not view.may(Role.READ):
        parts.nothing("Your key may not look at results", "SQL takes a key with the role read, for all queues.")
        return
    try:
        seen = await view.console.adhoc_queries.list_tables()
    except ReadOnlyLoginMissing as missing:
        _missing(view, missing)
    except (ConfigurationError, DatabaseError) as error:
        parts.nothing("There is no login for statements that people type", f"{error}.", icon="lock")
    else:
        _Desk(view, seen)


def _missing(view: View, missing: ReadOnlyLoginMissing) -> None:
    with parts.card("SQL takes a login of its own", hint="PENSTOCK_READER_URL"):
        parts.text(
            "Statements that people type run as a role that may look and nothing else. An administrator of the "
            "database makes it with these statements; then set PENSTOCK_READER_URL to it and start the console anew.",
            tag="p",
        )
        script = parts.text(missing.statements, "ps-script", tag="pre")
        script.props["tabindex"] = "0"
        script.props["aria-label"] = "Statements that make the login"
        if missing.can_create:
            _offer(view)


def _offer(view: View) -> None:
    async def make() -> None:
        async with view.acting("make the login for SQL", Role.ADMIN, subject="penstock_reader"):
            await view.console.adhoc_queries.login.create()
            ui.navigate.to(PAGE.path)

    with parts.element("div", "ps-row ps-end"):
        parts.text("Penstock's own role may create roles, so it can do this for you.", "ps-muted")
        parts.button(
            "Make the login",
            make,
            tone="primary",
            enabled=view.may(Role.ADMIN),
            why_not="Your key may not do this: it needs the role admin",
        )


class _Desk:
    """The page of one browser: a statement, its answer, and what can be asked about."""

    def __init__(self, view: View, seen: Sequence[VisibleTable]) -> None:
        self._view = view
        self._running: asyncio.Task[AdhocResult] | None = None
        view.client.on_delete(self._stop)
        ready = {**_READY, **_of_queries(seen)}
        with parts.element("div", "ps-sql"):
            with parts.element("div", "ps-stack"):
                with parts.card("Statement", hint=self._limits()):
                    self._text = editor(_FIRST, "PostgreSQL", "SQL statement", height="13rem", run=self._run)
                    with parts.element("div", "ps-row ps-between"):
                        picked = ui.select(list(ready), label="Ready questions", with_input=False)
                        picked.props("outlined dense options-dense").classes("ps-ready")
                        picked.on_value_change(lambda event: self._write(ready.get(event.value or "", "")))
                        with parts.element("div", "ps-row"):
                            self._stop_button = parts.button("Stop", self._stop, icon="stop")
                            self._stop_button.set_visibility(False)
                            parts.text("Ctrl+Enter", "ps-muted ps-small ps-desk")
                            self._run_button = parts.button("Run", self._run, icon="play_arrow", tone="primary")
                self._answer = parts.element("div", "ps-stack")
                self._answer.props["aria-live"] = "polite"
            _views(seen, self._write)

    def _limits(self) -> str:
        limits = self._view.console.adhoc_queries.limits
        return f"Read-only · up to {formatting.duration(limits.seconds)} and {formatting.number(limits.rows)} rows"

    def _write(self, statement: str) -> None:
        if statement:
            self._text.set_value(statement)

    def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        if self._running is not None:
            return
        view = self._view
        self._stop_button.set_visibility(True)
        self._run_button.disable()
        try:
            async with view.acting("run a statement", Role.READ):
                self._running = asyncio.create_task(view.console.adhoc_queries.run(self._text.value or ""))
                try:
                    self._show(await self._running)
                except StatementRefused as refused:
                    self._refuse(refused)
                except asyncio.CancelledError:
                    if not self._running.cancelled():
                        raise
                    self._refuse(StatementRefused("it was stopped"))
        finally:
            self._running = None
            self._run_button.enable()
            self._stop_button.set_visibility(False)

    def _show(self, answer: AdhocResult) -> None:
        self._answer.clear()
        with self._answer:
            if not answer.rows:
                parts.nothing(
                    "No rows",
                    f"The statement ran in {formatting.duration(answer.seconds)} and found nothing.",
                    icon="search_off",
                )
                return
            found = query_result.drawing(answer)
            if found is not None:
                with parts.card("Chart", hint=found.of):
                    query_result.draw(found)
            with parts.card("Result", hint=query_result.summary(answer)):
                with parts.element("div", "ps-row ps-end"):
                    parts.button("Download CSV", lambda: query_result.downloaded(answer), icon="download")
                query_result.table(answer, self._view.times)

    def _refuse(self, refused: StatementRefused) -> None:
        self._answer.clear()
        with self._answer, parts.card("It did not run"):
            where = "" if refused.line is None else f"Line {refused.line}, column {refused.column}: "
            said = parts.text(f"{where}{refused}", "ps-error", tag="p")
            said.props["role"] = "alert"
            if refused.hint:
                parts.text(refused.hint, "ps-muted", tag="p")


def _of_queries(seen: Sequence[VisibleTable]) -> dict[str, str]:
    """Questions about each query that has results."""
    found: dict[str, str] = {}
    for each in seen:
        table = f"{each.schema}.{_quoted(each.name)}"
        if each.schema == "penstock_live":
            found[f"Open windows of {each.name}"] = f"SELECT *\nFROM {table}\nORDER BY window_end DESC\nLIMIT 200"
        elif each.schema == "penstock_history":
            numbers = [name for name, kind in each.columns if kind in _NUMBERS and name not in _KNOWN]
            shown = ", ".join(_quoted(name) for name in numbers[:1]) or "is_open"
            found[f"{each.name} over the last 10 minutes"] = (
                f"SELECT window_start, key, {shown}\nFROM {table}\n"
                "WHERE window_end > now() - interval '10 minutes'\nORDER BY window_start\nLIMIT 1000"
            )
    return found


_NUMBERS = ("bigint", "integer", "numeric", "double precision", "real")
_KNOWN = ("revision",)


def _quoted(name: str) -> str:
    return (
        name
        if name.isascii() and name.replace("_", "a").isalnum() and name.islower()
        else f'"{name.replace(chr(34), chr(34) * 2)}"'
    )


def _views(seen: Sequence[VisibleTable], write: Callable[[str], None]) -> None:
    titles = {"penstock_live": "Live", "penstock_history": "History", "penstock": "How things stand"}
    with parts.card("What can be asked about", hint=""), parts.element("div", "ps-views", tabindex="0"):
        for schema, some in groupby(seen, key=lambda each: each.schema):
            parts.text(titles.get(schema, schema), "ps-muted ps-small", tag="h3")
            for each in some:
                _one(each, write)


def _one(each: VisibleTable, write: Callable[[str], None]) -> None:
    columns = ", ".join(_quoted(name) for name, _ in each.columns)
    table = f"{each.schema}.{_quoted(each.name)}"
    with parts.element("details"):
        parts.text(each.name, tag="summary")
        with parts.element("ul"):
            for name, kind in each.columns:
                with parts.element("li"):
                    parts.text(name, "ps-mono")
                    parts.text(_short(kind), "ps-muted")
        with parts.element("div", "ps-row ps-end"):
            statement = f"SELECT {columns}\nFROM {table}\nLIMIT 100"
            button = parts.button("Ask", lambda: write(statement))
            button.props["aria-label"] = f"Write a statement about {each.name}"


def _short(kind: str) -> str:
    return {"timestamp with time zone": "timestamptz", "double precision": "float8"}.get(kind, kind)


PAGE = Page("/sql", "SQL", "terminal", build, needs_all=True)
