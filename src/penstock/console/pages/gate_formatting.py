"""A gate in words."""

from __future__ import annotations

from datetime import datetime

from penstock.console.page import View
from penstock.console.widgets.parts import Cell
from penstock.core import formatting
from penstock.engine.gates.admin import GateInfo


def state_of(gate: GateInfo) -> Cell:
    """What the gate does, in a word."""
    if gate.paused:
        return Cell("paused", tone="bad")
    if gate.hold_until is not None:
        return Cell("held back", tone="bad")
    if gate.denied_since is not None:
        return Cell("waits", tone="warn")
    return Cell("flows", tone="good")


def available(gate: GateInfo) -> Cell:
    """How much may pass at once now, of how much."""
    left = gate.tokens if gate.kind == "token_bucket" else gate.limit - (gate.used or 0.0)
    left = max(left or 0.0, 0.0)
    return Cell(formatting.number(round(left, 1)), bar=left / gate.limit if gate.limit else 0.0)


def limit_of(gate: GateInfo) -> str:
    """A gate's limit in a few words."""
    match gate.kind:
        case "token_bucket":
            return f"{formatting.number(gate.limit)} at once, {formatting.number(gate.rate)}/s"
        case "sliding_window":
            return f"{formatting.number(gate.limit)} in {formatting.duration(gate.window_seconds)}"
        case _:
            return f"{formatting.number(gate.limit)} in flight"


def until(view: View, gate: GateInfo, now: datetime) -> str:
    """When the next may pass."""
    if gate.paused:
        return "resumed"
    moment = gate.hold_until or gate.next_at
    if moment is None:
        return "–" if gate.denied_since is None else "acknowledged"
    left = (moment - now).total_seconds()
    if left <= 0:
        return "now"
    return f"in {formatting.duration(left)}" if left < 60 else view.times.clock(moment)
