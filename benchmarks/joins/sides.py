"""The two streams: an order and its payment a moment later, in the order of their times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock import Penstock

WITHIN_SECONDS = 10
#: Of event time: this many of each side in a second.
_PER_SECOND = 1_000
_BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
_PARTITIONS = 4
_PUSH = 5_000


def pays(number: int) -> bool:
    """Return whether an order has a payment: nine of ten have one."""
    return number % 10 != 0


async def fill(q: Penstock, events: int) -> None:
    """Push orders to ``orders`` and their payments to ``payments``."""
    for queue, side in (("orders", _orders), ("payments", _payments)):
        handle = q.queue(queue)
        await handle.config(max_depth_events=None).create("hash", _PARTITIONS)
        some = [side(number) for number in range(events)]
        for start in range(0, events, _PUSH):
            await handle.push(some[start : start + _PUSH])


def _orders(number: int) -> dict[str, Any]:
    return {"key": str(number), "data": {"id": number, "total": number % 500, "at": _at(number)}}


def _payments(number: int) -> dict[str, Any]:
    # Those that are for no order keep the time going.
    order = number if pays(number) else -1 - number
    return {"key": str(number), "data": {"order_id": order, "method": "card", "at": _at(number, later=3)}}


def _at(number: int, later: float = 0) -> str:
    return (_BEGIN + timedelta(seconds=number / _PER_SECOND + later)).isoformat()
