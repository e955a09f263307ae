"""Joins of two streams: pairs of events with equal keys and times that are close together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidOption, short_repr
from penstock.stream.checks.arguments import parse_join_fields
from penstock.stream.expression import check_expression
from penstock.stream.time_rules import check_event_time
from penstock.stream.windows import parse_duration, parse_seconds

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

_YEAR_SECONDS = 366 * 86_400


@dataclass(frozen=True)
class StreamJoin:
    """Pairs an event of the left with events of the right, from ``before_us`` before it to ``after_us`` after it."""

    left: Definition
    right: Definition
    #: SQL over the events of each side. The values of a pair are equal.
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    before_us: int
    after_us: int
    #: "inner": only pairs. "left": also events of the left without a pair, once none can arrive.
    how: str
    #: The event time of each side, as in the rules of a window.
    left_time: Any
    right_time: Any


def make_join(left: Definition, right: Definition, on: Any, within: Any, how: object, event_time: Any) -> StreamJoin:
    if how not in ("inner", "left"):
        raise InvalidOption(
            f"how must be 'inner' or 'left', not {short_repr(how)}; for 'right', begin with the other stream",
            option="how",
        )
    before, after = parse_within(within)
    times = event_time if isinstance(event_time, tuple) else (event_time, event_time)
    if len(times) != 2:
        raise InvalidOption(f"event_time is one for both, or two, not {short_repr(event_time)}", option="event_time")
    for time in times:
        check_event_time(time)
    left_on, right_on = _parse_keys(on)
    return StreamJoin(left, right, left_on, right_on, before, after, str(how), times[0], times[1])


def parse_within(within: Any) -> tuple[int, int]:
    """Return how far an event of the right may be before and after one of the left, in microseconds."""
    both = within if isinstance(within, tuple) else (within, within)
    if len(both) != 2:
        raise InvalidOption(f"within is one length of time, or two, not {short_repr(within)}", option="within")
    before, after = _parse_length(both[0]), _parse_length(both[1])
    if before + after < 0:
        raise InvalidOption(
            f"within {short_repr(within)} ends before it begins, so that no events match", option="within"
        )
    return before, after


def _parse_length(given: object) -> int:
    micros = parse_duration(given) if isinstance(given, str) else None
    if isinstance(given, str) and micros is None:
        raise InvalidOption(
            f"within takes seconds or a text such as '10 minutes', not {short_repr(given)}", option="within"
        )
    return parse_seconds("within", given if micros is None else micros / 1_000_000, least=-_YEAR_SECONDS)


def parse_join_keys(on: object) -> dict[str, str]:
    """Return the field of the right for each field of the left that is joined on."""
    left, right = _parse_keys(on)
    return dict(zip(left, right, strict=True))


def _parse_keys(on: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in parse_join_fields(on)}
    if not pairs:
        raise InvalidOption("on names at least one field that both streams have", option="on")
    return tuple(map(_check_key, pairs)), tuple(map(_check_key, pairs.values()))


def _check_key(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidOption(f"on takes fields, or SQL over them, not {short_repr(expression)}", option="on")
    checked: str = check_expression(expression, "on")
    return checked
