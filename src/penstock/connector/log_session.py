"""Opens the log with a connection string."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.connector.database_url import Conninfo
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log


@asynccontextmanager
async def open_log(database: Conninfo) -> AsyncIterator[Log]:
    """Open the log with a small connection pool while the block runs."""
    settings = Settings.from_env(database_url=database.reveal(), pool_size=2, auto_upgrade=False)
    log = Log(Database(settings))
    await log.open()
    try:
        yield log
    finally:
        await log.close()
