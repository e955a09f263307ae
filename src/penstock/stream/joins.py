"""Joins of two streams: pairs of events with the same key whose times lie close together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidOption, shown
from penstock.stream.expression import check_expression
from penstock.stream.sql.intervals import micros_of
from penstock.stream.validation import check_time, read_fields
from penstock.stream.windows import micros

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

#: A year.
_LONGEST = 366 * 86_400


@dataclass(frozen=True)
class Join:
    """What is joined: an event of the left with those of the right from so long before it to so long after."""

    left: Definition
    right: Definition
    #: SQL over each side's events; pairs have the same values of all of them.
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    before_us: int
    after_us: int
    #: "inner": only pairs. "left": also events of the left that are in none, once none can come.
    how: str
    #: The time of each side, as a window's.
    left_time: Any
    right_time: Any


def join(left: Definition, right: Definition, on: Any, within: Any, how: object, event_time: Any) -> Join:
    """Check and make a join."""
    if how not in ("inner", "left"):
        raise InvalidOption(
            f"how must be 'inner' or 'left', not {shown(how)}; for 'right', begin with the other stream", option="how"
        )
    before, after = reach(within)
    times = event_time if isinstance(event_time, tuple) else (event_time, event_time)
    if len(times) != 2:
        raise InvalidOption(f"event_time is one for both, or two, not {shown(event_time)}", option="event_time")
    for time in times:
        check_time(time)
    pairs = _pairs(on)
    return Join(
        left,
        right,
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        before,
        after,
        str(how),
        times[0],
        times[1],
    )


def reach(within: Any) -> tuple[int, int]:
    """How far before and after an event of the left one of the right may be, in microseconds."""
    both = within if isinstance(within, tuple) else (within, within)
    if len(both) != 2:
        raise InvalidOption(f"within is one length of time, or two, not {shown(within)}", option="within")
    before, after = _length(both[0]), _length(both[1])
    if before + after < 0:
        raise InvalidOption(f"within {shown(within)} ends before it begins: no event is like that", option="within")
    return before, after


def _length(given: object) -> int:
    found = micros_of(given) if isinstance(given, str) else None
    if isinstance(given, str) and found is None:
        raise InvalidOption(f"within takes seconds or a text such as '10 minutes', not {shown(given)}", option="within")
    return micros("within", given if found is None else found / 1_000_000, least=-_LONGEST)


def _pairs(on: object) -> list[tuple[str, str]]:
    found = list(on.items()) if isinstance(on, Mapping) else [(name, name) for name in read_fields(on)]
    if not found:
        raise InvalidOption("on names at least one field that both streams have", option="on")
    return [(check_sql(one), check_sql(other)) for one, other in found]


def check_sql(expression: object) -> str:
    """SQL that says what is joined on."""
    if not isinstance(expression, str):
        raise InvalidOption(f"on takes fields, or SQL over them, not {shown(expression)}", option="on")
    checked: str = check_expression(expression, "on")
    return checked
