"""Body formats of a push: detection by media type, and conversion to a batch for the log."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

import msgspec
from msgspec import structs
from starlette.datastructures import Headers

from penstock.log.write.encode import envelopes
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.push_result import RejectedInput
from penstock.server.http.errors import Problem
from penstock.server.ingest import cloudevents
from penstock.server.ingest.json_body import read_json


class BodyFormat(Enum):
    #: An event or an array of events, each an object with ``data`` and optional key, id, time and headers.
    JSON = "application/json"
    #: One line per event; the line is its data.
    NDJSON = "application/x-ndjson"
    CLOUD_EVENT = "application/cloudevents+json"
    CLOUD_EVENTS = "application/cloudevents-batch+json"
    #: A CloudEvent with its attributes in headers and its data, of any type, as the body.
    BINARY_CLOUD_EVENT = "ce-*"


_BY_MEDIA_TYPE = {each.value: each for each in BodyFormat if each is not BodyFormat.BINARY_CLOUD_EVENT} | {
    "application/ndjson": BodyFormat.NDJSON,
    "application/jsonl": BodyFormat.NDJSON,
    "application/jsonlines": BodyFormat.NDJSON,
}
MEDIA_TYPES = tuple(each.value for each in BodyFormat if each is not BodyFormat.BINARY_CLOUD_EVENT)
_UTF8 = ("utf-8", "utf8", "us-ascii")

#: Headers for a request with one event, by the column that they fill.
_EVENT_HEADERS = {"ids": "penstock-id", "times": "penstock-time"}


class PushQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How the events of a push are read."""

    #: Store the valid events, and make dead letters of the others. The queue's invalid_events is the default.
    partial: bool | None = None
    #: The key of events without their own.
    key: str | None = None
    #: The fields of the data that hold key, id and time. For a CloudEvent, key_field is an attribute.
    key_field: str | None = None
    id_field: str | None = None
    time_field: str | None = None
    #: False: a JSON body is the data itself.
    envelope: bool = True


def detect_format(headers: Headers) -> BodyFormat:
    """Return the format that the headers announce, or raise a problem."""
    return _detect(headers.get("content-type", ""), "ce-specversion" in headers)


@lru_cache(maxsize=256)
def _detect(content_type: str, has_cloud_event_headers: bool) -> BodyFormat:
    media_type, *parameters = (part.strip() for part in content_type.split(";"))
    found = _BY_MEDIA_TYPE.get(media_type.lower())
    if has_cloud_event_headers and found not in (BodyFormat.CLOUD_EVENT, BodyFormat.CLOUD_EVENTS):
        return BodyFormat.BINARY_CLOUD_EVENT
    if found is None:
        supported = ", ".join(MEDIA_TYPES)
        reason = f"the media type {media_type[:100]!r} is not supported" if media_type else "there is no Content-Type"
        raise Problem(
            "unsupported-media-type",
            f"{reason}: send one of {supported}, or a CloudEvent with ce-* headers",
            {"accepted": list(MEDIA_TYPES)},
            {"Accept-Post": supported},
        )
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _UTF8:
            raise Problem("unsupported-media-type", f"the charset {value[:40]!r} is not supported: send UTF-8")
    return found


def parse_body(
    body_format: BodyFormat, body: bytes, query: PushQuery, headers: Headers, queue: str
) -> tuple[Batch, list[RejectedInput]]:
    """Return the events of a body that is in memory, and for a partial push the values that are not events."""
    if body_format is BodyFormat.JSON and not query.envelope:
        text = b"\n".join(map(_to_line, read_json(envelopes.split_values, body)))
        return ndjson_batch(queue, text, query, headers), []
    events, rejected = _read_events(body_format, body, query, headers)
    if body_format is BodyFormat.JSON:
        _refuse_field_names(query)
        events = _apply_event_headers(events, headers, len(rejected))
    return Batch(queue, events, query.key or headers.get("penstock-key")), rejected


def ndjson_batch(queue: str, text: bytes, query: PushQuery, headers: Headers) -> Batch:
    for name in _EVENT_HEADERS.values():
        if name in headers:
            raise Problem("invalid-request", f"{name} is for one event in an envelope; use id_field or time_field")
    key = query.key or headers.get("penstock-key")
    return Batch(queue, text, key, query.key_field, query.id_field, query.time_field)


def _read_events(
    body_format: BodyFormat, body: bytes, query: PushQuery, headers: Headers
) -> tuple[JsonEvents, list[RejectedInput]]:
    if body_format is BodyFormat.BINARY_CLOUD_EVENT:
        return cloudevents.read_binary(body, headers, query.key_field), []
    if body_format is BodyFormat.JSON:
        if query.partial:
            return read_json(envelopes.read_valid_envelopes, body)
        return read_json(envelopes.read_envelopes, body), []
    is_batch = body_format is BodyFormat.CLOUD_EVENTS
    return cloudevents.read_structured(body, query.key_field, is_batch=is_batch, partial=bool(query.partial))


def _refuse_field_names(query: PushQuery) -> None:
    for name in ("key_field", "id_field", "time_field"):
        if getattr(query, name) is not None:
            raise Problem(
                "invalid-request",
                f"{name} is for NDJSON, or for JSON with envelope=false; put key, id and time into the envelope",
            )


def _apply_event_headers(events: JsonEvents, headers: Headers, rejected: int) -> JsonEvents:
    """Fill id and time of a single event from headers, unless its envelope has them."""
    given = {column: headers[name] for column, name in _EVENT_HEADERS.items() if name in headers}
    if not given:
        return events
    if len(events) + rejected != 1:
        raise Problem("invalid-request", f"{' and '.join(_EVENT_HEADERS.values())} are for requests with one event")
    if not len(events):
        return events
    return structs.replace(events, **{name: getattr(events, name) or [value] for name, value in given.items()})


def _to_line(text: bytes) -> bytes:
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text
