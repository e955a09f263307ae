"""Values as they leave Spark, as JSON would have them, and without what was only ours."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

from penstock.core import json

#: What functions of a stream put beside an event's fields on its way: the key that it gets downstream, and what it
#: costs at a gate, whose place follows.
SINK_KEY = "__sink_key"
COST = "__cost_"
#: An event that has no fields to put them beside.
WHOLE = "__whole"
_OURS = (SINK_KEY, COST)

#: More digits than any column has: Python's own precision would round at 28.
_EXACT = Context(prec=100)


def plain(value: Any) -> Any:
    """Decimals as the numbers that a JSON text of the same digits stands for; the rest as it is."""
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < 2**63:
            return int(value)
        near = float(value)
        return near if Decimal(repr(near)) == value else value.normalize(_EXACT)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def as_it_was(line: bytes) -> bytes:
    """An event without what functions of the stream have put beside its fields."""
    event = json.decode(line)
    if not isinstance(event, dict):
        return line
    return json.encode(
        event[WHOLE] if WHOLE in event else {name: value for name, value in event.items() if not name.startswith(_OURS)}
    )
