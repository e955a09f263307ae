"""Reading what callers pass, and saying what is wrong with it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.log.event import Event

#: What can be pushed: one event, or several.
EventsToPush = Mapping[str, Any] | Iterable[Mapping[str, Any]]
#: What can be acknowledged: what a pop gave, or one of it.
PoppedEvents = Event | Sequence[Event] | None
#: What can be said of an event: True is ``completed``, False ``failed``; ``success`` and ``dlq`` are other words.
AckStatus = bool | Literal["completed", "failed", "retry", "dead_letter", "success", "dlq"]


def read_events(given: object) -> Sequence[Mapping[str, Any]]:
    """Events to push as a list; what each of them holds is for the log to check."""
    if isinstance(given, list):
        return given
    if isinstance(given, Mapping):
        return [given]
    if isinstance(given, bytes | bytearray | memoryview):
        raise InvalidRequest("push takes events, not bytes; NDJSON goes to push_ndjson()")
    if isinstance(given, Event):
        raise InvalidRequest("push takes events to store, not one that was popped; push {'data': event.data} for it")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidRequest(
            f"push takes an event such as {{'data': ...}}, or a list of them, not {type(given).__name__}"
        )
    return list(given)


def read_ndjson(given: object) -> bytes:
    """NDJSON as bytes."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    hint = "; encode the text first: text.encode()" if isinstance(given, str) else ""
    raise InvalidRequest(f"push_ndjson takes bytes, a JSON value a line, not {type(given).__name__}{hint}")


def read_popped(given: object, action: str) -> Sequence[Event]:
    """Events that were popped, for what is to be done with them."""
    if given is None:
        return []
    if isinstance(given, Event):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{action} takes the events that pop() gave, not {type(given).__name__}")
    events = given if isinstance(given, Sequence) else list(given)
    for event in events:
        if not isinstance(event, Event):
            raise InvalidRequest(
                f"{action} takes the events themselves as pop() gave them, not {type(event).__name__}: they carry the "
                "lease that they were delivered under"
            )
    return events


def read_error(given: object) -> tuple[str, str | None]:
    """The text of an error and, of an exception, where it came from."""
    if given is None:
        return "", None
    if isinstance(given, str):
        return given, None
    if isinstance(given, BaseException):
        said = str(given)
        text = f"{type(given).__name__}: {said}" if said else type(given).__name__
        return text, "".join(traceback.format_exception(given))
    raise InvalidRequest(f"error must be text or an exception, not {type(given).__name__}")


def read_options(given: Mapping[str, object]) -> dict[str, object]:
    """Options of a queue under the names that Python uses: leaseTime is lease_time."""
    options: dict[str, object] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InvalidOption(f"the name of an option is text, not {name!r}", option=str(name))
        options[re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()] = value
    return options


def check_whole(name: str, value: object, lowest: int, highest: int) -> int:
    """Return a whole number if it is one, in its range."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidOption(f"{name} must be a whole number from {lowest:,} to {highest:,}, not {value!r}", option=name)
    return value


def check_number(name: str, value: object, lowest: float, highest: float) -> float:
    """Return a number if it is one, in its range."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidOption(f"{name} must be a number from {lowest:,g} to {highest:,g}, not {value!r}", option=name)
    return value


def check_flag(name: str, value: object, hint: str = "") -> bool:
    """Return True or False if it is either."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} takes True or False, not {value!r}{hint}", option=name)
    return value


def check_time(name: str, value: object) -> datetime | None:
    """Return a time if it says which moment it means."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidRequest(f"{name} must be a datetime with a time zone, such as datetime.now(UTC), not {value!r}")
    return value
