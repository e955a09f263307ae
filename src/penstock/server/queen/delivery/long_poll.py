"""Long polls: wait for events until a timeout, the end of the server or the disconnect of the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from starlette.requests import Request

from penstock.log.event import Event
from penstock.log.log import Log
from penstock.server.http.request import wait_for_disconnect
from penstock.server.routing.call import ApiCall

#: Pops events, waiting up to this many seconds for the first one.
PopWithin: TypeAlias = Callable[[float], Coroutine[Any, Any, list[Event]]]


async def long_poll(call: ApiCall, pop_within: PopWithin, seconds: float) -> list[Event]:
    """Pop now or within so many seconds. If the client disconnects, release what was leased for it."""
    events = await pop_within(0)
    if events and await _is_disconnected(call.request):
        await _release(call.services.log, events)
        return []
    if events or seconds <= 0 or call.services.stopping.is_set():
        return events
    popping = asyncio.create_task(pop_within(seconds))
    gone = asyncio.create_task(wait_for_disconnect(call.request))
    stopping = asyncio.create_task(call.services.stopping.wait())
    try:
        await asyncio.wait({popping, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not popping.done():
            popping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await popping
        events = [] if popping.cancelled() else popping.result()
        if gone.done():
            await _release(call.services.log, events)
            return []
        return events
    finally:
        for task in (popping, gone, stopping):
            task.cancel()


async def _is_disconnected(request: Request) -> bool:
    # The first call may receive the empty body of the request, so a disconnect shows only in the second one.
    return await request.is_disconnected() or await request.is_disconnected()


async def _release(log: Log, events: Sequence[Event]) -> None:
    """Return leased events to their group without counting an attempt."""
    leased = [event for event in events if event.delivery.lease_id is not None]
    if leased:
        await log.ack(leased, "retry")
