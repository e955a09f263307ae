"""What sinks that write files have in common: threads, one at a time, and a disk that may be full."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import SinkBusy
from penstock.sinks.base import Guarantee, Sink
from penstock.sinks.files.progress_file import PositionFile, Reached

if TYPE_CHECKING:
    from penstock.log.event import Event


class OnDisk(Sink):
    """A sink that keeps a position beside what it writes. Who subclasses it writes ``_open``, ``_add`` and ``_close``.

    They run in a thread, and never two of them at the same time.
    """

    guarantee: Guarantee = "exactly_once"

    def __init__(self, path: Path, position: Path) -> None:
        self._path = path
        self._position = PositionFile(position)
        self._reached = Reached()
        # A thread cannot be cancelled: who closes waits for the one that writes.
        self._one_at_a_time = threading.Lock()

    async def open(self) -> None:
        """See what is there, and undo what is not certain."""
        await self._alone(self._open)

    async def write(self, events: Sequence[Event]) -> None:
        """Write the events that are not there yet, and make them durable."""
        await self._alone(self._write, events)

    async def acknowledged(self, events: Sequence[Event]) -> None:
        """Forget where they are."""
        self._reached.forget(events)

    async def close(self) -> None:
        """Say that nothing is uncertain any more, and let go."""
        await self._alone(self._close)

    def _open(self) -> None:
        raise NotImplementedError

    def _add(self, events: Sequence[Event]) -> None:
        """Write these, of which none is there; there may be none at all."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    async def _alone(self, act: Callable[..., None], *args: Any) -> None:
        def locked() -> None:
            with self._one_at_a_time:
                act(*args)

        await asyncio.to_thread(locked)

    def _write(self, events: Sequence[Event]) -> None:
        try:
            self._add([event for event in events if not self._reached.has(event)])
        except OSError as error:
            raise SinkBusy(f"{self._path} cannot be written: {error.strerror or error}") from error
