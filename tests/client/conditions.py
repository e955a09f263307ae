"""Waiting for what a test is about, and not for time to pass."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from penstock import Event

#: Long enough for a busy machine, short enough to see that something hangs.
PATIENCE = 20.0


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - most conditions are in the database
            await asyncio.sleep(0.005)


def soon(condition: Callable[[], object]) -> None:
    """The same for threads."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        threading.Event().wait(0.005)


def seqs(events: Iterable[Event]) -> list[Any]:
    return [event.data["seq"] for event in events]


def numbered(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"data": {"seq": seq}} for seq in range(start, start + count)]
