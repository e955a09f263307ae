"""``Forward``: pushes events into another queue, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.names import check_name
from penstock.log.write.encode.batch import Batch
from penstock.sinks.base import TransactionalSink

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event


class Forward(TransactionalSink):
    """Pushes events into another queue of the same database, with their key, time, headers and given id.

    Args:
        queue: The queue to push to.
        key: A function that returns another key for an event.
    """

    def __init__(self, queue: str, *, key: Callable[[Event], str | None] | None = None) -> None:
        self._queue = check_name(queue, "queue")
        self._key = key
        self.name = f"queue:{queue}"[:200]

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Return the events as a batch to push."""
        return [Batch(self._queue, [self._copy_event(event) for event in events])] if events else []

    def _copy_event(self, event: Event) -> dict[str, Any]:
        copy: dict[str, Any] = {"data": msgspec.Raw(event.raw)}
        key = event.key if self._key is None else self._key(event)
        for name, value in (
            ("key", key),
            ("id", event.given_id),
            ("time", event.event_time),
            ("headers", event.headers or None),
        ):
            if value is not None:
                copy[name] = value
        return copy
