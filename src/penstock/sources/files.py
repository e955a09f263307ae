"""Files of lines as sources: NDJSON and CSV, once or as they grow."""

from __future__ import annotations

import asyncio
import csv
import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidRequest, NotFound
from penstock.log.write.result import Rejected
from penstock.sources import rotation
from penstock.sources.base import Position, Read, Source

_logger = logging.getLogger("penstock.sources")

#: How often a file that is followed is looked at.
_LOOK_SECONDS = 0.2
#: One that another has taken the place of is left when nothing has come into it for so long, and what is missing of a
#: record is waited for no longer. If that was while nobody looked, it has to be longer: the file may have been written
#: where the clock is another.
_LEAVE_SECONDS = 5.0
_LEFT_SECONDS = 60.0
#: A line may be this long.
_LONGEST_LINE = 64 << 20
#: A number as JSON spells it: 007 is none, and stays the text that it is.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?")


@dataclass(slots=True)
class _Parsed:
    """What was made of some lines: events, what could be none, and up to where that was."""

    offset: int
    lines: list[bytes] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    header: list[str] | None = None

    @property
    def count(self) -> int:
        return len(self.lines) + len(self.rejected)

    def reject(self, reason: str, line: bytes) -> None:
        self.rejected.append(Rejected(self.count, "data", reason, line))


