"""The log of a server process: one JSON document per line on standard error, without payloads and secrets."""

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
#: Attributes that every log record has. All others come from ``extra`` and are part of the line.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class RequestLog:
    """One line per request, written in batches: a system call per request would cost as much as the rest of it."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode
        self._is_flush_scheduled = False

    def write(self, line: Mapping[str, Any]) -> None:
        """Buffer a line. It is flushed a moment later."""
        self._lines.append(self._encode(line))
        if len(self._lines) >= _FLUSH_LINES:
            self.flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        self._is_flush_scheduled = False
        lines, self._lines = self._lines, []
        if lines:
            lines.append(b"")
            _write(b"\n".join(lines))


class JsonHandler(logging.Handler):
    """Writes log records as JSON.

    For an exception it writes the type and the stack. It writes the message only of our own exceptions and the primary
    message of PostgreSQL, which has no values: other messages may quote data that a client sent.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _write(msgspec.json.encode(self.to_document(record), enc_hook=str) + b"\n")
        except Exception:
            self.handleError(record)

    def to_document(self, record: logging.LogRecord) -> dict[str, Any]:
        line: dict[str, Any] = {
            "time": format_timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = describe_exception(record.exc_info[1])
        return line


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return the type, stack and causes of an exception, and its message if that contains no data."""
    document: dict[str, Any] = {"type": type(error).__qualname__}
    if isinstance(error, PenstockError | OSError):
        document["message"] = str(error)
    elif isinstance(error, psycopg.Error):
        document["message"], document["sqlstate"] = error.diag.message_primary, error.sqlstate
    document["at"] = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-12:]
    ]
    if error.__cause__ is not None:
        document["cause"] = describe_exception(error.__cause__)
    return document


def format_timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure_json_logging(level: str) -> None:
    """Write all log records of this process to standard error as JSON."""
    root = logging.getLogger()
    root.handlers[:] = [JsonHandler()]
    root.setLevel(logging.WARNING)
    logging.getLogger("penstock").setLevel(level)


def _write(data: bytes) -> None:
    try:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
    except (OSError, ValueError):
        # Standard error is closed. The server keeps running.
        return
