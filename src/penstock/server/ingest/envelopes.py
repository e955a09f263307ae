"""JSON bodies: an event or an array of events, in envelopes or bare. The data is not decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core import json
from penstock.log.write import envelopes
from penstock.log.write.json_events import JsonEvents
from penstock.log.write.result import RejectedInput
from penstock.server.http.errors import Problem

_T = TypeVar("_T")


def read_values(body: bytes) -> list[bytes]:
    """Return the text of each element of an array, or of a single value."""
    return _read(envelopes.split_values, body)


def read_envelopes(body: bytes) -> JsonEvents:
    """Return the events of a body, or raise InvalidEvent for the first value that is not one."""
    return _read(envelopes.read_envelopes, body)


def read_valid_envelopes(body: bytes) -> tuple[JsonEvents, list[RejectedInput]]:
    """Return the events of a body, and separately the values that are not events."""
    return _read(envelopes.read_valid_envelopes, body)


def _read(read: Callable[[bytes], _T], body: bytes) -> _T:
    check_text(body)
    try:
        return read(body)
    except json.JSONProblem as problem:
        raise Problem("invalid-json", f"the body is not JSON: {problem}") from None


def check_text(body: bytes) -> None:
    """Refuse a body that is empty or not UTF-8. The parser checks only the parts that it decodes."""
    if not body.strip(b" \t\r\n"):
        raise Problem("invalid-json", "the body is empty")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem("invalid-json", f"the body is not UTF-8: byte {error.start:,} is wrong") from None


def invalid_json(error: Exception, body: bytes) -> Problem:
    """Return the problem of a body that is not JSON."""
    return Problem("invalid-json", f"the body is not JSON: {json.explain(error, body)}")
