"""The transport that keeps the queues in a PostgreSQL which this process connects to."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.clock import Clock
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.gates.admin import GateBook, GateChange, GateInfo
from penstock.log.log import Log


class DatabaseTransport(Log):
    """The log itself."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(Database(settings), clock=clock, retry_seconds=settings.retry_seconds)

    async def gates(self, query: str | None, key: str | None = None) -> Sequence[GateInfo]:
        """Gates, lane by lane."""
        return await GateBook(self.database).list(query, key)

    async def change_gate(self, query: str, change: GateChange) -> None:
        """Change the limits of a query's gates."""
        await GateBook(self.database).change(query, change)

    async def hold_gate(self, query: str, key: str | None, seconds: float) -> None:
        """Let a gate pass nothing for so long."""
        await self.change_gate(query, GateChange(key=key, hold_seconds=seconds))
