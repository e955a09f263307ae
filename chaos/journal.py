"""Journals of processes: JSON lines, flushed to disk before the process continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """A file of lines that survive ``kill -9`` of the writer."""

    def __init__(self, path: Path) -> None:
        whole = _whole_lines(path)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
        os.ftruncate(self._file, whole)

    def write(self, line: Any) -> None:
        """Write a line and flush it to disk."""
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        os.fdatasync(self._file)


def read(path: Path) -> Iterator[Any]:
    """Return the complete lines of a journal."""
    if path.exists():
        for line in path.read_bytes()[: _whole_lines(path)].splitlines():
            yield json.loads(line)


def _whole_lines(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0
