"""``Csv``: a CSV file as a source."""

from __future__ import annotations

import csv
import os
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidRequest
from penstock.sources.line_file import LineFile, ParsedLines

#: A number as JSON writes it: 007 is not a number and stays text.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?")


class Csv(LineFile):
    """A CSV file with the names of the fields in its first line.

    A value that is a number in JSON becomes a number, an empty value becomes null, others stay text. A record with too
    many fields keeps the rest under ``_more``; missing fields are null. A line that is not a record, such as one with a
    stray quote, becomes a dead letter.

    Args:
        path: The file.
        follow: Read new lines as the file grows.
        delimiter: The character between fields.
        quiet_seconds: How long a followed file must not change before an incomplete record is given up.
    """

    kind: ClassVar[str] = "csv"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow: bool = False,
        delimiter: str = ",",
        quiet_seconds: float = 5.0,
    ) -> None:
        super().__init__(path, follow=follow, quiet_seconds=quiet_seconds)
        if len(delimiter) != 1:
            raise InvalidRequest(f"the delimiter of a CSV file must be one character, not {delimiter!r}")
        self._delimiter = delimiter

    def _parse(self, lines: Iterator[bytes], start: dict[str, Any], limit: int, *, is_complete: bool) -> ParsedLines:
        parsed = ParsedLines(start["offset"], header=start.get("header"))
        unread: deque[bytes] = deque()
        record_lines: list[bytes] = []
        is_at_end = False

        def decode_lines() -> Iterator[str]:
            nonlocal is_at_end
            while (line := unread.popleft() if unread else next(lines, None)) is not None:
                record_lines.append(line)
                is_first = parsed.offset == 0 and len(record_lines) == 1
                yield line.decode("utf-8-sig" if is_first else "utf-8", errors="replace")
            is_at_end = True

        records = csv.reader(decode_lines(), delimiter=self._delimiter, strict=True)
        while parsed.count < limit:
            record_lines.clear()
            try:
                record = next(records, None)
            except csv.Error as error:
                if is_at_end and not is_complete:
                    break  # the file does not have the rest of the record yet
                if parsed.header is None:
                    raise InvalidRequest(
                        f"{self._path}: the first line of a CSV file must have the names of the fields: {error}"
                    ) from None
                # The opening quote of the first line may be the mistake, so the lines after it are parsed again.
                parsed.reject(f"is not a CSV record: {error}", record_lines[0])
                parsed.offset += len(record_lines[0])
                unread.extendleft(reversed(record_lines[1:]))
                records = csv.reader(decode_lines(), delimiter=self._delimiter, strict=True)
                continue
            if record is None:
                break
            parsed.offset += sum(map(len, record_lines))
            if parsed.header is None:
                parsed.header = record
            elif record:
                parsed.lines.append(_encode_record(parsed.header, record))
        return parsed


def _encode_record(names: list[str], record: list[str]) -> bytes:
    values = dict(zip(names, map(_convert_value, record), strict=False))
    values |= dict.fromkeys(names[len(record) :])
    if len(record) > len(names):
        values["_more"] = record[len(names) :]
    return json.encode(values)


def _convert_value(text: str) -> object:
    if not text:
        return None
    return msgspec.Raw(text.encode()) if _NUMBER.fullmatch(text) else text
