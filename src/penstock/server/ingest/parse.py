"""From a body and its headers to a batch for the log."""

from __future__ import annotations

import msgspec
from msgspec import structs
from starlette.datastructures import Headers

from penstock.log.log import Batch
from penstock.log.write.ndjson import Lines
from penstock.log.write.result import Rejected
from penstock.server.http.errors import Problem
from penstock.server.ingest import cloudevents, envelopes
from penstock.server.ingest.formats import Form


class PushQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How a request wants its events to be read."""

    #: Keep the good events, and make dead letters of the others.
    partial: bool = False
    #: The key of events that have none of their own.
    key: str | None = None
    #: The fields of the data that hold key, id and time; of a CloudEvent, the attribute that holds the key.
    key_field: str | None = None
    id_field: str | None = None
    time_field: str | None = None
    #: False: what is sent as JSON is the data itself.
    envelope: bool = True


def read(form: Form, body: bytes, query: PushQuery, headers: Headers, queue: str) -> tuple[Batch, list[Rejected]]:
    """The events of a body that is in memory, and of a partial request those that are in no shape to be one."""
    if form is Form.JSON and not query.envelope:
        text = b"\n".join(map(_on_one_line, envelopes.read_values(body)))
        return lines_batch(queue, text, query, headers), []
    lines, rejected = _read_lines(form, body, query, headers)
    if form is Form.JSON:
        _refuse_fields(query)
        lines = _filled(lines, headers, len(rejected))
    return Batch(queue, lines, query.key or headers.get("penstock-key")), rejected


def lines_batch(queue: str, text: bytes, query: PushQuery, headers: Headers) -> Batch:
    """Events that are lines."""
    for name in ("penstock-id", "penstock-time"):
        if name in headers:
            raise Problem("invalid-request", f"{name} is for one event in its envelope; name a field instead")
    key = query.key or headers.get("penstock-key")
    return Batch(queue, text, key, query.key_field, query.id_field, query.time_field)


def _read_lines(form: Form, body: bytes, query: PushQuery, headers: Headers) -> tuple[Lines, list[Rejected]]:
    if form is Form.CLOUD_BINARY:
        return cloudevents.read_binary(body, headers, query.key_field), []
    if form is Form.JSON:
        return envelopes.read_good_envelopes(body) if query.partial else (envelopes.read_envelopes(body), [])
    batch = form is Form.CLOUD_EVENTS
    if query.partial:
        return cloudevents.read_good_structured(body, query.key_field, batch=batch)
    return cloudevents.read_structured(body, query.key_field, batch=batch), []


def _refuse_fields(query: PushQuery) -> None:
    for name in ("key_field", "id_field", "time_field"):
        if getattr(query, name) is not None:
            raise Problem(
                "invalid-request",
                f"{name} is for NDJSON, or for JSON with envelope=false; an event in an envelope has its own key, id "
                "and time there",
            )


def _filled(lines: Lines, headers: Headers, rejected: int) -> Lines:
    """The event with what headers say of it, where it does not say it itself."""
    given = {column: headers[name] for column, name in _HEADERS.items() if name in headers}
    if not given:
        return lines
    if len(lines) + rejected != 1:
        raise Problem("invalid-request", f"{' and '.join(_HEADERS.values())} are for requests with one event")
    if not len(lines):
        return lines
    return structs.replace(lines, **{name: getattr(lines, name) or [value] for name, value in given.items()})


_HEADERS = {"ids": "penstock-id", "times": "penstock-time"}


def _on_one_line(text: bytes) -> bytes:
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text
