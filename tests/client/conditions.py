"""Waits for conditions, and creates and reads numbered events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Event

#: Long enough for a busy machine.
TIMEOUT_SECONDS = 20.0


def sequence_numbers(events: Iterable[Event]) -> list[Any]:
    return [event.data["seq"] for event in events]


def numbered_events(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"data": {"seq": seq}} for seq in range(start, start + count)]
