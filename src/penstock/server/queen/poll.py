"""Long polls: answered when there is something, in time, when the server ends, and never for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from starlette.requests import Request

from penstock.log.event import Event
from penstock.log.log import Log
from penstock.server.http.endpoint import Call
from penstock.server.http.search_limits import disconnected

#: Looks for events for so many seconds.
Look: TypeAlias = Callable[[float], Awaitable[list[Event]]]


async def long_poll(call: Call, look: Look, seconds: float) -> list[Event]:
    """What a look finds, at once or within so many seconds; nothing stays leased to a client that has gone."""
    events = await look(0)
    if events and await _has_gone(call.request):
        await give_back(call.services.log, events)
        return []
    if events or seconds <= 0 or call.services.stopping.is_set():
        return events
    looking = asyncio.create_task(_look(look, seconds))
    gone = asyncio.create_task(disconnected(call.request))
    stopping = asyncio.create_task(call.services.stopping.wait())
    try:
        await asyncio.wait({looking, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not looking.done():
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        events = [] if looking.cancelled() else looking.result()
        if gone.done():
            await give_back(call.services.log, events)
            return []
        return events
    finally:
        for task in (looking, gone, stopping):
            task.cancel()


async def _look(look: Look, seconds: float) -> list[Event]:
    return await look(seconds)


async def _has_gone(request: Request) -> bool:
    """Whether the client has gone already; the first message is the request's empty body."""
    return await request.is_disconnected() or await request.is_disconnected()


async def give_back(log: Log, events: Sequence[Event]) -> None:
    """Let others have what was leased; it costs the events no retry."""
    leased = [event for event in events if event.delivery.lease_id is not None]
    if leased:
        await log.ack(leased, "retry")
