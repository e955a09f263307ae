"""In which forms events are taken: media types and encodings, and what is said to others."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from starlette.datastructures import Headers

from penstock.server.http.errors import Problem


class Form(Enum):
    """What a body is."""

    #: An event or an array of them, each an object with ``data`` and perhaps key, id, time and headers.
    JSON = "application/json"
    #: A line for each event, the line being its data.
    LINES = "application/x-ndjson"
    CLOUD_EVENT = "application/cloudevents+json"
    CLOUD_EVENTS = "application/cloudevents-batch+json"
    #: A CloudEvent whose attributes are headers and whose data is the body, of any type.
    CLOUD_BINARY = "ce-*"


_FORMS = {form.value: form for form in Form if form is not Form.CLOUD_BINARY} | {
    "application/ndjson": Form.LINES,
    "application/jsonl": Form.LINES,
    "application/jsonlines": Form.LINES,
}
TAKEN = tuple(form.value for form in Form if form is not Form.CLOUD_BINARY)
ENCODINGS = ("gzip", "zstd")
_UTF8 = ("utf-8", "utf8", "us-ascii")


def form_of(headers: Headers) -> Form:
    """The form that the headers announce, or a problem."""
    return _form(headers.get("content-type", ""), "ce-specversion" in headers)


@lru_cache(maxsize=256)
def _form(said: str, is_cloud: bool) -> Form:
    kind, *parameters = (part.strip() for part in said.split(";"))
    form = _FORMS.get(kind.lower())
    if form not in (Form.CLOUD_EVENT, Form.CLOUD_EVENTS) and is_cloud:
        return Form.CLOUD_BINARY
    if form is None:
        taken = ", ".join(TAKEN)
        what = f"the body is said to be {kind[:100]!r}" if kind else "the request does not say what its body is"
        raise Problem(
            "unsupported-media-type",
            f"{what}; send one of {taken} and name it in Content-Type, or a CloudEvent with ce-* headers",
            {"accepted": list(TAKEN)},
            {"Accept-Post": taken},
        )
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _UTF8:
            raise Problem("unsupported-media-type", f"the body is said to be in {value[:40]!r}; JSON is sent in UTF-8")
    return form


def encoding_of(headers: Headers) -> str | None:
    """How the body is compressed, or a problem if it is in a way that is not undone here."""
    if "content-encoding" not in headers:
        return None
    said = [part.strip().lower() for part in ",".join(headers.getlist("content-encoding")).split(",")]
    named = ["gzip" if part == "x-gzip" else part for part in said if part not in ("", "identity")]
    if not named:
        return None
    if len(named) > 1 or named[0] not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise Problem(
            "unsupported-media-type",
            f"Content-Encoding: {', '.join(named)[:100]} is not undone here; use one of {known}, once",
            {"accepted_encodings": list(ENCODINGS)},
            {"Accept-Encoding": known},
        )
    return named[0]
