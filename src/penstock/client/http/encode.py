"""Encodes the bodies of requests to a server: JSON, compressed if it is large.

Values that JSON cannot represent raise InvalidEvent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import zstandard
from msgspec import Raw

from penstock.client.arguments import encode_event
from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvent, JsonEvents
from penstock.protocol import messages

#: Bodies of this size and more are compressed. Compressing smaller ones costs more time than a fast network saves.
_COMPRESS_BYTES = 16 << 10


def compress_body(body: bytes | None) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    headers = {"Content-Type": "application/json"}
    if len(body) < _COMPRESS_BYTES:
        return body, headers
    return zstandard.compress(body, 1), {**headers, "Content-Encoding": "zstd"}


def encode_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise lone_surrogate() from None


def lone_surrogate() -> InvalidRequest:
    return InvalidRequest("the text contains a lone surrogate, which UTF-8 cannot encode")


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
        return _encode_json_events(JsonEvents.of([_encode_event(event, i) for i, event in enumerate(events)]))


def _encode_event(event: object, index: int) -> JsonEvent:
    try:
        return encode_event(event)
    except InvalidEvent as error:
        raise InvalidEvent(error.reason, index=index, field=error.field) from None


def _decode_utf8(ndjson: bytes) -> str:
    try:
        return ndjson.decode()
    except UnicodeDecodeError as error:
        lines_before = [line for line in ndjson[: error.start].split(b"\n")[:-1] if line.strip()]
        raise InvalidEvent("is not valid UTF-8", index=len(lines_before), field="data") from None
