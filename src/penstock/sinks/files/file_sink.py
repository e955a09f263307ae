"""The base class of sinks that write files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import SinkBusy
from penstock.sinks.base import Guarantee, Sink
from penstock.sinks.files.progress_file import FileProgress, ProgressFile

if TYPE_CHECKING:
    from penstock.log.event import Event


class FileSink(Sink):
    """A sink that keeps its progress in a file beside the files that it writes.

    A subclass implements ``_open``, ``_append`` and ``_close``. They run in threads, one at a time.
    """

    keeps_limits = False
    guarantee: Guarantee = "exactly_once"

    def __init__(self, path: Path, progress_path: Path) -> None:
        self._path = path
        self._progress_file = ProgressFile(progress_path)
        self._progress = FileProgress()
        # A cancelled write goes on in its thread, so close() has to wait for it.
        self._thread_lock = threading.Lock()

    async def open(self) -> None:
        """Read the progress and remove writes that were not completed."""
        await self._run_in_thread(self._open)

    async def write(self, events: Sequence[Event]) -> None:
        """Write the events that the files do not have yet, durably."""
        await self._run_in_thread(self._write, events)

    async def acknowledged(self, events: Sequence[Event]) -> None:
        """Forget the events, which do not come again."""
        self._progress.forget(events)

    async def close(self) -> None:
        """Write the progress and close the files."""
        await self._run_in_thread(self._close)

    def _open(self) -> None:
        raise NotImplementedError

    def _append(self, events: Sequence[Event]) -> None:
        """Write events that the files do not have yet; the sequence may be empty."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def _store_progress(self, length: int, events: Sequence[Event] = (), moving_to: str | None = None) -> None:
        progress = self._progress.after(length, events, moving_to)
        self._progress_file.write(progress)
        self._progress = progress

    async def _run_in_thread(self, function: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            with self._thread_lock:
                function(*args)

        await asyncio.to_thread(run)

    def _write(self, events: Sequence[Event]) -> None:
        try:
            all_new = not self._progress.unconfirmed
            self._append(events if all_new else [event for event in events if not self._progress.has(event)])
        except OSError as error:
            raise SinkBusy(f"{self._path} cannot be written: {error.strerror or error}") from error
