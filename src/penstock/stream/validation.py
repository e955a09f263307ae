"""Checks of what the steps of a stream are given. Each error says how to write it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core import json
from penstock.core.errors import InvalidOption, InvalidRequest, shown
from penstock.core.names import text_problem
from penstock.stream.expression import check_expression, check_plain, function_name, is_python, takes_context
from penstock.stream.sql.tokens import arguments_in, one_line
from penstock.stream.steps import Retries

#: A column's name: PostgreSQL cuts off what is longer, and a view needs one without surprises.
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
TAKEN = frozenset(
    ("key", "window_start", "window_end", "updated_at", "closed_at", "revision", "replaced_by", "is_open")
)


def read_retries(given: dict[str, Any]) -> Retries:
    """The retries that a step was given as options."""
    known = {"retry_limit": "limit", "retry_pause_seconds": "pause_seconds", "timeout_seconds": "timeout_seconds"}
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(f"{name!r} is no option of a step; there are {', '.join(known)}", option=name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
            raise InvalidOption(f"{name} must be a number from 0 to 86400, not {shown(value)}", option=name)
        if name == "retry_limit" and not isinstance(value, int):
            raise InvalidOption(f"retry_limit must be a whole number, not {shown(value)}", option=name)
    return Retries(**{known[name]: value for name, value in given.items()})


def only_for_functions(expression: object, returns: object, retry: Mapping[str, Any]) -> None:
    """Refuse options that SQL would silently ignore."""
    options = [*retry, *([] if returns is None else ["returns"])]
    if options and not is_python(expression):
        read_retries({name: 1 for name in retry})
        raise InvalidOption(f"{', '.join(options)}: only for functions; leave it out for SQL", option=options[0])


def read_types(option: str, types: Mapping[str, str] | None) -> dict[str, str] | None:
    """Types by field, if they are that."""
    if types is None:
        return None
    given: object = types
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and name and isinstance(kind, str) and kind.strip() for name, kind in given.items()
    ):
        raise InvalidOption(
            f"{option} must map fields to types, such as {{'total': 'decimal(18,2)'}}, not {shown(types)}",
            option=option,
        )
    return dict(types)


def read_fields(on: object) -> tuple[str, ...]:
    """The fields to join on."""
    given = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, Sequence) else ()
    names = tuple(name for name in given if isinstance(name, str) and name.strip())
    if not names or len(names) != len(given) or len(set(names)) != len(names):
        raise InvalidOption(f"on takes a field or a list of different fields to join on, not {shown(on)}", option="on")
    return names


def select_list(fields: Mapping[str, Any]) -> str:
    """A mapping of fields to SQL as the select list that it stands for."""
    if not fields:
        raise InvalidRequest(
            "map takes the fields of the new event, {'total': 'price * quantity'}, not an empty mapping"
        )
    parts: list[str] = []
    for name, text in fields.items():
        given: object = name
        if not isinstance(given, str) or not given or "`" in given:
            raise InvalidRequest(f"map: {shown(name)} cannot name a field: give it a text without backquotes")
        if not isinstance(text, str) or len(arguments_in(text)) != 1:
            raise InvalidRequest(
                f"map: the field {name!r} takes one SQL expression, such as 'price * quantity', not {shown(text)}; "
                "for Python, give map a function that returns the whole event"
            )
        parts.append(f"{one_line(check_expression(text, f'map: the field {name!r}'))} AS `{name}`")
    return ", ".join(parts)


def check_fold(function: Callable[..., Any], initial: Any) -> None:
    """Raise if a window cannot be folded so."""
    if not _takes(function, initial, {}):
        raise InvalidRequest(
            f"reduce: {function_name(function)} must take a value and an event: write def f(value, event)"
        )
    try:
        json.encode(initial)
    except json.JSONProblem as problem:
        raise InvalidRequest(
            f"reduce: the value to begin with must be JSON, and {shown(initial)} is not: {problem}"
        ) from None


def check_frame_maker(function: Callable[..., Any]) -> None:
    """Raise if a function cannot give a reference table."""
    if not _takes(function, None):
        raise InvalidRequest(
            f"{function_name(function)} must take the Spark session and return a DataFrame: write def rates(spark)"
        )


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function can be called so; a builtin that does not say what it takes may be."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def check_time(event_time: Any) -> None:
    """Raise if events cannot say their time so."""
    if event_time is not None and event_time is not True and not isinstance(event_time, str):
        if not is_python(event_time):
            raise InvalidOption(
                f"event_time is a field, a function of an event or True, not {shown(event_time)}", option="event_time"
            )
        check_plain(event_time, "event_time")
        takes_context(event_time, "event_time")
    if isinstance(event_time, str) and not all(part.strip() for part in event_time.split(".")):
        raise InvalidOption(
            f"event_time {shown(event_time)} names no field: write 'created_at', or 'order.created_at' for one inside",
            option="event_time",
        )


def check_field(name: object) -> None:
    """Raise if a field of the events that closed windows become cannot be called that."""
    problem = text_problem(name) or (None if name else "must not be empty")
    if problem is not None:
        raise InvalidRequest(f"select: the name of a field {problem}")


def check_column(name: object, names: Mapping[Any, Any]) -> None:
    """Raise if an aggregate cannot be called that."""
    if not isinstance(name, str) or not _COLUMN.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)} cannot name an aggregate: it becomes a column, so use letters, digits and underscores, "
            "60 at the most"
        )
    if name.lower() in TAKEN:
        raise InvalidRequest(f"{name!r} is a column of every result: give the aggregate another name")
    same = [other for other in names if isinstance(other, str) and other.lower() == name.lower()]
    if len(same) > 1:
        raise InvalidRequest(f"{' and '.join(map(repr, same))} differ in case only: give one another name")
