"""The transport that keeps the queues in a PostgreSQL which this process connects to."""

from __future__ import annotations

from penstock.core.clock import Clock
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log


class DatabaseTransport(Log):
    """The log itself."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(Database(settings), clock=clock, retry_seconds=settings.retry_seconds)
