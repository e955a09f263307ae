"""How far a sink's files go, in a file beside them: what is written twice after a crash is found out by it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import Conflict, InvalidRequest

if TYPE_CHECKING:
    from penstock.log.event import Event


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of a partition, from the first to before the end, and when those events were appended.

    The time tells them from events that another database has at the same offsets, or the same one after it was
    restored. A file of before has none.
    """

    first: int
    end: int
    appended_at: datetime | None = None

    def has(self, event: Event) -> bool:
        """Whether the event is one of them."""
        return self.first <= event.offset < self.end and self.appended_at in (None, event.appended_at)


class Reached(msgspec.Struct):
    """What is certain: the length of the file, and which events are in it that may come again.

    ``unconfirmed`` are those of each partition that were written and not acknowledged yet.
    """

    length: int = 0
    unconfirmed: dict[str, list[Span]] = {}
    #: The name that the file is being given, if it is.
    moving_to: str | None = None

    def has(self, event: Event) -> bool:
        """Whether the event is in the file."""
        return any(span.has(event) for span in self.unconfirmed.get(str(event.partition_id), ()))

    def after(self, length: int, events: Iterable[Event], moving_to: str | None = None) -> Reached:
        """What is certain when these events are there too."""
        reached = Reached(length, {lane: list(spans) for lane, spans in self.unconfirmed.items()}, moving_to)
        for event in events:
            spans = reached.unconfirmed.setdefault(str(event.partition_id), [])
            last = spans[-1] if spans else None
            if last is not None and (last.end, last.appended_at) == (event.offset, event.appended_at):
                spans[-1] = Span(last.first, event.offset + 1, last.appended_at)
            else:
                spans.append(Span(event.offset, event.offset + 1, event.appended_at))
        return reached

    def forget(self, events: Iterable[Event]) -> None:
        """Events that will not come again need not be remembered."""
        ends: dict[str, int] = {}
        for event in events:
            lane = str(event.partition_id)
            ends[lane] = max(ends.get(lane, 0), event.offset + 1)
        for lane, passed in ends.items():
            # The position has passed all before the last one.
            spans = self.unconfirmed.get(lane, [])
            left = [Span(max(span.first, passed), span.end, span.appended_at) for span in spans if span.end > passed]
            if left:
                self.unconfirmed[lane] = left
            else:
                self.unconfirmed.pop(lane, None)


class PositionFile:
    """The file that says so; it is held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None
        self._is_certain = True

    def open(self) -> Reached | None:
        """Take hold of it, and answer what it says; None if there is none yet."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if not isinstance(error, BlockingIOError):
                raise
            raise Conflict(f"another process writes {self._what()}: stop it first") from None
        self._lock = lock
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Reached)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            self.close()
            raise InvalidRequest(
                f"{self._path} does not say how far the file goes ({error}): delete it, and up to a batch may be "
                "written a second time"
            ) from None

    def _what(self) -> str:
        # A directory has one that is called nothing but that.
        return self._path.name.removesuffix(".position") or self._path.parent.name

    def write(self, reached: Reached) -> None:
        """Say it anew, all of it or nothing."""
        self._is_certain = False
        replace_file(self._path, msgspec.json.encode(reached))
        self._is_certain = True

    def make_certain(self, reached: Reached) -> None:
        """Say what holds, where the last attempt to say more failed: it may have been written all the same."""
        if not self._is_certain:
            self.write(reached)

    def close(self) -> None:
        """Let go of it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def replace_file(path: Path, content: bytes) -> None:
    """Give a file this content so that a crash leaves the old or the new one."""
    made = path.with_name(path.name + ".new")
    with made.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make what was created or renamed in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def event_record(event: Event, *, envelope: bool) -> bytes:
    """An event as a line of JSON: its data, or everything about it."""
    if not envelope:
        return event.raw
    record: dict[str, Any] = {
        "id": event.id,
        "queue": event.queue,
        "partition": event.partition,
        "offset": event.offset,
        "key": event.key,
        "time": event.time,
        "headers": event.headers,
        "data": msgspec.Raw(event.raw),
    }
    return msgspec.json.encode(record)
