"""Gates: what each tenant may pass, who waits and until when; and changing that while a query runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nicegui import ui

from penstock.console.assets import address_of_asset
from penstock.console.page import Page, View, link
from penstock.console.pages import gate_change
from penstock.console.pages.gate_formatting import available, limit_of, state_of, until
from penstock.console.widgets import forms, parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting
from penstock.db.statements import Statements
from penstock.engine.gates.admin import GateAdmin, GateInfo

_sql = Statements("penstock.console.pages", "gates.sql")

PATH = "/gates"
#: More are not shown at once: those that hold back most come first, and a search finds the others.
_MOST = 200

_COLUMNS = (
    "Key",
    Column("Query", classes="ps-desk"),
    "State",
    Column("Available", is_number=True),
    Column("Limit", is_number=True, classes="ps-desk"),
    Column("Waiting", is_number=True, classes="ps-desk"),
    Column("Until", is_number=True),
    Column("Let through", is_number=True, classes="ps-desk"),
)


async def build(view: View) -> None:
    """Make the page."""
    ui.add_head_html(f'<link rel="stylesheet" href="{address_of_asset("details.css")}">')
    book = GateAdmin(view.database)
    query, search = view.params.get("query", ""), view.params.get("search", "")
    waiting = bool(view.params.get("waiting"))
    if "key" in view.params or view.params.get("change"):
        await gate_change.build(view, query, view.params.get("key"))
        return
    names = await _queries(view)
    if not names:
        parts.nothing(
            "No gates yet",
            "A gate holds back what a partner cannot take: add .gate(token_bucket_gate(...)) to a stream and run it.",
            icon="traffic",
        )
        return
    with parts.tiles():
        lanes = parts.tile("Shown")
        held = parts.tile("Waiting")
        longest = parts.tile("Waiting longest")
        backlog = parts.tile("Events held back")
    with forms.filters(PATH, "Find gates", {}):
        forms.choice("query", "Query", {"": "All queries", **{name: name for name in names}}, query)
        forms.field("search", "Key", search, hint="Part of a key")
        forms.tick("waiting", "Only those that wait", waiting)
        forms.submit("Show")
    with parts.element("div", "ps-row"):
        for name in [query] if query else names[:6]:
            with parts.element("a", "ps-step", href=link(PATH, query=name, change="all")):
                ui.icon("tune").props("aria-hidden=true")
                parts.text(f"All keys of {name}")
    with parts.card("By key", hint="Those that hold back most come first") as card:
        table = parts.table("Gates by key", _COLUMNS)
    none = parts.nothing("No gate matches", "Another part of a key, or all of them, may.", icon="search_off")

    async def read() -> Sequence[GateInfo]:
        return await book.list(query or None, search=search or None, waiting=waiting, limit=_MOST)

    def show(gates: Sequence[GateInfo]) -> None:
        now = datetime.now(UTC)
        waits = [gate for gate in gates if gate.denied_since is not None]
        since = min((gate.denied_since for gate in waits if gate.denied_since is not None), default=None)
        lanes.set(formatting.number(len(gates)), "the first of them" if len(gates) == _MOST else "")
        held.set(formatting.number(len(waits)), tone="warn" if waits else None)
        longest.set("–" if since is None else formatting.duration((now - since).total_seconds()), _since(view, since))
        backlog.set(formatting.compact(sum({(g.query, g.key): g.backlog for g in gates}.values())))
        card.set_visibility(bool(gates))
        none.set_visibility(not gates)
        table.set(_row(view, gate, now) for gate in gates)

    await view.follow(("gates", query, search, waiting), read, show)


async def _queries(view: View) -> list[str]:
    async with view.database.connection() as conn:
        rows = await (await conn.execute(_sql["queries"])).fetchall()
    return [name for (name,) in rows]


def _since(view: View, since: datetime | None) -> str:
    return "" if since is None else f"since {view.times.clock(since)}"


def _row(view: View, gate: GateInfo, now: datetime) -> list[Cell | str]:
    return [
        Cell(
            "all keys together" if gate.key is None else gate.key,
            href=link(PATH, query=gate.query, key=gate.key, change="all" if gate.key is None else None),
            classes="ps-strong ps-break",
        ),
        gate.query,
        state_of(gate),
        available(gate),
        limit_of(gate),
        formatting.compact(gate.backlog),
        until(view, gate, now),
        formatting.compact(gate.allowed_total),
    ]


PAGE = Page(PATH, "Gates", "traffic", build, needs_all=True)
