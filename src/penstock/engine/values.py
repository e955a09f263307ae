"""Values as they leave Spark, as JSON would have them."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

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
