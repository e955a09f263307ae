"""Events and windows of these tests."""

from __future__ import annotations

from typing import Any

from tests.engine.pipelines import NEVER_IDLE, T0


def good(count: int, key: str = "k") -> list[tuple[str, Any]]:
    return [(key, {"ts": T0 + i % 60, "amount": 1}) for i in range(count)]


def windowed(made: Any, **aggregates: Any) -> Any:
    made = made.window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    return made.aggregate({"n": "count(*)", **aggregates}).to("totals")
