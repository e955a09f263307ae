"""``File``: appends events to a file as lines of JSON, exactly once."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.sinks.files.file_sink import FileSink
from penstock.sinks.files.progress_file import FileProgress, sync_directory
from penstock.sinks.sink_options import read_number, read_path

if TYPE_CHECKING:
    from penstock.log.event import Event

_BLOCK_BYTES = 1 << 16


class File(FileSink):
    """Appends the data of events to a file as JSONL.

    Each batch is durable before it is acknowledged. ``FILE.position`` has the durable length of the file. After a crash
    the sink truncates the file to that length and recognizes the events that come again, so each line is in the file
    once. If the disk is full, the sink waits. If the file is moved away, the sink creates a new one. If it is
    truncated, the sink goes on at its end.

    Args:
        path: The file.
        envelope: Write the whole event, not only its data.
        rotate_bytes: Rename a file of this size, such as to ``output-20260131T120000.000000Z.jsonl``, and begin a new
            one.
        rotate_seconds: Rename a file of this age and begin a new one.
        fsync: Call ``fsync`` after each batch.
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
            raise InvalidOption(f"path {str(file)!r} is a directory: give a file in it", option="path")
        super().__init__(file, file.with_name(file.name + ".position"))
        self.name = f"file:{file.name}"
        self._envelope = envelope
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._fsync = fsync
        self._file: int | None = None
        self._created_at = 0.0

    def _open(self) -> None:
        progress = self._progress_file.open()
        try:
            self._progress = progress or FileProgress(length=self._length_of_unknown_file())
            self._prepare_file()
            if progress is None:
                # From now on, this sink has written an incomplete last line.
                self._progress_file.write(self._progress)
        except BaseException:
            self._release_files()
            raise

    def _prepare_file(self) -> None:
        """Finish a rotation that was begun, open the file, and truncate it to its durable length."""
        self._progress_file.repair(self._progress)
        if self._progress.moving_to is not None:
            self._rename(self._progress.moving_to)
        if self._file is not None and not self._is_at_path(self._file):
            length = self._length_of_unknown_file()
            _truncate(self._file, self._progress.length)
            # The length of another file is stored before anything is written to that file.
            self._store_progress(length)
            self._close_file()
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            sync_directory(self._path.parent)
            self._created_at = os.fstat(self._file).st_mtime if self._progress.length else time.time()
        length = self._progress.length
        if os.fstat(self._file).st_size < length:  # another process truncated the file
            self._store_progress(_end_of_lines(self._path))
        elif length and os.pread(self._file, 1, length - 1) != b"\n":
            raise InvalidRequest(
                f"{self._path} was changed by another program, and the sink would truncate it: move the file away, or "
                f"delete {self._path.name}.position to append to the file as it is"
            )
        _truncate(self._file, self._progress.length)

    def _is_at_path(self, file: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), self._path.stat())
        return False

    def _length_of_unknown_file(self) -> int:
        """Return the length of a file that this sink has not written, and refuse an incomplete last line."""
        end = _end_of_lines(self._path)
        if self._path.exists() and self._path.stat().st_size > end:
            raise InvalidRequest(
                f"this sink has not written {self._path}, and its last line has no line break: give another file, or "
                "complete or delete that line"
            )
        return end

    def _append(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._prepare_file()
        if self._is_rotation_due():
            self._rotate()
        assert self._file is not None  # noqa: S101 - _prepare_file has opened it
        lines = b"".join([_encode_line(event, envelope=self._envelope) for event in events])
        offset = self._progress.length
        remaining = memoryview(lines)
        while remaining:
            written = os.pwrite(self._file, remaining, offset)
            offset, remaining = offset + written, remaining[written:]
        if self._fsync:
            os.fsync(self._file)
        self._store_progress(offset, events)

    def _is_rotation_due(self) -> bool:
        length = self._progress.length
        if not length:
            self._created_at = time.time()
            return False
        if self._rotate_bytes is not None and length >= self._rotate_bytes:
            return True
        return self._rotate_seconds is not None and time.time() - self._created_at >= self._rotate_seconds

    def _rotate(self) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        name = f"{self._path.stem}-{stamp}{self._path.suffix}"
        self._store_progress(self._progress.length, moving_to=name)
        self._prepare_file()

    def _rename(self, name: str) -> None:
        """Rename the file, unless it was renamed before a crash or an error."""
        self._close_file()
        target = self._path.with_name(name)
        if self._path.exists() and not target.exists():
            _truncate(self._path, self._progress.length)
            self._path.rename(target)
        sync_directory(self._path.parent)
        self._store_progress(0)

    def _close(self) -> None:
        # If this fails, the stored progress is still valid: it only lists events that do not come again.
        with contextlib.suppress(OSError):
            if self._file is not None:
                _truncate(self._file, self._progress.length)
                self._progress_file.write(self._progress)
        self._release_files()

    def _release_files(self) -> None:
        self._close_file()
        self._progress_file.close()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _encode_line(event: Event, *, envelope: bool) -> bytes:
    if not envelope:
        return event.raw + b"\n"
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
    return msgspec.json.encode(record) + b"\n"


def _truncate(file: int | Path, length: int) -> None:
    """Truncate a file that is longer than ``length``."""
    if os.stat(file).st_size > length:
        os.truncate(file, length)


def _end_of_lines(path: Path) -> int:
    """Return the offset after the last line break of a file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            while end:
                start = max(end - _BLOCK_BYTES, 0)
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                end = start
    except FileNotFoundError:
        pass
    return 0
