"""The gates of one key, or of all keys of a query, with forms to change limits and to pause; formatting of gates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from msgspec import structs
from nicegui import ui

from penstock.console.page import View
from penstock.console.widgets import elements, forms
from penstock.console.widgets.elements import Tone
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, number_column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine.gates.gate_admin import GateAdmin, GateChange, GateInfo
from penstock.server.auth.identity import Role

PATH = "/gates"
_MAX_ROWS = 20

_KINDS = {"token_bucket": "token bucket", "sliding_window": "sliding window", "concurrency": "in flight"}
_TONES: dict[str, Tone] = {"paused": "bad", "on hold": "bad", "waiting": "warn", "open": "good"}
#: The options of each kind of gate that can be changed, with their labels.
_FIELDS: dict[str, Sequence[tuple[str, str]]] = {
    "token_bucket": (("capacity", "Burst"), ("rate", "Per second")),
    "sliding_window": (("limit", "Limit"), ("window_seconds", "Window in seconds")),
    "concurrency": (("limit", "In flight"),),
}


async def build(view: View, query: str, key: str | None) -> None:
    """Build the page of a key, or of all keys if ``key`` is None."""
    admin = GateAdmin(view.database)
    scope = "all keys" if key is None else key
    forms.breadcrumb(("Gates", PATH), current=f"{query}: {scope}")

    async def read() -> Sequence[GateInfo]:
        gates = await admin.list(query, key, limit=100 if key is not None else 1000)
        return [gate for gate in gates if key is None or gate.key is None or gate.key == key]

    try:
        first = await read()
    except NotFound:
        first = []
    if not first:
        elements.empty_state(
            "There is no such gate", "The query has no gate, or has not read an event with this key yet."
        )
        return
    distinct_gates = {gate.gate: gate for gate in first}.values()
    with elements.tiles():
        backlog_tile = elements.tile("Events waiting")
        since_tile = elements.tile("Waiting since")
        passed_tile = elements.tile("Passed")

    def name(gate: GateInfo) -> str:
        return f"{gate.gate} · {_KINDS[gate.kind]}{'' if key is not None else f' · {gate.key or scope}'}"

    columns: list[TableColumn[GateInfo]] = [
        TableColumn("Gate", name),
        TableColumn("State", format_state),
        number_column("Available", format_available),
        number_column("Limit", format_limit, classes="ps-desktop"),
        number_column("Next event", lambda gate: format_next(view, gate)),
        number_column("Spent", lambda gate: formatting.compact(gate.cost_total), classes="ps-desktop"),
    ]
    with elements.card("Now"):
        table = DataTable("Gates", columns)

    def show(gates: Sequence[GateInfo]) -> None:
        own = [gate for gate in gates if gate.key == key] or gates
        denied = min((gate.denied_since for gate in gates if gate.denied_since is not None), default=None)
        waiting = sum_over_keys(own, lambda gate: gate.backlog)
        backlog_tile.set(formatting.compact(waiting), tone="warn" if waiting else "idle")
        since_tile.set("–" if denied is None else view.times.clock(denied))
        passed_tile.set(formatting.compact(sum_over_keys(own, lambda gate: gate.allowed_total)))
        show_flow(any(state_of(gate) in ("paused", "on hold") for gate in own))
        table.set(gates[:_MAX_ROWS])

    reason = view.missing_permission(Role.ADMIN)
    if reason:
        elements.text(f"{reason} to change limits.", "ps-muted", tag="p")
    with elements.element("div", "ps-grid"):
        for gate in distinct_gates:
            _limit_card(view, admin, query, key, gate, reason)
        show_flow = _flow_card(view, admin, query, key, reason)
    await view.poll(("gate", query, key), read, show)


def _limit_card(view: View, admin: GateAdmin, query: str, key: str | None, gate: GateInfo, reason: str) -> None:
    hint = "for keys without their own limit" if key is None else "for this key only"
    with elements.card(f"Limit of gate {gate.gate}", hint=hint):
        current = {
            "capacity": gate.limit,
            "limit": gate.limit,
            "rate": gate.rate,
            "window_seconds": gate.window_seconds,
        }
        inputs: dict[str, ui.number] = {}
        with elements.element("div", "ps-row"):
            for option, label in _FIELDS[gate.kind]:
                field = ui.number(label, value=current[option], min=0).props("outlined dense").classes("ps-grow")
                field.props["aria-label"] = f"{label}, gate {gate.gate}"
                field.set_enabled(not reason)
                inputs[option] = field

        async def save() -> None:
            changed = {
                option: float(field.value)
                for option, field in inputs.items()
                if field.value is not None and not math.isclose(float(field.value), current[option] or 0.0)
            }
            if not changed:
                ui.notify("Nothing changed: enter another limit", position="bottom")
                return
            async with view.action("change a gate", Role.ADMIN, subject=_subject(query, key), done="Limit changed"):
                await admin.change(query, structs.replace(GateChange(key=key, gate=gate.gate), **changed))
                current.update(changed)

        with elements.element("div", "ps-row ps-end"):
            elements.button("Change the limit", save, tone="primary", disabled_reason=reason)


def _flow_card(view: View, admin: GateAdmin, query: str, key: str | None, reason: str) -> Callable[[bool], None]:
    """Create the card that pauses and resumes, and return the function that shows which of them is possible."""
    subject = _subject(query, key)
    scope = "all keys" if key is None else key

    async def change(action: str, done: str, change: GateChange) -> None:
        async with view.action(action, Role.ADMIN, subject=subject, done=done):
            await admin.change(query, change)
            if change.paused is not None:
                show(change.paused)

    async def pause() -> None:
        if await elements.confirm(f"Pause {scope}?", "No event passes until you resume it. Events wait.", "Pause"):
            await change("pause a gate", f"Paused {scope}", GateChange(key=key, paused=True))

    async def resume() -> None:
        await change("resume a gate", f"Resumed {scope}", GateChange(key=key, paused=False, hold_seconds=0))

    async def hold() -> None:
        if seconds.value is None or not 0 < float(seconds.value) <= 366 * 86_400:
            ui.notify("Enter the number of seconds, at most one year", type="warning", position="bottom")
            return
        await change(
            "hold a gate",
            f"{scope} is on hold for {formatting.duration(float(seconds.value))}",
            GateChange(key=key, hold_seconds=float(seconds.value)),
        )

    async def clear() -> None:
        detail = "This removes changed limits, pauses and holds."
        if await elements.confirm(f"Restore the limits of the stream for {scope}?", detail, "Reset"):
            await change("clear a gate", f"Limits of the stream restored for {scope}", GateChange(key=key, clear=True))

    with elements.card("Flow"):
        with elements.element("div", "ps-row"):
            pause_button = elements.button("Pause", pause, icon="pause", disabled_reason=reason)
            resume_button = elements.button("Resume", resume, icon="play_arrow", tone="primary", disabled_reason=reason)
        with elements.element("div", "ps-row"):
            seconds = ui.number("Hold for seconds", value=30, min=1).props("outlined dense").classes("ps-grow")
            seconds.set_enabled(not reason)
            elements.button("Hold", hold, icon="hourglass_top", disabled_reason=reason)
        with elements.element("div", "ps-row ps-end"):
            elements.button("Reset", clear, tone="danger", disabled_reason=reason)

    def show(is_stopped: bool) -> None:
        pause_button.set_visibility(not is_stopped)
        resume_button.set_visibility(is_stopped)

    return show


def _subject(query: str, key: str | None) -> str:
    return query if key is None else f"{query}, {key}"


def format_state(gate: GateInfo) -> TableCell:
    state = state_of(gate)
    return TableCell(state, tone=_TONES[state])


def state_of(gate: GateInfo) -> str:
    """Return paused, on hold, waiting or open."""
    if gate.paused:
        return "paused"
    if gate.hold_until is not None:
        return "on hold"
    return "open" if gate.denied_since is None else "waiting"


def sum_over_keys(gates: Iterable[GateInfo], value: Callable[[GateInfo], int]) -> int:
    """Add up a value that all gates of a key share. The row of a shared gate has the sum over all keys of its query."""
    by_key = {(gate.query, gate.key): value(gate) for gate in gates}
    with_shared = {query for query, key in by_key if key is None}
    return sum(number for (query, key), number in by_key.items() if key is None or query not in with_shared)


def format_available(gate: GateInfo) -> TableCell:
    """Format the remaining capacity, with a bar relative to the limit."""
    left = gate.tokens if gate.kind == "token_bucket" else gate.limit - (gate.used or 0.0)
    left = max(left or 0.0, 0.0)
    return TableCell(formatting.number(round(left, 1)), bar=left / gate.limit if gate.limit else 0.0)


def format_limit(gate: GateInfo) -> str:
    match gate.kind:
        case "token_bucket":
            return f"burst {formatting.number(gate.limit)}, {formatting.number(gate.rate)}/s"
        case "sliding_window":
            return f"{formatting.number(gate.limit)} in {formatting.duration(gate.window_seconds)}"
        case _:
            return f"{formatting.number(gate.limit)} in flight"


def format_next(view: View, gate: GateInfo) -> str:
    """Format the time at which the next event can pass, or the action that it depends on."""
    if gate.paused:
        return "after resume"
    next_at = gate.hold_until or gate.next_at
    if next_at is None:
        return "–" if gate.denied_since is None else "after an ack"
    left = (next_at - datetime.now(UTC)).total_seconds()
    if left <= 0:
        return "now"
    return f"in {formatting.duration(left)}" if left < 60 else view.times.clock(next_at)
