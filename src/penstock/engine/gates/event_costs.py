"""The costs of events at gates, in billionths of a token, and in the headers of the events that gates released.

A sink behind the gates reads the headers. Events that cost one token at every gate and keep their key have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from penstock.log.event import Event
from penstock.log.queue import DEFAULT_KEY
from penstock.stream.gates import NANOS_PER_TOKEN, format_amount, to_nanotokens

#: The costs of a partition's events at one gate, in order; a single number if all events cost the same.
Costs: TypeAlias = int | list[int]


def to_nanos(cost: Any) -> int | None:
    """Convert a cost that Spark computed to billionths; None if it is not a finite number."""
    if isinstance(cost, float):
        return round(cost * NANOS_PER_TOKEN) if math.isfinite(cost) else None
    return to_nanotokens(cost)


def cost_at(costs: Costs, index: int) -> int:
    return costs if isinstance(costs, int) else costs[index]


def total_cost(costs: Costs, count: int) -> int:
    return costs * count if isinstance(costs, int) else sum(costs[:count])


#: The costs in tokens, one for each gate, with commas between them.
COST_HEADER = "penstock-gate-cost"
#: The key whose budget was charged, if the event has another key.
KEY_HEADER = "penstock-gate-key"


def gate_headers(costs: Sequence[int], gate_key: str, event_key: str | None) -> dict[str, str] | None:
    """Return the headers of a released event; None if it needs none."""
    headers = {}
    if any(cost != NANOS_PER_TOKEN for cost in costs):
        headers[COST_HEADER] = ",".join(map(format_amount, costs))
    if gate_key != (DEFAULT_KEY if event_key is None else event_key):
        headers[KEY_HEADER] = gate_key
    return headers or None


def event_costs(event: Event, gates: int) -> tuple[int, ...]:
    """Return the cost of an event at each gate, in billionths; one token each if no header names it."""
    text = event.headers.get(COST_HEADER)
    if text is None:
        return (NANOS_PER_TOKEN,) * gates
    return tuple(_parse_cost(part) for part in text.split(","))


def event_gate_key(event: Event) -> str:
    """Return the key whose budgets an event is charged to."""
    headers = event.headers
    return headers.get(KEY_HEADER, event.key or DEFAULT_KEY)


def _parse_cost(text: str) -> int:
    # Anybody may push an event with such a header.
    try:
        cost = to_nanotokens(Decimal(text))
    except InvalidOperation:
        cost = None
    return NANOS_PER_TOKEN if cost is None or cost < 0 else cost
