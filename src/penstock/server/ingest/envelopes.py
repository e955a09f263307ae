"""JSON bodies: an event, or an array of them, each in its envelope or bare. Their data is never decoded."""

from __future__ import annotations

import re
from typing import Any, NoReturn

import msgspec
from msgspec import structs

from penstock.core import json
from penstock.core.errors import InvalidEvent
from penstock.log.write.batch import MOST_REJECTED, too_many
from penstock.log.write.ndjson import Lines
from penstock.log.write.result import Rejected
from penstock.server.http.errors import Problem


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """An event as it is sent."""

    data: msgspec.Raw
    key: str | None = None
    id: str | None = None
    time: str | None = None
    headers: dict[str, str] | None = None


_many = msgspec.json.Decoder(list[Envelope])
_one = msgspec.json.Decoder(Envelope)
_raw = msgspec.json.Decoder(list[msgspec.Raw])
_syntax = msgspec.json.Decoder(msgspec.Raw)
_PLACE = re.compile(r"^(?P<reason>.*?)(?: - at `\$(?:\[(?P<index>\d+|\.\.\.)\])?\.?(?P<field>\w*)[^`]*`)?$", re.DOTALL)
_FIELD = re.compile(r"field `([^`]*)`")


def is_array(body: bytes) -> bool:
    """Whether a body is an array, if it is JSON at all."""
    return body.lstrip(b" \t\r\n")[:1] == b"["


def read_values(body: bytes) -> list[bytes]:
    """The text of the value, or of each if they are in an array."""
    check_text(body)
    try:
        if is_array(body):
            return [bytes(value) for value in _raw.decode(body)]
        return [bytes(_syntax.decode(body))]
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_json(error, body) from None


def read_envelopes(body: bytes) -> Lines:
    """The events of a body, or the error of the first that is none."""
    check_text(body)
    try:
        envelopes = _many.decode(body) if is_array(body) else [_one.decode(body)]
    except msgspec.ValidationError as error:
        # Which of them it is, the parser does not say; they are gone through one by one.
        for index, text in enumerate(read_values(body)):
            _read_one(text, index)
        raise InvalidEvent(str(error), index=0, field="event") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_json(error, body) from None
    return _lines(envelopes)


def read_good_envelopes(body: bytes) -> tuple[Lines, list[Rejected]]:
    """The events of a body that are in good shape, and what is wrong with the others."""
    good: list[Envelope] = []
    places: list[int] = []
    bad: list[Rejected] = []
    for index, text in enumerate(read_values(body)):
        try:
            good.append(_read_one(text, index))
            places.append(index)
        except InvalidEvent as error:
            bad.append(Rejected(index, error.field, error.reason, text))
            if len(bad) > MOST_REJECTED:
                raise too_many(error) from None
    return structs.replace(_lines(good), places=places), bad


def check_text(body: bytes) -> None:
    """Refuse a body that is empty, or is no UTF-8: the parser looks only at what it decodes."""
    if not body.strip(b" \t\r\n"):
        raise Problem("invalid-json", "the body is empty")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem("invalid-json", f"the body is not UTF-8: byte {error.start:,} is wrong") from None


def invalid_json(error: Exception, body: bytes) -> Problem:
    """What is said of a body that is not JSON."""
    if isinstance(error, RecursionError):
        return Problem("invalid-json", "the body is nested too deep")
    return Problem("invalid-json", f"the body is not JSON: {json.explain(error, body)}")


def _read_one(text: bytes, index: int) -> Envelope:
    try:
        return _one.decode(text)
    except msgspec.ValidationError as error:
        _refuse(str(error), index)


def _refuse(message: str, index: int) -> NoReturn:
    """What the parser says of an event, in our words."""
    found = _PLACE.match(message)
    reason = found["reason"] if found else message
    named = _FIELD.search(reason)
    field = (found["field"] if found else "") or (named[1] if named else "event")
    if "missing required field" in reason:
        reason = "is missing; it holds the event's content, any JSON value"
    elif "unknown field" in reason:
        reason = "is not a field of an event (data, key, id, time, headers); put the event's content under 'data'"
    raise InvalidEvent(reason, index=index, field=field)


def _lines(envelopes: list[Envelope]) -> Lines:
    return Lines(
        [bytes(each.data) for each in envelopes],
        _column([each.key for each in envelopes]),
        _column([each.id for each in envelopes]),
        _column([each.time for each in envelopes]),
        _column([each.headers for each in envelopes]),
    )


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None
