"""OpenAPI documentation of the push: headers and body formats."""

from __future__ import annotations

from typing import Any

from penstock.server.http.decompress import ENCODINGS

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


PUSH_OPENAPI: dict[str, Any] = {
    "description": "All events are stored, or none. With `partial=true` the valid events are stored, and the others "
    "become dead letters. Without `partial`, the queue's `invalid_events` decides: by default, this is done for NDJSON "
    "without an idempotency key, unless no line is valid. The response is sent after the commit.",
    "parameters": [
        _header(
            "Idempotency-Key",
            "A repeated request with the same key and the same events gets the same response and stores nothing.",
            {"type": "string", "minLength": 1, "maxLength": 200},
        ),
        _header("Content-Encoding", "The compression of the body.", {"type": "string", "enum": list(ENCODINGS)}),
        _header("Penstock-Key", "The key of events without their own key."),
        _header("Penstock-Id", "The id of the event, for a request with one event."),
        _header("Penstock-Time", "The time of the event, for a request with one event."),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"anyOf": [_ENVELOPE, {"type": "array", "items": _ENVELOPE}]}},
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "One JSON value per line: the data of an event."}
            },
            "application/cloudevents+json": {"schema": _CLOUD_EVENT},
            "application/cloudevents-batch+json": {"schema": {"type": "array", "items": _CLOUD_EVENT}},
        },
    },
}
