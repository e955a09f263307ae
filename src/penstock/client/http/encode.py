"""Encodes the events of a push for a server; raises InvalidEvent for values that JSON cannot represent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.core.timestamps import from_micros
from penstock.log.write.batch import Batch
from penstock.log.write.json_events import JsonEvents
from penstock.log.write.validation import check_headers, check_shape, micros_of
from penstock.protocol import messages


def encode_batches(batches: Sequence[Batch]) -> list[messages.PushBatch]:
    """Return the batches as the server takes them."""
    return [_encode_batch(batch) for batch in batches]


def _encode_batch(batch: Batch) -> messages.PushBatch:
    events: Any = batch.events
    if isinstance(events, bytes | bytearray | memoryview):
        return messages.PushBatch(
            batch.queue,
            key=batch.key,
            ndjson=_decode_utf8(bytes(events)),
            key_field=batch.key_field,
            id_field=batch.id_field,
            time_field=batch.time_field,
        )
    if isinstance(events, JsonEvents):
        return messages.PushBatch(batch.queue, Raw(_encode_json_events(events)), batch.key)
    if isinstance(events, str) or not isinstance(events, Sequence):
        raise InvalidRequest(f"events must be a list of mappings, or NDJSON as bytes, not {type(events).__name__}")
    return messages.PushBatch(batch.queue, Raw(_encode_events(events)), batch.key)


def _encode_json_events(events: JsonEvents) -> bytes:
    columns = {"key": events.keys, "id": events.ids, "time": events.times, "headers": events.headers}
    present = {name: column for name, column in columns.items() if column is not None}
    return msgspec.json.encode(
        [
            {"data": Raw(data), **{name: column[i] for name, column in present.items() if column[i] is not None}}
            for i, data in enumerate(events.data)
        ]
    )


def _encode_events(events: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        return json.encode(list(events))
    except json.JSONProblem:
        return msgspec.json.encode([_encode_event(event, i) for i, event in enumerate(events)])


def _encode_event(event: Any, index: int) -> dict[str, Any]:
    """Encode one event, or raise InvalidEvent with its index and the invalid field."""
    check_shape(event, index)
    try:
        encoded: dict[str, Any] = {"data": Raw(json.encode(event["data"]))}
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=index, field="data") from None
    for name in ("key", "id"):
        if event.get(name) is not None:
            encoded[name] = _check_string(event[name], name, index)
    micros = micros_of(event.get("time"), index)
    if micros is not None:
        encoded["time"] = from_micros(micros).isoformat()
    headers = check_headers(event.get("headers"), index)
    if headers is not None:
        encoded["headers"] = headers
    return encoded


def _check_string(text: object, name: str, index: int) -> str:
    if not isinstance(text, str):
        raise InvalidEvent(f"must be text, not {type(text).__name__}", index=index, field=name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent("contains a lone surrogate, which UTF-8 cannot encode", index=index, field=name) from None
    return str.__str__(text)


def _decode_utf8(ndjson: bytes) -> str:
    try:
        return ndjson.decode()
    except UnicodeDecodeError as error:
        lines_before = [line for line in ndjson[: error.start].split(b"\n")[:-1] if line.strip()]
        raise InvalidEvent("is not valid UTF-8", index=len(lines_before), field="data") from None
