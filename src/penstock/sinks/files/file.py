"""Events as lines of JSON in a file, each once, and no half line whatever happens."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.sinks.files.base import OnDisk
from penstock.sinks.files.progress_file import Reached, event_record, sync_directory
from penstock.sinks.validation import read_number, read_path

if TYPE_CHECKING:
    from penstock.log.event import Event

_BLOCK = 1 << 16


class File(OnDisk):
    """Appends events to a file as JSONL: their data, or with ``envelope`` everything about them.

    Each batch is on disk before it is acknowledged. How far the file is certain stands in ``FILE.position``; after a
    crash what lies behind that is cut off, and what comes again is recognised, so every line is there once. A disk that
    is full is waited for. A file that somebody has moved away is begun anew; one that was emptied is gone on with.

    With ``rotate_bytes`` or ``rotate_seconds`` a file that is large or old enough is given a name with the time, such
    as ``output-20260131T120000.000000Z.jsonl``, and a new one begun.
    """

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
        file = read_path("path", path)
        if not file.name:
            raise InvalidOption(f"path {str(file)!r} is a directory: name a file in it", option="path")
        super().__init__(file, file.with_name(file.name + ".position"))
        self.name = f"file:{file.name}"
        self._envelope = envelope
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._fsync = fsync
        self._file: int | None = None
        self._begun = 0.0

    def _open(self) -> None:
        reached = self._position.open()
        try:
            self._reached = reached or Reached(length=self._length_of_another())
            self._be_ready()
            if reached is None:
                # From now on, a line that is not whole is ours.
                self._position.write(self._reached)
        except BaseException:
            self._let_go()
            raise

    def _be_ready(self) -> None:
        """Finish a rotation that was begun, and see that the file is there, as it was left."""
        self._position.make_certain(self._reached)
        if self._reached.moving_to is not None:
            self._move(self._reached.moving_to)
        if self._file is not None and not self._is_in_place(self._file):
            length = self._length_of_another()
            _cut(self._file, self._reached.length)
            self._go_on_at(length)
            self._close_file()
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            sync_directory(self._path.parent)
            self._begun = os.fstat(self._file).st_mtime if self._reached.length else time.time()
        length = self._reached.length
        if os.fstat(self._file).st_size < length:  # somebody has emptied it
            self._go_on_at(_end_of_lines(self._path))
        elif length and os.pread(self._file, 1, length - 1) != b"\n":
            raise InvalidRequest(
                f"{self._path} is not as it was left, and its end would be lost: move it away, or delete "
                f"{self._path.name}.position and it is gone on with as it is"
            )
        _cut(self._file, self._reached.length)

    def _go_on_at(self, length: int) -> None:
        """Say how long the file is, before there is anything in it that is not certain."""
        reached = self._reached.after(length, ())
        self._position.write(reached)
        self._reached = reached

    def _is_in_place(self, file: int) -> bool:
        """Whether the file that is open is the one that has the name."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), self._path.stat())
        return False

    def _length_of_another(self) -> int:
        """The length of a file that nothing is known of. What it ends with is somebody's, and is not cut off."""
        end = _end_of_lines(self._path)
        if self._path.exists() and self._path.stat().st_size > end:
            raise InvalidRequest(
                f"{self._path} is a file that this sink has not written, and its last line has no end: name another "
                "one, or end that line or delete it"
            )
        return end

    def _add(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._be_ready()
        if self._is_due():
            self._rotate()
        assert self._file is not None  # noqa: S101 - it is when all is ready
        text = b"".join([event_record(event, envelope=self._envelope) + b"\n" for event in events])
        at = self._reached.length
        view = memoryview(text)
        while view:
            done = os.pwrite(self._file, view, at)
            at, view = at + done, view[done:]
        if self._fsync:
            os.fsync(self._file)
        after = self._reached.after(at, events)
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
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        announced = self._reached.after(self._reached.length, (), f"{self._path.stem}-{stamp}{self._path.suffix}")
        self._position.write(announced)
        self._reached = announced
        self._be_ready()

    def _move(self, name: str) -> None:
        """Give the file its name; it may have it already, after a crash or a failure."""
        self._close_file()
        target = self._path.with_name(name)
        if self._path.exists() and not target.exists():
            _cut(self._path, self._reached.length)
            self._path.rename(target)
        sync_directory(self._path.parent)
        self._go_on_at(0)

    def _close(self) -> None:
        # What was said before is true as well: more is recognised than will come.
        with contextlib.suppress(OSError):
            if self._file is not None:
                _cut(self._file, self._reached.length)
                self._position.write(self._reached)
        self._let_go()

    def _let_go(self) -> None:
        self._close_file()
        self._position.close()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _cut(file: int | Path, length: int) -> None:
    """Make a file no longer than this; one that is shorter stays as it is."""
    if os.stat(file).st_size > length:
        os.truncate(file, length)


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
