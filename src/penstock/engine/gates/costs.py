"""What events cost, on their way from Spark to the gates."""

from __future__ import annotations

import math
from typing import Any

from penstock.core import json
from penstock.stream.gates import NANO, nanos

#: The column of a cycle's result that says what an event costs at a gate; the gate's place follows.
COST = "__cost_"


def in_nanos(cost: Any) -> int | None:
    """A cost in billionths; None, where it is no number."""
    if isinstance(cost, float):
        return round(cost * NANO) if math.isfinite(cost) else None
    return nanos(cost)


def without_costs(line: bytes) -> bytes:
    """An event without the costs that a function has put beside its fields."""
    event = json.decode(line)
    if not isinstance(event, dict):
        return line
    return json.encode({name: value for name, value in event.items() if not name.startswith(COST)})
