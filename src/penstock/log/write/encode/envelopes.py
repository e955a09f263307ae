"""Reads events in envelopes: ``{"data": ..., "key": ..., "id": ..., "time": ..., "headers": ...}``.

Only the envelope is decoded. The data is stored as the text that was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from penstock.core import json
from penstock.core.errors import InvalidEvent
from penstock.log.write.encode.batch import MAX_REJECTED, too_many_rejected
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.encode.validation import EVENT_FIELDS, unknown_field
from penstock.log.write.push_result import RejectedInput


class _Envelope(Struct, forbid_unknown_fields=True):
    data: Raw
    # The types of these are checked when the events are encoded, with better messages.
    key: Any = None
    id: Any = None
    time: Any = None
    headers: Any = None


_envelope = msgspec.json.Decoder(_Envelope)
_envelopes = msgspec.json.Decoder(list[_Envelope])
_members = msgspec.json.Decoder(dict[str, Raw])
_value = msgspec.json.Decoder(Raw)
_values = msgspec.json.Decoder(list[Raw])


def is_array(text: bytes) -> bool:
    return text.lstrip(b" \t\r\n")[:1] == b"["


def split_values(text: bytes) -> list[bytes]:
    """Return the text of each element of an array, or of a single value. Raise JSONProblem if it is not JSON."""
    try:
        if is_array(text):
            return [bytes(value) for value in _values.decode(text)]
        return [bytes(_value.decode(text))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise json.JSONProblem(json.explain(error, text)) from None


def read_envelopes(text: bytes) -> JsonEvents:
    """Return the events of an envelope or an array of envelopes.

    Raise JSONProblem if the text is not JSON, and InvalidEvent for the first value that is not an envelope.
    """
    try:
        envelopes = _envelopes.decode(text) if is_array(text) else [_envelope.decode(text)]
    except msgspec.ValidationError:
        # The parser does not return the position of the invalid value: read them one by one.
        envelopes = [_read_envelope(value, index) for index, value in enumerate(split_values(text))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise json.JSONProblem(json.explain(error, text)) from None
    return JsonEvents.of(envelopes)


def read_valid_envelopes(text: bytes) -> tuple[JsonEvents, list[RejectedInput]]:
    """Return the events of an array of envelopes, and separately the values that are not envelopes."""
    return read_valid(split_values(text), _read_envelope)


def read_valid(values: Sequence[bytes], read: Callable[[bytes, int], object]) -> tuple[JsonEvents, list[RejectedInput]]:
    """Return the events that ``read`` makes of values with their index, and the values for which it raises."""
    events: list[object] = []
    indices: list[int] = []
    rejected: list[RejectedInput] = []
    for index, value in enumerate(values):
        try:
            events.append(read(value, index))
            indices.append(index)
        except InvalidEvent as error:
            rejected.append(RejectedInput(index, error.field, error.reason, value))
            if len(rejected) > MAX_REJECTED:
                raise too_many_rejected(error) from None
    return structs.replace(JsonEvents.of(events), indices=indices), rejected


def _read_envelope(value: bytes, index: int) -> _Envelope:
    try:
        return _envelope.decode(value)
    except msgspec.ValidationError:
        raise _explain(value, index) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(json.explain(error, value), index=index, field="event") from None


def _explain(value: bytes, index: int) -> InvalidEvent:
    try:
        members = _members.decode(value)
    except msgspec.ValidationError:
        return InvalidEvent("must be an object such as {'data': ...}", index=index, field="event")
    for name in members:
        if name not in EVENT_FIELDS:
            return unknown_field(name, index)
    if "data" not in members:
        return InvalidEvent("is missing; it holds the event's content, any JSON value", index=index, field="data")
    # The remaining cause is a number out of range, which only the data may hold.
    for name in EVENT_FIELDS[1:]:
        try:
            msgspec.json.decode(members.get(name, b"null"))
        except msgspec.ValidationError:
            return InvalidEvent("holds a number that is out of range", index=index, field=name)
    return InvalidEvent("is not an event", index=index, field="event")
