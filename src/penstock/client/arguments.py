"""Validation of the arguments of the client."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from penstock.core import json
from penstock.core.clock import from_micros
from penstock.core.errors import InvalidEvent, InvalidOption, InvalidRequest
from penstock.core.names import find_key_problem
from penstock.log.event import Event
from penstock.log.write.encode.json_events import JsonEvent
from penstock.log.write.encode.validation import check_headers, check_ids, check_shape, micros_of

#: One event to push, or several.
EventsToPush = Mapping[str, Any] | Iterable[Mapping[str, Any]]
#: Events to acknowledge: those of a pop, or some of them.
PoppedEvents = Event | Sequence[Event] | None
#: The status of an ack: True is ``completed``, False is ``failed``; ``success`` and ``dlq`` are aliases.
AckStatus = bool | Literal["completed", "failed", "retry", "dead_letter", "success", "dlq"]


def read_events(given: object) -> Sequence[Mapping[str, Any]]:
    """Return events to push as a list; the log checks the events themselves."""
    if isinstance(given, list):
        return given
    if isinstance(given, Mapping):
        return [given]
    if isinstance(given, bytes | bytearray | memoryview):
        raise InvalidRequest("push takes events, not bytes; NDJSON goes to push_ndjson()")
    if isinstance(given, Event):
        raise InvalidRequest("push takes new events, not an event that was popped: push {'data': event.data}")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidRequest(
            f"push takes an event such as {{'data': ...}}, or a list of events, not {type(given).__name__}"
        )
    return list(given)


def encode_event(event: Any) -> JsonEvent:
    """Check and encode an event, so that later only the limits of its queue can refuse it."""
    check_shape(event, 0)
    try:
        data = json.encode(event["data"])
    except json.JSONProblem as error:
        raise InvalidEvent(str(error), index=0, field="data") from None
    key = event.get("key")
    problem = None if key is None else find_key_problem(key)
    if problem is not None:
        raise InvalidEvent(problem, index=0, field="key")
    (event_id,) = check_ids([event.get("id")])
    micros = micros_of(event.get("time"), 0)
    time = None if micros is None else from_micros(micros)
    headers = check_headers(event.get("headers"), 0)
    return JsonEvent(data, None if key is None else str.__str__(key), event_id, time, headers)


def read_ndjson(given: object) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    hint = "; encode the text first: text.encode()" if isinstance(given, str) else ""
    raise InvalidRequest(f"push_ndjson takes bytes with one JSON value per line, not {type(given).__name__}{hint}")


def read_popped(given: object, action: str) -> Sequence[Event]:
    """Return popped events as a sequence; ``action`` names the method in errors."""
    if given is None:
        return []
    if isinstance(given, Event):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{action} takes the events that pop() returned, not {type(given).__name__}")
    events = given if isinstance(given, Sequence) else list(given)
    for event in events:
        if not isinstance(event, Event):
            raise InvalidRequest(
                f"{action} takes the events that pop() returned, not {type(event).__name__}: an event carries the "
                "lease that it was delivered under"
            )
    return events


def read_error(given: object) -> tuple[str, str | None]:
    """Return the text of an error, and the traceback of an exception."""
    if given is None:
        return "", None
    if isinstance(given, str):
        return given, None
    if isinstance(given, BaseException):
        message = str(given)
        text = f"{type(given).__name__}: {message}" if message else type(given).__name__
        return text, "".join(traceback.format_exception(given))
    raise InvalidRequest(f"error must be text or an exception, not {type(given).__name__}")


def read_options(given: Mapping[str, object]) -> dict[str, object]:
    """Return queue options with names in snake case: leaseTime becomes lease_time."""
    options: dict[str, object] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InvalidOption(f"the name of an option must be text, not {name!r}", option=str(name))
        options[re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()] = value
    return options
