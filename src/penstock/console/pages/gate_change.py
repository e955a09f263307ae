"""The gates of one key, or of all keys of a query: how they stand, and changing them while the query runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import structs
from nicegui import ui

from penstock.console.page import View
from penstock.console.pages.gate_formatting import available, limit_of, state_of, until
from penstock.console.widgets import forms, parts
from penstock.console.widgets.parts import Column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine.gates.admin import GateAdmin, GateChange, GateInfo
from penstock.server.auth.identity import Role

PATH = "/gates"

_COLUMNS = (
    "Gate",
    "State",
    Column("Available", is_number=True),
    Column("Limit", is_number=True),
    Column("Until", is_number=True),
    Column("Spent", is_number=True, classes="ps-desk"),
)
_WHY_NOT = "Your key may not change gates: it needs the role admin"
_KINDS = {"token_bucket": "token bucket", "sliding_window": "sliding window", "concurrency": "in flight"}
#: What can be changed of each kind of gate: the option, and what it is called.
_FIELDS: dict[str, Sequence[tuple[str, str]]] = {
    "token_bucket": (("capacity", "At once"), ("rate", "A second")),
    "sliding_window": (("limit", "Limit"), ("window_seconds", "In seconds")),
    "concurrency": (("limit", "In flight"),),
}


async def build(view: View, query: str, key: str | None) -> None:
    """Make the page of a key, or of all keys if there is none."""
    book = GateAdmin(view.database)
    whose = "all keys" if key is None else key
    forms.trail(("Gates", PATH), here=f"{query}: {whose}")

    async def read() -> Sequence[GateInfo]:
        # Those of all keys are the same but for the lanes: one shows them.
        found = await book.list(query, key, limit=100 if key is not None else 1000)
        return [gate for gate in found if gate.key == key or gate.key is None or key is None]

    try:
        first = await read()
    except NotFound:
        first = []
    if not first:
        parts.nothing("There is no such gate", "The query has none, or nothing of that key has come to it yet.")
        return
    rules = list({gate.gate: gate for gate in first}.values())
    with parts.tiles():
        backlog = parts.tile("Events waiting")
        since = parts.tile("Waits since")
        allowed = parts.tile("Let through")
    with parts.card("Now"):
        table = parts.table("Gates", _COLUMNS)

    def show(gates: Sequence[GateInfo]) -> None:
        now = datetime.now(UTC)
        lanes = {gate.key: gate for gate in gates}.values()
        denied = min((gate.denied_since for gate in gates if gate.denied_since is not None), default=None)
        waiting = sum(lane.backlog for lane in lanes)
        backlog.set(formatting.compact(waiting), tone="warn" if waiting else None)
        since.set("–" if denied is None else view.times.clock(denied))
        allowed.set(formatting.compact(sum(lane.allowed_total for lane in lanes)))
        table.set(
            [
                f"{gate.gate} · {_KINDS[gate.kind]}{'' if key is not None else f' · {gate.key or whose}'}",
                state_of(gate),
                available(gate),
                limit_of(gate),
                until(view, gate, now),
                formatting.compact(gate.cost_total),
            ]
            for gate in gates[:20]
        )

    await view.follow(("gate", query, key), read, show)
    may = view.may(Role.ADMIN)
    if not may:
        parts.text("Changing limits takes a key with the role admin.", "ps-muted", tag="p")
    with parts.element("div", "ps-grid"):
        for rule in rules:
            _limits(view, book, query, key, rule, may)
        _flow(view, book, query, key, may, any(gate.paused for gate in first))


def _limits(view: View, book: GateAdmin, query: str, key: str | None, gate: GateInfo, may: bool) -> None:
    hint = "for every key that has none of its own" if key is None else "for this key alone"
    with parts.card(f"Limit of gate {gate.gate}", hint=hint):
        known = {
            "capacity": gate.limit,
            "limit": gate.limit,
            "rate": gate.rate,
            "window_seconds": gate.window_seconds,
        }
        inputs: dict[str, ui.number] = {}
        with parts.element("div", "ps-row"):
            for option, label in _FIELDS[gate.kind]:
                made = ui.number(label, value=known[option], min=0).props("outlined dense").classes("ps-grow")
                made.props["aria-label"] = f"{label}, gate {gate.gate}"
                made.set_enabled(may)
                inputs[option] = made

        async def save() -> None:
            changed = {
                option: float(made.value)
                for option, made in inputs.items()
                if made.value is not None and not math.isclose(float(made.value), known[option] or 0.0)
            }
            if not changed:
                ui.notify("Nothing is different: change a number first", position="bottom")
                return
            async with view.acting(
                "change a gate", Role.ADMIN, subject=_subject(query, key), done="The limit was changed"
            ):
                await book.change(query, structs.replace(GateChange(key=key, gate=gate.gate), **changed))
                known.update(changed)

        with parts.element("div", "ps-row ps-end"):
            parts.button("Change the limit", save, tone="primary", enabled=may, why_not=_WHY_NOT)


def _flow(view: View, book: GateAdmin, query: str, key: str | None, may: bool, is_paused: bool) -> None:
    subject = _subject(query, key)
    whose = "all keys" if key is None else key

    async def change(action: str, done: str, change: GateChange) -> None:
        async with view.acting(action, Role.ADMIN, subject=subject, done=done):
            await book.change(query, change)

    async def pause() -> None:
        if await parts.confirm(f"Pause {whose}?", "Nothing passes until it is resumed; what comes waits.", "Pause"):
            await change("pause a gate", f"Paused {whose}", GateChange(key=key, paused=True))

    async def resume() -> None:
        await change("resume a gate", f"Resumed {whose}", GateChange(key=key, paused=False, hold_seconds=0))

    async def hold() -> None:
        if seconds.value is None or not 0 < float(seconds.value) <= 366 * 86_400:
            ui.notify("Say for how many seconds", type="warning", position="bottom")
            return
        await change(
            "hold a gate",
            f"{whose} is held back for {formatting.duration(float(seconds.value))}",
            GateChange(key=key, hold_seconds=float(seconds.value)),
        )

    async def clear() -> None:
        detail = "What was changed by hand is forgotten: limits, pauses and holds."
        if await parts.confirm(f"Back to the stream's own limits for {whose}?", detail, "Forget changes"):
            await change("clear a gate", f"The stream's own limits hold for {whose}", GateChange(key=key, clear=True))

    with parts.card("Flow", hint="paused" if is_paused else ""):
        with parts.element("div", "ps-row"):
            parts.button("Pause", pause, icon="pause", enabled=may, why_not=_WHY_NOT)
            parts.button("Resume", resume, icon="play_arrow", enabled=may, why_not=_WHY_NOT)
        with parts.element("div", "ps-row"):
            seconds = ui.number("Hold for seconds", value=30, min=1).props("outlined dense").classes("ps-grow")
            seconds.set_enabled(may)
            parts.button("Hold", hold, icon="hourglass_top", enabled=may, why_not=_WHY_NOT)
        with parts.element("div", "ps-row ps-end"):
            parts.button("Forget changes", clear, tone="danger", enabled=may, why_not=_WHY_NOT)


def _subject(query: str, key: str | None) -> str:
    return query if key is None else f"{query}, {key}"
