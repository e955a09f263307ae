"""Looking for something among all that is stored: for a while, for who is still there, and not by all at once.

Such a look holds a connection for as long as it takes, and pushes need those too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from penstock.server.http.errors import Problem, retry_after

if TYPE_CHECKING:
    from penstock.server.http.endpoint import Call

_Answer = TypeVar("_Answer")

#: How long one may take, and how long one waits for its turn. Clients wait for 45 seconds.
_LONGEST_SECONDS = 30.0
_TURN_SECONDS = 10.0


class Looks:
    """The looks of a process: at most a third of its connections are for them."""

    def __init__(self, connections: int, longest_seconds: float = _LONGEST_SECONDS) -> None:
        self._longest = longest_seconds
        self._turns = asyncio.Semaphore(max(1, connections // 3))

    async def look(self, call: Call, looking: Coroutine[Any, Any, _Answer]) -> _Answer:
        """What is found, if it is in time; nobody looks on for a caller who has gone."""
        task: asyncio.Task[_Answer] = asyncio.create_task(self._in_turn(looking))
        gone = asyncio.create_task(disconnected(call.request))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            looking.close()

    async def _in_turn(self, looking: Coroutine[Any, Any, _Answer]) -> _Answer:
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            detail = "others look for events too, and take long; ask again"
            raise Problem("overloaded", detail, {}, retry_after(5)) from None
        try:
            async with asyncio.timeout(self._longest):
                return await looking
        except TimeoutError:
            detail = f"it took longer than {self._longest:g} s: look at less, with partition, key, since or until"
            raise Problem("too-large", detail) from None
        finally:
            self._turns.release()


async def disconnected(request: Request) -> None:
    """Wait until the caller has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
