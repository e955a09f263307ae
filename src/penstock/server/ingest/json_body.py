"""JSON bodies: an event or an array of events. The data is not decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core import json
from penstock.server.http.errors import Problem

_T = TypeVar("_T")


def read_json(read: Callable[[bytes], _T], body: bytes) -> _T:
    """Read a body with a function of :mod:`penstock.log.write.encode.envelopes`; raise a problem if it is not JSON."""
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
    return Problem("invalid-json", f"the body is not JSON: {json.explain(error, body)}")
