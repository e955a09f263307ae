"""Waits for conditions, and creates and reads numbered events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from penstock import Event

#: Long enough for a busy machine.
TIMEOUT_SECONDS = 20.0


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await condition():  # noqa: ASYNC110 - the conditions are in the database
            await asyncio.sleep(0.005)


def eventually_sync(condition: Callable[[], object]) -> None:
    """Wait for a condition in a test without an event loop."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        threading.Event().wait(0.005)


def sequence_numbers(events: Iterable[Event]) -> list[Any]:
    return [event.data["seq"] for event in events]


def numbered_events(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"data": {"seq": seq}} for seq in range(start, start + count)]
