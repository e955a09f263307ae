"""Costs of events at gates, in billionths of a token."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from penstock.stream.gates import NANOS_PER_TOKEN, to_nanotokens

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
