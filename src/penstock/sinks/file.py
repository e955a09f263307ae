"""Events as lines of JSON in a file, each once, and no half line whatever happens."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import InvalidOption
from penstock.sinks.checks import read_number, read_path
from penstock.sinks.contract import Guarantee, Sink
from penstock.sinks.position import PositionFile, Reached, event_record, sync_directory

if TYPE_CHECKING:
    from penstock.log.event import Event

_BLOCK = 1 << 16


class File(Sink):
    """Appends events to a file as JSONL: their data, or with ``envelope`` everything about them.

    Each batch is on disk before it is acknowledged. How far the file is certain stands in ``FILE.position``; after a
    crash what lies behind that is cut off, and what comes again is recognised, so every line is there once.

    With ``rotate_bytes`` or ``rotate_seconds`` a file that is large or old enough is given a name with the time, such
    as ``output-20260131T120000.000000Z.jsonl``, and a new one begun.
    """

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        envelope: bool = False,
        rotate_bytes: int | None = None,
        rotate_seconds: float | None = None,
        fsync: bool = True,
    ) -> None:
        for option, value in (("rotate_bytes", rotate_bytes), ("rotate_seconds", rotate_seconds)):
            if value is not None:
                read_number(option, value, 1e15)
        self._path = read_path("path", path)
        if not self._path.name:
            raise InvalidOption(f"path {str(self._path)!r} is a directory: name a file in it", option="path")
        self.name = f"file:{self._path.name}"
        self._envelope = envelope
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._fsync = fsync
        self._position = PositionFile(self._path.with_name(self._path.name + ".position"))
        self._reached = Reached()
        self._file: int | None = None
        self._begun = 0.0

    async def open(self) -> None:
        """Cut off what is not certain."""
        await asyncio.to_thread(self._open)

    async def write(self, events: Sequence[Event]) -> None:
        """Append the events that are not there yet, and make them durable."""
        await asyncio.to_thread(self._write, [event for event in events if not self._reached.has(event)])

    async def acknowledged(self, events: Sequence[Event]) -> None:
        """Forget where they are."""
        self._reached.forget(events)

    async def close(self) -> None:
        """Say that nothing is uncertain any more, and let go."""
        await asyncio.to_thread(self._close)

    def _open(self) -> None:
        reached = self._position.open()
        try:
            self._reached = reached or Reached(length=_end_of_lines(self._path))
            if self._reached.moving_to is not None:
                self._move(self._reached.moving_to)
            self._begin()
        except BaseException:
            self._position.close()
            raise

    def _begin(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._file).st_size
        if size < self._reached.length:  # somebody has emptied it
            self._reached.length = _end_of_lines(self._path)
        os.ftruncate(self._file, self._reached.length)
        sync_directory(self._path.parent)
        self._begun = os.fstat(self._file).st_mtime if self._reached.length else time.time()

    def _write(self, events: Sequence[Event]) -> None:
        if not events:
            return
        assert self._file is not None  # noqa: S101 - it is open between open and close
        if self._is_due():
            self._rotate()
        text = b"".join([event_record(event, envelope=self._envelope) + b"\n" for event in events])
        # After an attempt that failed half way there may be more than is certain.
        os.ftruncate(self._file, self._reached.length)
        at = self._reached.length
        view = memoryview(text)
        while view:
            done = os.pwrite(self._file, view, at)
            at, view = at + done, view[done:]
        if self._fsync:
            os.fsync(self._file)
        after = Reached(at, {lane: list(ranges) for lane, ranges in self._reached.unconfirmed.items()})
        after.add(events)
        self._position.write(after)
        self._reached = after

    def _is_due(self) -> bool:
        length = self._reached.length
        if not length:
            self._begun = time.time()
            return False
        if self._rotate_bytes is not None and length >= self._rotate_bytes:
            return True
        return self._rotate_seconds is not None and time.time() - self._begun >= self._rotate_seconds

    def _rotate(self) -> None:
        assert self._file is not None  # noqa: S101
        os.ftruncate(self._file, self._reached.length)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._reached.moving_to = f"{self._path.stem}-{stamp}{self._path.suffix}"
        self._position.write(self._reached)
        os.close(self._file)
        self._file = None
        self._move(self._reached.moving_to)
        self._begin()

    def _move(self, name: str) -> None:
        """Give the file its name; after a crash it may have it already."""
        target = self._path.with_name(name)
        if self._path.exists() and not target.exists():
            os.truncate(self._path, self._reached.length)
            self._path.rename(target)
        sync_directory(self._path.parent)
        self._reached.length, self._reached.moving_to = 0, None
        self._position.write(self._reached)

    def _close(self) -> None:
        if self._file is not None:
            os.ftruncate(self._file, self._reached.length)
            os.close(self._file)
            self._file = None
            self._position.write(self._reached)
        self._position.close()


def _end_of_lines(path: Path) -> int:
    """Where the last whole line of a file ends."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            while end:
                start = max(end - _BLOCK, 0)
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                end = start
    except FileNotFoundError:
        pass
    return 0
