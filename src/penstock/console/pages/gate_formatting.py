"""Formatting of the state and the limit of a gate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from penstock.console.page import View
from penstock.console.widgets.elements import Tone
from penstock.console.widgets.tables import TableCell
from penstock.core import formatting
from penstock.engine.gates.admin import GateInfo

_TONES: dict[str, Tone] = {"paused": "bad", "on hold": "bad", "waiting": "warn", "open": "good"}


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
