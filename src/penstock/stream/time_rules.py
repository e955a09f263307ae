"""The time of a stream's events, and when its windows close."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import InvalidOption, short_repr
from penstock.core.option_checks import check_option_names
from penstock.stream.expression import check_not_async, is_python, takes_context
from penstock.stream.windows import SessionWindow, Window, parse_seconds

LATE_POLICIES = ("dead_letter", "drop", "include")
_WINDOW_OPTIONS = ("event_time", "grace_seconds", "allowed_lateness_seconds", "idle_flush_seconds", "late")
_JOIN_OPTIONS = ("allowed_lateness_seconds", "idle_flush_seconds", "late")


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The event time, the allowed lateness and the policy for late events."""

    #: None: the time when the event was appended. True: the time that the producer gave. A text: a dotted field of the
    #: event. A function: its result for the event.
    event_time: Any = None
    #: A window closes this long after its end.
    grace_us: int = 0
    #: How far the events of a partition may be out of order.
    lateness_us: int = 0
    #: A partition without events for this long does not hold back the watermark.
    idle_flush_us: int = 5_000_000
    late: str = "dead_letter"


def close_delay_us(windows: Sequence[Window], rules: TimeRules) -> int:
    """How long after its end a window closes, by the watermark.

    An event that is not late can be a gap behind the watermark, and would overlap with a session that has ended less
    than a gap ago. So a session stays open for another gap. Times of appending never go back within a partition and
    need no such delay.
    """
    if rules.event_time is None:
        return rules.grace_us
    return rules.grace_us + max((window.gap_us for window in windows if isinstance(window, SessionWindow)), default=0)


def parse_window_rules(options: dict[str, Any]) -> TimeRules:
    check_option_names(options, _WINDOW_OPTIONS, "window")
    event_time = options.get("event_time")
    check_event_time(event_time)
    late = options.get("late", "dead_letter")
    if late not in LATE_POLICIES:
        raise InvalidOption(f"late must be one of {', '.join(LATE_POLICIES)}, not {short_repr(late)}", option="late")
    return TimeRules(
        event_time,
        parse_seconds("grace_seconds", options.get("grace_seconds", 0), least=0),
        parse_seconds("allowed_lateness_seconds", options.get("allowed_lateness_seconds", 0), least=0),
        parse_seconds("idle_flush_seconds", options.get("idle_flush_seconds", 5), least=0.1),
        late,
    )


def parse_join_rules(options: dict[str, Any], default_lateness_us: int) -> TimeRules:
    check_option_names(options, _JOIN_OPTIONS, "join")
    if options.get("late") == "include":
        raise InvalidOption(
            "late is 'dead_letter' or 'drop': the state that a late event would join with is deleted", option="late"
        )
    rules = parse_window_rules(options)
    if "allowed_lateness_seconds" in options:
        return rules
    return dataclasses.replace(rules, lateness_us=default_lateness_us)


def check_event_time(event_time: Any) -> None:
    if event_time is not None and event_time is not True and not isinstance(event_time, str):
        if not is_python(event_time):
            raise InvalidOption(
                f"event_time is a field, a function of an event or True, not {short_repr(event_time)}",
                option="event_time",
            )
        check_not_async(event_time, "event_time")
        takes_context(event_time, "event_time")
    if isinstance(event_time, str) and not all(part.strip() for part in event_time.split(".")):
        raise InvalidOption(
            f"event_time {short_repr(event_time)} names no field: write 'created_at', or 'order.created_at' for a "
            "nested one",
            option="event_time",
        )
