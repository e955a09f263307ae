"""A function of one's own as a sink."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest, shown
from penstock.sinks.base import Sink

if TYPE_CHECKING:
    from penstock.log.event import Event


class Call(Sink):
    """Calls a function with each batch, a list of events, or with ``each`` for every event.

    A plain function runs in a thread, a coroutine function on the event loop. What it raises is what a sink may raise.
    """

    def __init__(
        self, function: Callable[[Any], object] | Callable[[Any], Awaitable[object]], *, each: bool = False
    ) -> None:
        if not callable(function):
            raise InvalidRequest(f"a function of a list of events is needed, not {shown(function)}")
        self.name = f"call:{getattr(function, '__name__', type(function).__name__)}"
        self._function = function
        self._each = each

    async def write(self, events: Sequence[Event]) -> None:
        """Call the function."""
        for argument in events if self._each else [list(events)]:
            if inspect.iscoroutinefunction(self._function):
                await self._function(argument)
            else:
                result = await asyncio.to_thread(self._function, argument)
                if inspect.isawaitable(result):
                    await result
