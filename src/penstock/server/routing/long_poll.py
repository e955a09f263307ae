"""Pops that wait for events until a timeout, the end of the server or the disconnect of the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from starlette.requests import ClientDisconnect

from penstock.log.event import Event
from penstock.log.log import Log
from penstock.server.http.request import wait_for_disconnect
from penstock.server.routing.call import ApiCall


async def wait_for_events(call: ApiCall, pop: Coroutine[Any, Any, list[Event]]) -> list[Event]:
    """Return the events of a pop; none when the server stops. If the client leaves, release what was leased for it."""
    popping = asyncio.create_task(pop)
    disconnect = asyncio.create_task(wait_for_disconnect(call.request))
    stopping = asyncio.create_task(call.services.stopping.wait())
    try:
        await asyncio.wait({popping, disconnect, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done():
            raise ClientDisconnect
        if not popping.done():
            popping.cancel()
            await asyncio.wait([popping])
        return [] if popping.cancelled() else popping.result()
    except BaseException:
        await _release_events(popping, call.log)
        raise
    finally:
        for task in (disconnect, stopping):
            task.cancel()


async def _release_events(popping: asyncio.Task[list[Event]], log: Log) -> None:
    """Return the leased events of a client that left, without counting an attempt. A cancelled pop does that itself."""
    if popping.cancel():
        await asyncio.wait([popping])
    with contextlib.suppress(asyncio.CancelledError, Exception):
        leased = {event.partition_id: event for event in reversed(popping.result()) if event.delivery.lease_id}
        if leased:
            await log.ack(list(leased.values()), "retry")
