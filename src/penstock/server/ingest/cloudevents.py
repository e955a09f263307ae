"""CloudEvents 1.0: structured, in batches, and binary with attributes in headers.

The event's data is the CloudEvent's; its attributes become headers with ``ce-`` before their names. Its id is
``source#id``, because only the two together name an event; its key is the attribute ``partitionkey``, or the one that
``key_field`` names; its time is ``time``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import structs

from penstock.core import json
from penstock.core.errors import InvalidEvent
from penstock.log.write.batch import MOST_REJECTED, too_many
from penstock.log.write.ndjson import Lines
from penstock.log.write.result import Rejected
from penstock.server.http.errors import Problem
from penstock.server.ingest.envelopes import check_text, invalid_json, is_array, read_values

_NAME = re.compile(r"[a-z0-9]+")
_REQUIRED = ("id", "source", "type")
_DATA = ("data", "data_base64")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])

#: Data, key, id, time and headers of an event.
_Read = tuple[bytes, str | None, str, str | None, dict[str, str]]


def read_structured(body: bytes, key_field: str | None, *, batch: bool) -> Lines:
    """One CloudEvent, or an array of them."""
    return _columns([_structured(text, key_field, i) for i, text in enumerate(_texts(body, batch=batch))])


def read_good_structured(body: bytes, key_field: str | None, *, batch: bool) -> tuple[Lines, list[Rejected]]:
    """The good ones, and what is wrong with the others."""
    good: list[_Read] = []
    places: list[int] = []
    bad: list[Rejected] = []
    for index, text in enumerate(_texts(body, batch=batch)):
        try:
            good.append(_structured(text, key_field, index))
            places.append(index)
        except InvalidEvent as error:
            bad.append(Rejected(index, error.field, error.reason, text))
            if len(bad) > MOST_REJECTED:
                raise too_many(error) from None
    return structs.replace(_columns(good), places=places), bad


def read_binary(body: bytes, headers: Mapping[str, str], key_field: str | None) -> Lines:
    """One CloudEvent whose attributes are headers and whose data is the body."""
    attributes: dict[str, Any] = {
        name[3:].lower(): unquote(value, errors="replace") for name, value in headers.items() if name.startswith("ce-")
    }
    kind = headers.get("content-type", "")
    if kind:
        attributes["datacontenttype"] = kind
    return _columns([_read(attributes, key_field, 0, lambda said: _binary_data(body, kind, said))])


def _texts(body: bytes, *, batch: bool) -> list[bytes]:
    check_text(body)
    if batch != is_array(body):
        raise Problem(
            "invalid-json",
            "a batch of CloudEvents is an array; send one of them as application/cloudevents+json"
            if batch
            else "a CloudEvent is an object; send an array as application/cloudevents-batch+json",
        )
    return read_values(body)


def _structured(text: bytes, key_field: str | None, index: int) -> _Read:
    try:
        members = _members.decode(text)
    except msgspec.ValidationError:
        raise InvalidEvent(
            "must be a JSON object with the attributes of a CloudEvent", index=index, field="event"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_json(error, text) from None
    try:
        attributes = {name: json.decode(bytes(raw)) for name, raw in members.items() if name not in _DATA}
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=index, field="event") from None

    def data(said: dict[str, str]) -> bytes:
        if "data_base64" in members:
            if "data" in members:
                raise InvalidEvent("and data_base64 are both there; send one of them", index=index, field="data")
            content = json.decode(bytes(members["data_base64"]))
            if not isinstance(content, str) or len(content) % 4 or not _BASE64.fullmatch(content):
                raise InvalidEvent("is not base64 text", index=index, field="data_base64")
            said["ce-dataencoding"] = "base64"
            return json.encode(content)
        return bytes(members["data"]) if "data" in members else b"null"

    return _read(attributes, key_field, index, data)


def _read(
    attributes: Mapping[str, Any], key_field: str | None, index: int, data: Callable[[dict[str, str]], bytes]
) -> _Read:
    if attributes.get("specversion") != "1.0":
        raise InvalidEvent("must be 1.0, the version that is read here", index=index, field="specversion")
    said: dict[str, str] = {}
    for name, value in attributes.items():
        if value is None:
            continue
        if not _NAME.fullmatch(name):
            raise InvalidEvent(
                "is no name of an attribute: those are lower-case letters and digits", index=index, field=name[:100]
            )
        if not isinstance(value, str | int):
            raise InvalidEvent(
                f"must be text, a number or a boolean, not {type(value).__name__}", index=index, field=name
            )
        said[f"ce-{name}"] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    for name in _REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise InvalidEvent("is missing; every CloudEvent has it, as text", index=index, field=name)
    time = attributes.get("time")
    if time is not None and not isinstance(time, str):
        raise InvalidEvent("must be a time as text, such as 2026-01-31T12:00:00Z", index=index, field="time")
    key = said.get(f"ce-{key_field or 'partitionkey'}") or None
    return data(said), key, f"{attributes['source']}#{attributes['id']}", time, said


def _binary_data(body: bytes, kind: str, said: dict[str, str]) -> bytes:
    plain = kind.partition(";")[0].strip().lower()
    if not body:
        return b"null"
    if not plain or plain == "application/json" or plain.endswith("+json"):
        return body
    if plain.startswith("text/"):
        try:
            return json.encode(body.decode())
        except UnicodeDecodeError:
            raise InvalidEvent("is said to be text and is not UTF-8", index=0, field="data") from None
    said["ce-dataencoding"] = "base64"
    return json.encode(base64.b64encode(body).decode())


def _columns(events: list[_Read]) -> Lines:
    data, keys, ids, times, headers = (list(column) for column in zip(*events, strict=True)) if events else ([],) * 5
    return Lines(data, keys if any(keys) else None, ids or None, times if any(times) else None, headers or None)
