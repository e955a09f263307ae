"""What a server process writes to standard error: one JSON document a line, never a payload and never a secret."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from penstock.core.errors import PenstockError

_FLUSH_SECONDS = 0.05
_FLUSH_LINES = 256
#: What a log record always has; everything else was given as ``extra`` and belongs to the line.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class RequestLog:
    """A line for each request, written a few at a time: a system call for each would cost as much as the rest."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode
        self._due = False

    def write(self, line: Mapping[str, Any]) -> None:
        """Note a request; it is on standard error a moment later."""
        self._lines.append(self._encode(line))
        if len(self._lines) >= _FLUSH_LINES:
            self.flush()
        elif not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what was noted."""
        self._due = False
        lines, self._lines = self._lines, []
        if lines:
            lines.append(b"")
            _write(b"\n".join(lines))


class JsonHandler(logging.Handler):
    """Writes what is logged in the shape of the requests' lines.

    Of an exception it says the type and where it came from; what it says itself only where it is one of ours or
    comes from PostgreSQL's own words without its values: the message of any other may quote what somebody sent.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            _write(msgspec.json.encode(self.line(record), enc_hook=str) + b"\n")
        except Exception:
            self.handleError(record)

    def line(self, record: logging.LogRecord) -> dict[str, Any]:
        """The document for a record."""
        line: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = explained(record.exc_info[1])
        return line


def explained(error: BaseException) -> dict[str, Any]:
    """An exception without anything of what it was about."""
    said: dict[str, Any] = {"type": type(error).__qualname__}
    if isinstance(error, PenstockError | OSError):
        said["message"] = str(error)
    elif isinstance(error, psycopg.Error):
        said["message"], said["sqlstate"] = error.diag.message_primary, error.sqlstate
    said["at"] = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-12:]
    ]
    if error.__cause__ is not None:
        said["cause"] = explained(error.__cause__)
    return said


def timestamp(seconds: float) -> str:
    """A moment as it stands in the lines."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_as_json(level: str) -> None:
    """Send everything that is logged in this process to standard error as JSON."""
    root = logging.getLogger()
    root.handlers[:] = [JsonHandler()]
    root.setLevel(logging.WARNING)
    logging.getLogger("penstock").setLevel(level)


def _write(data: bytes) -> None:
    try:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
    except (OSError, ValueError):
        # Nobody reads it any more. Requests are answered all the same.
        return
