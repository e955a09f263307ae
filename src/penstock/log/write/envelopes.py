"""Events that come as a JSON array of envelopes, ``[{"data": ..., "key": ...}, ...]``.

The envelope is read and what is in ``data`` is not: it is stored as the text that came.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.core import json
from penstock.core.errors import InvalidRequest
from penstock.log.write.ndjson import Lines


class _Envelope(Struct, forbid_unknown_fields=True):
    data: Raw
    key: Any = None
    id: Any = None
    time: Any = None
    headers: Any = None


_decoder = msgspec.json.Decoder(list[_Envelope])


def read_envelopes(text: bytes) -> Lines | list[Any]:
    """The events as the log takes them; as plain values where one is wrong, so that the log can say which, and how."""
    try:
        envelopes = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_carefully(text)
    return Lines(
        [bytes(envelope.data) for envelope in envelopes],
        _column([envelope.key for envelope in envelopes]),
        _column([envelope.id for envelope in envelopes]),
        _column([envelope.time for envelope in envelopes]),
        _column([envelope.headers for envelope in envelopes]),
    )


def _column(values: list[Any]) -> list[Any] | None:
    return values if any([value is not None for value in values]) else None


def _read_carefully(text: bytes) -> list[Any]:
    try:
        events = json.decode(text)
    except json.JSONProblem as problem:
        raise InvalidRequest(f"events: {problem}") from None
    if not isinstance(events, list):
        raise InvalidRequest(f"events must be a list of objects such as {{'data': ...}}, not {type(events).__name__}")
    return events
