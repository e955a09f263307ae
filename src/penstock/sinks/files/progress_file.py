"""The progress of a file sink, in a file beside its files. It tells which events are written after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.core.errors import Conflict, InvalidRequest
from penstock.core.lock_file import LockFile

if TYPE_CHECKING:
    from penstock.log.event import Event


class WrittenRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of a partition, from ``first`` to before ``end``, and the time when those events were appended.

    The time tells the events from those at the same offsets in another database, or in a restored one. Progress files
    of early versions have no time.
    """

    first: int
    end: int
    appended_at: datetime | None = None

    def has(self, event: Event) -> bool:
        """Return whether the event is in the range."""
        return self.first <= event.offset < self.end and self.appended_at in (None, event.appended_at)


class FileProgress(msgspec.Struct):
    """The durable length of the file, and the events in it that may come again."""

    length: int = 0
    #: For each partition the events that are written and not acknowledged.
    unconfirmed: dict[str, list[WrittenRange]] = {}
    #: The name to which the file is being renamed.
    moving_to: str | None = None

    def has(self, event: Event) -> bool:
        """Return whether the event is in the file."""
        return any(offsets.has(event) for offsets in self.unconfirmed.get(str(event.partition_id), ()))

    def after(self, length: int, events: Iterable[Event], moving_to: str | None = None) -> FileProgress:
        """Return the progress with a new length and more events."""
        unconfirmed = {partition: list(ranges) for partition, ranges in self.unconfirmed.items()}
        for partition, added in _ranges(events):
            ranges = unconfirmed.setdefault(str(partition), [])
            if ranges and (ranges[-1].end, ranges[-1].appended_at) == (added.first, added.appended_at):
                added = WrittenRange(ranges.pop().first, added.end, added.appended_at)
            ranges.append(added)
        return FileProgress(length, unconfirmed, moving_to)

    def forget(self, events: Iterable[Event]) -> None:
        """Remove acknowledged events, and those before them in their partitions."""
        ends: dict[str, int] = {}
        for partition_id, acknowledged in _ranges(events):
            partition = str(partition_id)
            ends[partition] = max(ends.get(partition, 0), acknowledged.end)
        for partition, end in ends.items():
            remaining = [
                WrittenRange(max(offsets.first, end), offsets.end, offsets.appended_at)
                for offsets in self.unconfirmed.get(partition, [])
                if offsets.end > end
            ]
            if remaining:
                self.unconfirmed[partition] = remaining
            else:
                self.unconfirmed.pop(partition, None)


def _ranges(events: Iterable[Event]) -> Iterator[tuple[int, WrittenRange]]:
    """The runs of consecutive events, each with the id of its partition."""
    first: Event | None = None
    partition, end, appended_at = 0, 0, None
    for event in events:
        if first is None or event.offset != end or event.partition_id != partition or event.appended_at != appended_at:
            if first is not None:
                yield partition, WrittenRange(first.offset, end, appended_at)
            first, partition, appended_at = event, event.partition_id, event.appended_at
        end = event.offset + 1
    if first is not None:
        yield partition, WrittenRange(first.offset, end, appended_at)


class ProgressFile:
    """The file with the progress, locked by one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: LockFile | None = None
        #: Whether the file has the progress of the last write(); unknown after a failed one.
        self._is_current = True

    def open(self) -> FileProgress | None:
        """Lock the file and return its progress; None if it does not exist."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = LockFile(self._path.with_name(self._path.name + ".lock"), mode=0o644)
        try:
            if not lock.try_acquire():
                # The progress file in a directory is called ".position".
                target = self._path.name.removesuffix(".position") or self._path.parent.name
                raise Conflict(f"another process writes {target}: stop it first")
        except BaseException:
            lock.close()
            raise
        self._lock = lock
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=FileProgress)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            self.close()
            raise InvalidRequest(
                f"{self._path} is damaged ({error}): delete it, and up to one batch may be written a second time"
            ) from None

    def write(self, progress: FileProgress) -> None:
        """Replace the content of the file; a crash leaves the old or the new content."""
        self._is_current = False
        temporary = self._path.with_name(self._path.name + ".new")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(progress))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        sync_directory(self._path.parent)
        self._is_current = True

    def repair(self, progress: FileProgress) -> None:
        """Write the progress again if the last write failed, because it may have replaced the file."""
        if not self._is_current:
            self.write(progress)

    def close(self) -> None:
        """Unlock the file."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def sync_directory(directory: Path) -> None:
    """Make the creations and renames in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
