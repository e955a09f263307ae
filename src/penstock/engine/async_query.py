"""A running query for code with an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.query import Query
    from penstock.engine.result_rows import QueryRows
    from penstock.engine.status import Status


class AsyncQuery:
    """A running query whose waiting methods are awaited."""

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    def name(self) -> str:
        return self._query.name

    @property
    def status(self) -> Status:
        """Counts since the start, and the current state."""
        return self._query.status

    @property
    def is_running(self) -> bool:
        return self._query.is_running

    async def rows(self, *, key: str | None = None, current: bool = False) -> QueryRows:
        """Return the open windows, as ``penstock_live`` has them; with ``current``, the current one of each key."""
        return await asyncio.to_thread(lambda: self._query.rows(key=key, current=current))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended; raises the error that ended it. Returns False after a timeout."""
        return await asyncio.to_thread(self._query.wait, timeout)

    async def stop(self, *, flush: bool = False) -> None:
        """End the query after its current cycle; with ``flush``, close and emit all open windows."""
        await asyncio.to_thread(lambda: self._query.stop(flush=flush))


async def start_async(query: Query) -> AsyncQuery:
    """Start a query. Returns when it runs or stands by."""
    await asyncio.to_thread(query.start)
    return AsyncQuery(query)
