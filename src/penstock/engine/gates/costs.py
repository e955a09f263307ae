"""What events cost, on their way from Spark to the gates."""

from __future__ import annotations

import math
from typing import Any

from penstock.stream.gates import NANO, nanos


def in_nanos(cost: Any) -> int | None:
    """A cost in billionths; None, where it is no number."""
    if isinstance(cost, float):
        return round(cost * NANO) if math.isfinite(cost) else None
    return nanos(cost)
