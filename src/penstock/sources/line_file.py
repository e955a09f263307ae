"""Text files as sources: the position in a file, following it as it grows, and log rotation."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from penstock.core.errors import InvalidRequest, NotFound
from penstock.log.write.push_result import RejectedInput
from penstock.sources import rotation
from penstock.sources.base import Position, ReadResult, Source

_logger = logging.getLogger("penstock.sources")

#: The interval at which a followed file is checked.
_POLL_SECONDS = 0.2
#: A file that was last written longer ago is quiet at once. The time allows for a clock difference to the writer.
_OLD_SECONDS = 60.0
_MAX_LINE_BYTES = 64 << 20


@dataclass(slots=True)
class ParsedLines:
    """The events in some lines, the input that is not an event, and the offset after them."""

    offset: int
    lines: list[bytes] = field(default_factory=list)
    rejected: list[RejectedInput] = field(default_factory=list)
    header: list[str] | None = None

    @property
    def count(self) -> int:
        """The number of events and rejected lines."""
        return len(self.lines) + len(self.rejected)

    def reject(self, reason: str, line: bytes) -> None:
        """Add a line that is not an event."""
        self.rejected.append(RejectedInput(self.count, "data", reason, line))


class LineFile(Source):
    """The base class of text files. The position is an offset in bytes, with the inode and a hash of what precedes it.

    With ``follow`` the source reads complete lines as the file grows. If another file takes its place (log rotation),
    the source reads the rest of the old file first, also if it was renamed while no process read it. It leaves the old
    file, and gives up an incomplete record, when the file has not changed for ``quiet_seconds``. A file that was
    written again is read from its beginning.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False, quiet_seconds: float = 5.0) -> None:
        self._path = Path(path).expanduser().absolute()
        self.name = f"file:{self._path}"[-200:]
        self.quiet_seconds = quiet_seconds
        self._follow = follow
        self._file: BinaryIO | None = None
        #: The inode, the size, and whether another file has taken its place.
        self._state: tuple[int, int, bool] | None = None
        self._unchanged_since = 0.0

    async def open(self) -> None:
        """Check that the file exists, unless it is followed."""
        if not self._follow and not await asyncio.to_thread(self._path.is_file):
            raise NotFound(f"there is no file {self._path}")

    async def read(self, position: Position, limit: int) -> ReadResult:
        """Return the next complete lines."""
        try:
            return await asyncio.to_thread(self._read, position, limit)
        except OSError as error:
            raise InvalidRequest(f"{self._path} cannot be read: {error.strerror or error}") from error

    async def wait(self, seconds: float) -> None:
        """Wait for the next check of the file."""
        await asyncio.sleep(min(seconds, _POLL_SECONDS))

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, position: Position, limit: int) -> ReadResult:
        file, start = self._find_file(position)
        if file is None:
            return ReadResult([], position, ended=not self._follow)
        result = self._read_file(file, start, limit, is_complete=not self._follow)
        if result.position != start:
            return result
        next_file = rotation.open_next(self._path, file)
        is_replaced = next_file is not None
        is_quiet = self._follow and self._is_quiet(file, is_replaced)
        if is_quiet:
            result = self._read_file(file, start, limit, is_complete=is_replaced, is_quiet=True)
        if next_file is None:
            return ReadResult(result.lines, result.position, ended=not self._follow, rejected=result.rejected)
        if self._follow and (not is_quiet or result.position != start):
            next_file.close()
            return result
        file.close()
        self._file = next_file
        return self._read(rotation.position_in(next_file, 0), limit)

    def _is_quiet(self, file: BinaryIO, is_replaced: bool) -> bool:
        """Return whether the file has not changed for a while. A writer may still use a file that was replaced."""
        stat, now = os.fstat(file.fileno()), time.monotonic()
        if time.time() - stat.st_mtime >= _OLD_SECONDS:
            return True
        state = (stat.st_ino, stat.st_size, is_replaced)
        if self._state != state:
            self._state, self._unchanged_since = state, now
        return now - self._unchanged_since >= self.quiet_seconds

    def _find_file(self, position: Position) -> tuple[BinaryIO | None, dict[str, Any]]:
        """Return the file to read and the position in it; None if there is no file yet."""
        if position is not None and self._file is not None and not rotation.is_position_in(self._file, position):
            self._file.close()
            self._file = None
        if position is not None and self._file is None:
            self._file = rotation.open_at(self._path, position)
        if position is not None and self._file is not None:
            return self._file, position
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            return None, {}
        if position is not None and "mtime" in position:
            rotated = rotation.open_first_since(self._path, position["mtime"], self._file)
            if rotated is not None:
                self._file.close()
                self._file = rotated
        if position is not None and self._follow:
            _logger.warning(
                "%s was written again, or the file that was read up to byte %s is gone: %s is read from its beginning",
                self._path,
                position["offset"],
                self._file.name,
            )
        return self._file, rotation.position_in(self._file, 0)

    def _read_file(
        self, file: BinaryIO, start: dict[str, Any], limit: int, *, is_complete: bool, is_quiet: bool = False
    ) -> ReadResult:
        file.seek(start["offset"])
        lines = self._complete_lines(file, is_complete)
        parsed = self._parse(lines, start, limit, is_complete=is_complete or is_quiet)
        if parsed.offset == start["offset"]:
            return ReadResult([], start)
        position = rotation.position_in(file, parsed.offset)
        if parsed.header is not None:
            position["header"] = parsed.header
        return ReadResult(parsed.lines, position, rejected=parsed.rejected)

    def _parse(self, lines: Iterator[bytes], start: dict[str, Any], limit: int, *, is_complete: bool) -> ParsedLines:
        raise NotImplementedError

    def _complete_lines(self, file: BinaryIO, is_complete: bool) -> Iterator[bytes]:
        """Yield lines with their line breaks. The last line of a file that does not grow may have none."""
        while line := file.readline(_MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                if len(line) == _MAX_LINE_BYTES:
                    raise InvalidRequest(f"{self._path}: a line is longer than {_MAX_LINE_BYTES >> 20} MB")
                if not is_complete:
                    return
            yield line
