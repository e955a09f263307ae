"""The two streams: orders and their payments three seconds later, in the order of their times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock import Penstock

WITHIN_SECONDS = 10
#: Events of each side per second of event time.
_PER_SECOND = 1_000
_BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
_PARTITIONS = 4
_PUSH = 5_000


def has_payment(number: int) -> bool:
    """Return whether an order has a payment. Nine of ten have one."""
    return number % 10 != 0


async def fill(q: Penstock, events: int) -> None:
    """Push orders to ``orders`` and their payments to ``payments``."""
    for queue, side in (("orders", _orders), ("payments", _payments)):
        handle = q.queue(queue)
        await handle.config(max_depth_events=None).create("hash", _PARTITIONS)
        batch = [side(number) for number in range(events)]
        for start in range(0, events, _PUSH):
            await handle.push(batch[start : start + _PUSH])


def _orders(number: int) -> dict[str, Any]:
    return {"key": str(number), "data": {"id": number, "total": number % 500, "at": _at(number)}}


def _payments(number: int) -> dict[str, Any]:
    # Payments without an order advance the watermark.
    order = number if has_payment(number) else -1 - number
    return {"key": str(number), "data": {"order_id": order, "method": "card", "at": _at(number, later=3)}}


def _at(number: int, later: float = 0) -> str:
    return (_BEGIN + timedelta(seconds=number / _PER_SECOND + later)).isoformat()
