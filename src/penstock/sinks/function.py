"""``Call``: calls a function with events."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest, short_repr
from penstock.sinks.base import Sink

if TYPE_CHECKING:
    from penstock.log.event import Event


class Call(Sink):
    """Calls a function with the list of events of each batch.

    A plain function runs in a thread, a coroutine function on the event loop. It may raise the exceptions of a sink.

    Args:
        function: The function.
        each: Call the function with each event instead of a list.
    """

    is_concurrent = True

    def __init__(
        self, function: Callable[[Any], object] | Callable[[Any], Awaitable[object]], *, each: bool = False
    ) -> None:
        if not callable(function):
            raise InvalidRequest(f"Call takes a function of a list of events, not {short_repr(function)}")
        self.name = f"call:{getattr(function, '__name__', type(function).__name__)}"
        self._function = function
        self._each = each

    async def write(self, events: Sequence[Event]) -> None:
        """Call the function with the events."""
        for argument in events if self._each else [list(events)]:
            if inspect.iscoroutinefunction(self._function):
                await self._function(argument)
            else:
                result = await asyncio.to_thread(self._function, argument)
                if inspect.isawaitable(result):
                    await result
