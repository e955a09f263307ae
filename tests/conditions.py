"""Waits for conditions that other processes, threads or tasks bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")

_PAUSE_SECONDS = 0.01


def eventually(condition: Callable[[], _T], what: str = "", *, timeout: float = 100.0) -> _T:
    """Wait until the result of a condition is true, and return it. The machine may be busy."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, f"it did not happen in {timeout:g} s: {what or condition}"
        time.sleep(_PAUSE_SECONDS)
    return result


async def eventually_async(condition: Callable[[], Awaitable[object]], *, timeout: float = 20.0) -> None:
    """Wait until the result of an asynchronous condition is true."""
    async with asyncio.timeout(timeout):
        while not await condition():  # noqa: ASYNC110 - the conditions are in databases and other processes
            await asyncio.sleep(_PAUSE_SECONDS)
