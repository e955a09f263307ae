"""Rate-limit gates of all queries, by key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.console.page import Page, View, url_for
from penstock.console.pages import gate_detail
from penstock.console.pages.gate_detail import (
    format_available,
    format_limit,
    format_next,
    format_state,
    state_of,
    sum_over_keys,
)
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.db.statements import Statements
from penstock.engine.gates.gate_admin import GateAdmin, GateInfo

_sql = Statements("penstock.console.pages", "gates.sql")

PATH = "/gates"
#: Largest number of gates on the page.
_MAX_GATES = 200


async def build(view: View) -> None:
    admin = GateAdmin(view.database)
    query, search = view.params.get("query", ""), view.params.get("search", "")
    waiting = bool(view.params.get("waiting"))
    if "key" in view.params or view.params.get("change"):
        await gate_detail.build(view, query, view.params.get("key"))
        return
    names = await _list_gated_queries(view)
    if not names:
        elements.empty_state(
            "No gates yet",
            "A gate limits the rate of a stream per key. Add .gate(token_bucket_gate(...)) to a stream and run it.",
            icon="traffic",
        )
        return
    with elements.tiles():
        keys_tile = elements.tile("Keys")
        waiting_tile = elements.tile("Waiting")
        stopped_tile = elements.tile("Paused or on hold")
        longest_tile = elements.tile("Longest wait")
        backlog_tile = elements.tile("Events waiting")
    with forms.filter_form(PATH, "Find gates", {}):
        forms.select_field("query", "Query", {"": "All queries", **{name: name for name in names}}, query)
        forms.text_field("search", "Key", search, hint="Part of a key")
        forms.checkbox("waiting", "Only waiting", waiting)
        forms.submit_button("Show")
    with elements.element("div", "ps-row"):
        for name in [query] if query else names[:6]:
            elements.link(f"All keys of {name}", url_for(PATH, query=name, change="all"), "ps-button", "tune")
    with elements.card("By key", hint="by query; waiting keys first") as card:
        table = DataTable("Gates by key", _columns(view))
    empty = elements.empty_state("No gate matches", "Try another part of a key.", icon="search_off")

    async def read() -> Sequence[GateInfo]:
        return await admin.list(query or None, search=search or None, waiting=waiting, limit=_MAX_GATES)

    def show(gates: Sequence[GateInfo]) -> None:
        now = datetime.now(UTC)
        states = {(gate.query, gate.key): state_of(gate) for gate in gates}
        waiting_keys = sum(state == "waiting" for state in states.values())
        stopped_keys = sum(state in ("paused", "on hold") for state in states.values())
        since = min(
            (gate.denied_since for gate in gates if gate.denied_since and state_of(gate) == "waiting"), default=None
        )
        note = f"those of the first {_MAX_GATES} gates" if len(gates) == _MAX_GATES else ""
        keys_tile.set(formatting.number(len(states)), note)
        waiting_tile.set(formatting.number(waiting_keys), note, "warn" if waiting_keys else "idle")
        stopped_tile.set(formatting.number(stopped_keys), note, "bad" if stopped_keys else "idle")
        if since is None:
            longest_tile.set("–")
        else:
            longest_tile.set(formatting.duration((now - since).total_seconds()), f"since {view.times.clock(since)}")
        backlog_tile.set(formatting.compact(sum_over_keys(gates, lambda gate: gate.backlog)), note)
        card.set_visibility(bool(gates))
        empty.set_visibility(not gates)
        table.set(gates)

    await view.poll(("gates", query, search, waiting), read, show)


async def _list_gated_queries(view: View) -> list[str]:
    async with view.database.connection() as conn:
        rows = await (await conn.execute(_sql["queries"])).fetchall()
    return [name for (name,) in rows]


def _columns(view: View) -> list[TableColumn[GateInfo]]:
    def key(gate: GateInfo) -> TableCell:
        href = url_for(PATH, query=gate.query, key=gate.key, change="all" if gate.key is None else None)
        return key_cell("all keys" if gate.key is None else gate.key, href)

    return [
        TableColumn("Key", key),
        TableColumn("Query", lambda gate: gate.query, classes="ps-desktop"),
        TableColumn("State", format_state),
        number_column("Available", format_available, classes="ps-desktop"),
        number_column("Limit", format_limit, classes="ps-desktop"),
        number_column("Events waiting", lambda gate: formatting.compact(gate.backlog)),
        number_column("Next event", lambda gate: format_next(view, gate)),
        number_column("Passed", lambda gate: formatting.compact(gate.allowed_total), classes="ps-desktop"),
    ]


PAGE = Page(PATH, "Gates", "traffic", build, needs_all=True)
