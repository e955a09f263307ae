"""Changes of entries and timers as a step of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from penstock.log.coordination.kv import KeyValueStore, KvOperation, KvResult
from penstock.log.coordination.timers import TimerOperation, TimerResult, Timers


@dataclass(slots=True)
class CoordinationStep:
    """Executes checked operations in a transaction, and keeps their results."""

    kv: KeyValueStore
    timers: Timers
    kv_operations: Sequence[KvOperation]
    timer_operations: Sequence[TimerOperation]
    kv_results: list[KvResult] = field(default_factory=list)
    timer_results: list[TimerResult] = field(default_factory=list)

    async def __call__(self, conn: AsyncConnection[Any]) -> None:
        self.kv_results = await self.kv.apply_on(conn, self.kv_operations)
        self.timer_results = await self.timers.apply_on(conn, self.timer_operations)
