"""Files of lines as sources: NDJSON and CSV, once or as they grow."""

from __future__ import annotations

import asyncio
import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidRequest, NotFound
from penstock.sources.contract import Position, Read, Source

#: How often a file that is followed is looked at.
_LOOK_SECONDS = 0.2
#: A line may be this long.
_LONGEST_LINE = 64 << 20
#: A number as JSON spells it: 007 is none, and stays the text that it is.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?")


class LinesFile(Source):
    """What files of lines have in common: a position in bytes, and which file it was.

    With ``follow`` it goes on as the file grows, and reads whole lines only. A file that takes its place, as log
    rotation has it, is read from its beginning, after the rest of the one before.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._path = Path(path).expanduser().absolute()
        self.name = f"file:{self._path}"[-200:]
        self._follow = follow
        self._file: BinaryIO | None = None

    async def open(self) -> None:
        """See that there is a file."""
        if not self._follow and not await asyncio.to_thread(self._path.is_file):
            raise NotFound(f"there is no file {self._path}")

    async def read(self, position: Position, most: int) -> Read:
        """The next whole lines."""
        return await asyncio.to_thread(self._read, position, most)

    async def wait(self, seconds: float) -> None:
        """A file has nothing to say; it is looked at."""
        await asyncio.sleep(min(seconds, _LOOK_SECONDS))

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, position: Position, most: int) -> Read:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return Read([], position, ended=not self._follow)
        here = os.fstat(self._file.fileno())
        if position is None or position["inode"] != here.st_ino or position["offset"] > here.st_size:
            position = {"inode": here.st_ino, "offset": 0}
        self._file.seek(position["offset"])
        read = self._parse(self._file, position, most)
        if read.lines or read.position != position:
            return read
        if not self._follow:
            return Read([], read.position, ended=True)
        if self._was_replaced(here.st_ino):
            self._file.close()
            self._file = None
        return read

    def _was_replaced(self, inode: int) -> bool:
        try:
            return self._path.stat().st_ino != inode
        except FileNotFoundError:
            return False

    def _parse(self, file: BinaryIO, position: dict[str, object], most: int) -> Read:
        raise NotImplementedError

    def _whole_lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Lines with their ends; the last of a file that does not grow may have none."""
        while line := file.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                if len(line) == _LONGEST_LINE:
                    raise InvalidRequest(f"{self._path}: a line is longer than {_LONGEST_LINE >> 20} MB")
                if self._follow:
                    return
            yield line


class Ndjson(LinesFile):
    """A file with a JSON value on each line; one that is none becomes a dead letter, and the others go on."""

    kind: ClassVar[str] = "ndjson"

    def _parse(self, file: BinaryIO, position: dict[str, object], most: int) -> Read:
        offset = int(str(position["offset"]))
        lines: list[bytes] = []
        for line in self._whole_lines(file):
            offset += len(line)
            if line.strip():
                lines.append(line.strip())
            if len(lines) == most:
                break
        return Read(lines, {**position, "offset": offset})


class Csv(LinesFile):
    """A file with a record on each line and their names on the first.

    What JSON would read as a number becomes one, nothing becomes null, and the rest stays text. A record with too many
    or too few fields is kept: what has no name is under ``_more``, what is missing is null.
    """

    kind: ClassVar[str] = "csv"

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False, delimiter: str = ",") -> None:
        super().__init__(path, follow=follow)
        if len(delimiter) != 1:
            raise InvalidRequest(f"the delimiter of a CSV file is one character, not {delimiter!r}")
        self._delimiter = delimiter

    def _parse(self, file: BinaryIO, position: dict[str, object], most: int) -> Read:
        offset = int(str(position["offset"]))
        header = position.get("header")
        names = [str(name) for name in header] if isinstance(header, list) else None
        read = 0

        def texts() -> Iterator[str]:
            nonlocal read
            for line in self._whole_lines(file):
                read += len(line)
                yield line.decode("utf-8-sig" if offset + read == len(line) else "utf-8", errors="replace")

        lines: list[bytes] = []
        done = 0
        records = csv.reader(texts(), delimiter=self._delimiter, strict=True)
        while len(lines) < most:
            try:
                record = next(records, None)
            except csv.Error as error:
                if self._follow and "unexpected end" in str(error):
                    break  # the rest of it is still to come
                raise InvalidRequest(f"{self._path}, after byte {offset + done}: {error}") from None
            if record is None:
                break
            done = read
            if names is None:
                names = record
            elif record:
                lines.append(_as_json(names, record))
        found: dict[str, object] = {**position, "offset": offset + done}
        if names is not None:
            found["header"] = names
        return Read(lines, found)


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
