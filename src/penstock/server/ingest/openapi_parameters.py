"""What the OpenAPI document says of the push beside its parameters and its answer."""

from __future__ import annotations

from typing import Any

from penstock.server.ingest.formats import ENCODINGS

_ENVELOPE: dict[str, Any] = {
    "type": "object",
    "required": ["data"],
    "additionalProperties": False,
    "properties": {
        "data": {"description": "The event's content, any JSON value."},
        "key": {"type": ["string", "null"], "minLength": 1},
        "id": {"type": ["string", "null"], "minLength": 1},
        "time": {"type": ["string", "null"], "format": "date-time"},
        "headers": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
    },
}
_CLOUD_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "time": {"type": "string", "format": "date-time"},
        "data": {},
        "data_base64": {"type": "string"},
    },
}


def _header(name: str, text: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": schema or {"type": "string"}}


DOCUMENTED: dict[str, Any] = {
    "description": "All events are stored, or none; with `partial=true` the bad ones become dead letters and the "
    "others are stored. The answer is sent when what it says is durable.",
    "parameters": [
        _header(
            "Idempotency-Key",
            "A request that is sent again with the same key and the same events is answered as before.",
            {"type": "string", "minLength": 1, "maxLength": 200},
        ),
        _header("Content-Encoding", "How the body is compressed.", {"type": "string", "enum": list(ENCODINGS)}),
        _header("Penstock-Key", "The key of events that have none of their own."),
        _header("Penstock-Id", "The id of the one event of the request."),
        _header("Penstock-Time", "The time of the one event of the request."),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"anyOf": [_ENVELOPE, {"type": "array", "items": _ENVELOPE}]}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "A JSON value a line: the data."}},
            "application/cloudevents+json": {"schema": _CLOUD_EVENT},
            "application/cloudevents-batch+json": {"schema": {"type": "array", "items": _CLOUD_EVENT}},
        },
    },
}
