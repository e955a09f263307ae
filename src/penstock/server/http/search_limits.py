"""Limits for searches through stored events: their number, their duration, and only while the caller waits.

A search holds a database connection for its whole duration, and pushes need connections too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from penstock.server.http.errors import Problem, retry_after
from penstock.server.http.request import wait_for_disconnect

_ResultT = TypeVar("_ResultT")

#: Time limits for a search and for the wait before it. Together less than the 45 seconds that clients wait.
_SEARCH_SECONDS = 30.0
_WAIT_SECONDS = 10.0


class SearchLimiter:
    """Runs searches on at most a third of the database connections of a process."""

    def __init__(self, connections: int, search_seconds: float = _SEARCH_SECONDS) -> None:
        self._search_seconds = search_seconds
        self._slots = asyncio.Semaphore(max(1, connections // 3))

    async def run(self, request: Request, search: Coroutine[Any, Any, _ResultT]) -> _ResultT:
        """Return the result of a search. Cancel it when the client disconnects."""
        task: asyncio.Task[_ResultT] = asyncio.create_task(self._run_in_slot(search))
        disconnect = asyncio.create_task(wait_for_disconnect(request))
        try:
            await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            disconnect.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            search.close()

    async def _run_in_slot(self, search: Coroutine[Any, Any, _ResultT]) -> _ResultT:
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            detail = "too many searches are running; try again later"
            raise Problem("overloaded", detail, {}, retry_after(5)) from None
        try:
            async with asyncio.timeout(self._search_seconds):
                return await search
        except TimeoutError:
            detail = (
                f"the search took longer than {self._search_seconds:g} s: "
                "search less, with partition, key, since or until"
            )
            raise Problem("too-large", detail) from None
        finally:
            self._slots.release()
