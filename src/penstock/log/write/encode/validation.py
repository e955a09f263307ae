"""Validates the fields of pushed events. Each error names the position of the event in the push."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.core.clock import MAX_MICROS, MIN_MICROS, to_micros
from penstock.core.errors import InvalidEvent, short_repr
from penstock.core.names import find_key_problem

EVENT_FIELDS = ("data", "key", "id", "time", "headers")
MAX_ID_BYTES = 256
_MAX_HEADER_BYTES = 65_536
_TEXT_OR_NONE = frozenset((str, type(None)))


def check_shape(item: Any, index: int) -> None:
    """Raise InvalidEvent if an item is not a mapping with the fields of an event."""
    if not isinstance(item, Mapping):
        raise InvalidEvent(
            f"must be a mapping such as {{'data': ...}}, not {type(item).__name__}",
            index=index,
            field="event",
        )
    for name in item:
        if name not in EVENT_FIELDS:
            raise unknown_field(short_repr(name), index)
    if "data" not in item:
        raise InvalidEvent("is missing; it holds the event's content, any JSON value", index=index, field="data")


def unknown_field(name: str, index: int) -> InvalidEvent:
    return InvalidEvent(
        f"is not a field of an event ({', '.join(EVENT_FIELDS)}); put the event's content under 'data'",
        index=index,
        field=name,
    )


def check_ids(ids: list[Any]) -> list[Any]:
    """Return the ids as plain str, or raise InvalidEvent for the first invalid one."""
    try:
        joined = "".join(ids)
        sizes = set(map(len, ids))
        if joined.isascii() and "\x00" not in joined and 0 < min(sizes) <= max(sizes) <= MAX_ID_BYTES:
            return _to_plain_str(ids)
    except TypeError:
        pass
    for i, event_id in enumerate(ids):
        if event_id is None:
            continue
        problem = find_key_problem(event_id)
        if problem is None and len(event_id.encode()) > MAX_ID_BYTES:
            problem = f"may have {MAX_ID_BYTES} bytes"
        if problem is not None:
            raise InvalidEvent(problem, index=i, field="id")
    return _to_plain_str(ids)


def _to_plain_str(texts: list[Any]) -> list[Any]:
    """Convert instances of subclasses of str, which a chunk cannot hold."""
    if _TEXT_OR_NONE.issuperset(map(type, texts)):
        return texts
    return [None if text is None else str.__str__(text) for text in texts]


def micros_of(time: Any, index: int) -> int | None:
    """Return a time in microseconds since 1970, or raise InvalidEvent."""
    if time is None:
        return None
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise InvalidEvent(
                f"{short_repr(time)} is not an ISO 8601 time such as 2026-01-31T12:00:00Z", index=index, field="time"
            ) from None
    if not isinstance(time, datetime):
        raise InvalidEvent(f"must be a datetime or ISO 8601 text, not {type(time).__name__}", index=index, field="time")
    if time.utcoffset() is None:
        raise InvalidEvent(
            "has no time zone; add one (datetime.now(UTC), or a Z at the end)", index=index, field="time"
        )
    micros = to_micros(time)
    # In UTC the year of the time may be outside the range of datetime.
    if not MIN_MICROS <= micros <= MAX_MICROS:
        raise InvalidEvent(f"{time} is not in the years 1 to 9999 of UTC", index=index, field="time")
    return micros


def check_headers(headers: Any, index: int) -> dict[str, str] | None:
    """Return a copy of the headers with plain str, or raise InvalidEvent."""
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidEvent(
            f"must be a mapping of text to text, not {type(headers).__name__}", index=index, field="headers"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidEvent(f"{short_repr(name)}: names and values are text", index=index, field="headers")
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            raise InvalidEvent(f"{short_repr(name)} holds a lone surrogate", index=index, field="headers") from None
    if sum(len(name) + len(value) for name, value in headers.items()) > _MAX_HEADER_BYTES:
        raise InvalidEvent("take more than 64 KiB", index=index, field="headers")
    # A copy, because the caller may change the dict before the event is stored.
    return {str.__str__(name): str.__str__(value) for name, value in headers.items()}
