"""Rate of single pushes by their keys: commits with the same key wait for each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg

from benchmarks.sql.plan import TASKS

_PUSH = "SELECT penstock.push(%s, '{\"a\": 1}', key => %s)"
#: The key of a push, by the number of its task and its number in it.
KEYS: dict[str, Callable[[int, int], str | None]] = {
    "no key": lambda task, number: None,
    "different keys": lambda task, number: f"{task} {number % 100}",
    "one key": lambda task, number: "hot",
}


async def pushes_per_second(url: str, queue: str, key_of: Callable[[int, int], str | None], seconds: float) -> int:
    """Push events one at a time from several connections for a time."""
    until = time.perf_counter() + seconds

    async def work(task: int) -> int:
        pushed = 0
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) as conn:
            while time.perf_counter() < until:
                await conn.execute(_PUSH, (queue, key_of(task, pushed)))
                pushed += 1
        return pushed

    return round(sum(await asyncio.gather(*(work(task) for task in range(TASKS)))) / seconds)