class LinesFile(Source):
    """What files of lines have in common: a position in bytes, which file it was, and what stood before it there.

    With ``follow`` it goes on as the file grows, and reads whole lines only. When another takes its place, as log
    rotation has it, the rest of the one before comes first, also if that was renamed while nobody read it. A file that
    was written anew is read from its beginning.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        self.name = f"file:{self._path}"[-200:]
        self._follow = follow
        self._file: BinaryIO | None = None
        #: Which file was seen, how large, whether it was replaced, and since when it is like that.
        self._quiet: tuple[tuple[int, int, bool], float] | None = None

    async def open(self) -> None:
        """See that there is a file."""
        if not self._follow and not await asyncio.to_thread(self._path.is_file):
            raise NotFound(f"there is no file {self._path}")

    async def read(self, position: Position, most: int) -> Read:
        """The next whole lines."""
        try:
            return await asyncio.to_thread(self._read, position, most)
        except OSError as error:
            raise InvalidRequest(f"{self._path} cannot be read: {error.strerror or error}") from error

    async def wait(self, seconds: float) -> None:
        """A file has nothing to say; it is looked at."""
        await asyncio.sleep(min(seconds, _LOOK_SECONDS))

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, position: Position, most: int) -> Read:
        file, at = self._at_hand(position)
        if file is None:
            return Read([], position, ended=not self._follow)
        read = self._read_on(file, at, most, is_complete=not self._follow)
        if read.position != at:
            return read
        following = rotation.after(self._path, file)
        is_replaced = following is not None
        is_quiet = self._follow and self._is_quiet(file, is_replaced)
        if is_quiet:
            read = self._read_on(file, at, most, is_complete=is_replaced, is_quiet=True)
        if following is None:
            return Read(read.lines, read.position, ended=not self._follow, rejected=read.rejected)
        if self._follow and (not is_quiet or read.position != at):
            following.close()
            return read
        file.close()
        self._file = following
        return self._read(rotation.place(following, 0), most)

    def _is_quiet(self, file: BinaryIO, is_replaced: bool) -> bool:
        """Whether nothing comes any more into a file: who writes it may not have heard that it was replaced."""
        stat, now = os.fstat(file.fileno()), time.monotonic()
        if time.time() - stat.st_mtime >= _LEFT_SECONDS:
            return True
        seen = (stat.st_ino, stat.st_size, is_replaced)
        if self._quiet is None or self._quiet[0] != seen:
            self._quiet = (seen, now)
        return now - self._quiet[1] >= _LEAVE_SECONDS

    def _at_hand(self, position: Position) -> tuple[BinaryIO | None, dict[str, Any]]:
        """The file to read, and where; none if there is none yet."""
        if position is not None and self._file is not None and not rotation.is_in(self._file, position):
            self._file.close()
            self._file = None
        if position is not None and self._file is None:
            self._file = rotation.find(self._path, position)
        if position is not None and self._file is not None:
            return self._file, position
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            return None, {}
        if position is not None and "mtime" in position:
            rotated = rotation.since(self._path, position["mtime"], self._file)
            if rotated is not None:
                self._file.close()
                self._file = rotated
        if position is not None and self._follow:
            _logger.warning(
                "%s was written anew, or is another file than the one that was read up to byte %s, which is gone: "
                "%s is read from its beginning",
                self._path,
                position["offset"],
                self._file.name,
            )
        return self._file, rotation.place(self._file, 0)

    def _read_on(
        self, file: BinaryIO, at: dict[str, Any], most: int, *, is_complete: bool, is_quiet: bool = False
    ) -> Read:
        file.seek(at["offset"])
        found = self._parse(self._whole_lines(file, is_complete), at, most, is_complete=is_complete or is_quiet)
        if found.offset == at["offset"]:
            return Read([], at)
        after = rotation.place(file, found.offset)
        if found.header is not None:
            after["header"] = found.header
        return Read(found.lines, after, rejected=found.rejected)

    def _parse(self, lines: Iterator[bytes], at: dict[str, Any], most: int, *, is_complete: bool) -> _Parsed:
        raise NotImplementedError

    def _whole_lines(self, file: BinaryIO, is_complete: bool) -> Iterator[bytes]:
        """Lines with their ends; the last of a file that does not grow may have none."""
        while line := file.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                if len(line) == _LONGEST_LINE:
                    raise InvalidRequest(f"{self._path}: a line is longer than {_LONGEST_LINE >> 20} MB")
                if not is_complete:
                    return
            yield line


class Ndjson(LinesFile):
    """A file with a JSON value on each line; one that is none becomes a dead letter, and the others go on."""

    kind: ClassVar[str] = "ndjson"

    def _parse(self, lines: Iterator[bytes], at: dict[str, Any], most: int, *, is_complete: bool) -> _Parsed:
        found = _Parsed(at["offset"])
        for line in lines:
            found.offset += len(line)
            if line.strip():
                found.lines.append(line.strip())
            if found.count == most:
                break
        return found


class Csv(LinesFile):
    """A file with a record on each line and their names on the first.

    What JSON would read as a number becomes one, nothing becomes null, and the rest stays text. A record with too many
    or too few fields is kept: what has no name is under ``_more``, what is missing is null. A line that can be no
    record, such as one with a stray quote, becomes a dead letter, and the next one is a record again.
    """

    kind: ClassVar[str] = "csv"

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False, delimiter: str = ",") -> None:
        super().__init__(path, follow=follow)
        if len(delimiter) != 1:
            raise InvalidRequest(f"the delimiter of a CSV file is one character, not {delimiter!r}")
        self._delimiter = delimiter

    def _parse(self, lines: Iterator[bytes], at: dict[str, Any], most: int, *, is_complete: bool) -> _Parsed:
        found = _Parsed(at["offset"], header=at.get("header"))
        again: deque[bytes] = deque()
        taken: list[bytes] = []

        def texts() -> Iterator[str]:
            while (line := again.popleft() if again else next(lines, None)) is not None:
                taken.append(line)
                begins = found.offset == 0 and len(taken) == 1
                yield line.decode("utf-8-sig" if begins else "utf-8", errors="replace")

        records = csv.reader(texts(), delimiter=self._delimiter, strict=True)
        while found.count < most:
            taken.clear()
            try:
                record = next(records, None)
            except csv.Error as error:
                if not is_complete and "unexpected end" in str(error):
                    break  # the rest of it is still to come
                if found.header is None:
                    raise InvalidRequest(
                        f"{self._path}: the first line of a CSV file names its fields, and this one cannot: {error}"
                    ) from None
                # The quote that it began with may be the mistake: what comes after its line is looked at again.
                found.reject(f"is no record of CSV: {error}", taken[0])
                found.offset += len(taken[0])
                again.extendleft(reversed(taken[1:]))
                records = csv.reader(texts(), delimiter=self._delimiter, strict=True)
                continue
            if record is None:
                break
            found.offset += sum(map(len, taken))
            if found.header is None:
                found.header = record
            elif record:
                found.lines.append(_as_json(found.header, record))
        return found


def _as_json(names: list[str], record: list[str]) -> bytes:
    values = dict(zip(names, map(_value, record), strict=False))
    values |= dict.fromkeys(names[len(record) :])
    if len(record) > len(names):
        values["_more"] = record[len(names) :]
    return json.encode(values)


def _value(text: str) -> object:
    if not text:
        return None
    return msgspec.Raw(text.encode()) if _NUMBER.fullmatch(text) else text
