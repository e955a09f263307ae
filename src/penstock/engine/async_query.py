"""A query beside an event loop: started, waited for and stopped without standing in its way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.query import Query
    from penstock.engine.status import Status


class QueryAside:
    """A query that runs, for code with an event loop: what takes time is awaited."""

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    def name(self) -> str:
        """Its id."""
        return self._query.name

    @property
    def status(self) -> Status:
        """What it has done since it was started."""
        return self._query.status

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._query.is_running

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; raises what it ended with. False, if the timeout came first."""
        return await asyncio.to_thread(self._query.wait, timeout)

    async def stop(self, *, flush: bool = False) -> None:
        """End it after the cycle that it is in; with ``flush``, close and emit the windows that are open."""
        await asyncio.to_thread(lambda: self._query.stop(flush=flush))


async def start_aside(query: Query) -> QueryAside:
    """Start a query; returns when it runs, or waits as a standby."""
    await asyncio.to_thread(query.start)
    return QueryAside(query)
