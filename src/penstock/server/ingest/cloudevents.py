"""CloudEvents 1.0: structured, as batches, and binary with attributes in headers.

The data of the CloudEvent becomes the data of the event, and its attributes become headers with the prefix ``ce-``.
The event's id is ``source#id``, because only both together identify a CloudEvent. Its key is the attribute
``partitionkey``, or the attribute that ``key_field`` names. Its time is ``time``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidEvent
from penstock.log.write.encode.envelopes import is_array, read_valid, split_values
from penstock.log.write.encode.json_events import JsonEvent, JsonEvents
from penstock.log.write.push_result import RejectedInput
from penstock.server.http.errors import Problem
from penstock.server.ingest.json_body import invalid_json, read_json

_ATTRIBUTE_NAME = re.compile(r"[a-z0-9]+")
_REQUIRED = ("id", "source", "type")
_DATA_MEMBERS = ("data", "data_base64")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_structured(
    body: bytes, key_field: str | None, *, is_batch: bool, partial: bool
) -> tuple[JsonEvents, list[RejectedInput]]:
    """Return the CloudEvents of a body, and for a partial push separately the values that are none."""
    values = _split_values(body, is_batch=is_batch)

    def read(value: bytes, index: int) -> JsonEvent:
        return _read_structured(value, key_field, index)

    if partial:
        return read_valid(values, read)
    return JsonEvents.of([read(value, index) for index, value in enumerate(values)]), []


def read_binary(body: bytes, headers: Mapping[str, str], key_field: str | None) -> JsonEvents:
    """Return one CloudEvent with its attributes in headers and its data as the body."""
    attributes: dict[str, Any] = {
        name[3:].lower(): unquote(value, errors="replace") for name, value in headers.items() if name.startswith("ce-")
    }
    content_type = headers.get("content-type", "")
    if content_type:
        attributes["datacontenttype"] = content_type
    event = _to_cloud_event(attributes, key_field, 0, lambda headers: _binary_data(body, content_type, headers))
    return JsonEvents.of([event])


def _split_values(body: bytes, *, is_batch: bool) -> list[bytes]:
    values = read_json(split_values, body)
    if is_batch != is_array(body):
        raise Problem(
            "invalid-json",
            "a batch of CloudEvents is an array; send a single one as application/cloudevents+json"
            if is_batch
            else "a CloudEvent is an object; send an array as application/cloudevents-batch+json",
        )
    return values


def _read_structured(text: bytes, key_field: str | None, index: int) -> JsonEvent:
    try:
        members = _members.decode(text)
    except msgspec.ValidationError:
        raise InvalidEvent(
            "must be a JSON object with the attributes of a CloudEvent", index=index, field="event"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_json(error, text) from None
    try:
        attributes = {name: json.decode(bytes(raw)) for name, raw in members.items() if name not in _DATA_MEMBERS}
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=index, field="event") from None

    def read_data(headers: dict[str, str]) -> bytes:
        if "data_base64" in members:
            if "data" in members:
                raise InvalidEvent("must not be given together with data_base64", index=index, field="data")
            content = json.decode(bytes(members["data_base64"]))
            if not isinstance(content, str) or len(content) % 4 or not _BASE64.fullmatch(content):
                raise InvalidEvent("is not base64 text", index=index, field="data_base64")
            headers["ce-dataencoding"] = "base64"
            return json.encode(content)
        return bytes(members["data"]) if "data" in members else b"null"

    return _to_cloud_event(attributes, key_field, index, read_data)


def _to_cloud_event(
    attributes: Mapping[str, Any], key_field: str | None, index: int, read_data: Callable[[dict[str, str]], bytes]
) -> JsonEvent:
    """Check the attributes. ``read_data`` returns the data and may add headers about it."""
    if attributes.get("specversion") != "1.0":
        raise InvalidEvent("must be 1.0, the only version that is supported", index=index, field="specversion")
    headers: dict[str, str] = {}
    for name, value in attributes.items():
        if value is None:
            continue
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise InvalidEvent(
                "is not an attribute name: use lower-case letters and digits", index=index, field=name[:100]
            )
        if not isinstance(value, str | int):
            raise InvalidEvent(
                f"must be text, an integer or a boolean, not {type(value).__name__}", index=index, field=name
            )
        headers[f"ce-{name}"] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    for name in _REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise InvalidEvent("is missing; every CloudEvent has it, as text", index=index, field=name)
    time = attributes.get("time")
    if time is not None and not isinstance(time, str):
        raise InvalidEvent("must be a time as text, such as 2026-01-31T12:00:00Z", index=index, field="time")
    key = headers.get(f"ce-{key_field or 'partitionkey'}") or None
    return JsonEvent(read_data(headers), key, f"{attributes['source']}#{attributes['id']}", time, headers)


def _binary_data(body: bytes, content_type: str, headers: dict[str, str]) -> bytes:
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        return b"null"
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        return body
    if media_type.startswith("text/"):
        try:
            return json.encode(body.decode())
        except UnicodeDecodeError:
            raise InvalidEvent("has a text media type and is not UTF-8", index=0, field="data") from None
    headers["ce-dataencoding"] = "base64"
    return json.encode(base64.b64encode(body).decode())
