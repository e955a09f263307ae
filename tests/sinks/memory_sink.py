"""A sink that keeps its events in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.log.event import Event
from penstock.sinks import Sink


class MemorySink(Sink):
    """Keeps its events. A subclass can raise errors first, through ``next_error``."""

    name = "memory"

    def __init__(self) -> None:
        self.received: list[Event] = []
        self.attempts = 0
        self.calls: list[str] = []

    def next_error(self, events: Sequence[Event]) -> Exception | None:
        return None

    async def open(self) -> None:
        self.calls.append("open")

    async def write(self, events: Sequence[Event]) -> None:
        self.attempts += 1
        error = self.next_error(events)
        if error is not None:
            raise error
        self.received += events

    async def close(self) -> None:
        self.calls.append("close")

    def data_of(self, key: str) -> list[Any]:
        return [event.data for event in self.received if event.key == key]
