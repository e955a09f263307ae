"""``Ndjson``: a file with one JSON value per line as a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.sources.line_file import LineFile, ParsedLines


class Ndjson(LineFile):
    """A file with one JSON value per line. Invalid lines become dead letters."""

    kind: ClassVar[str] = "ndjson"

    def _parse(self, lines: Iterator[bytes], start: dict[str, Any], limit: int, *, is_complete: bool) -> ParsedLines:
        parsed = ParsedLines(start["offset"])
        for line in lines:
            parsed.offset += len(line)
            if line.strip():
                parsed.lines.append(line.strip())
            if parsed.count == limit:
                break
        return parsed
