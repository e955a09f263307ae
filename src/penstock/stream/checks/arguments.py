"""Checks of the arguments of a stream's methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core import json
from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import find_text_problem
from penstock.core.option_checks import check_integer, check_number, check_option_names
from penstock.stream.expression import accepts_arguments, check_expression, function_name, is_python
from penstock.stream.steps import Retries

#: The name of an aggregate is a column of a view. PostgreSQL truncates longer names.
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
#: The columns that every result table has.
RESERVED_COLUMNS = frozenset(
    ("key", "window_start", "window_end", "updated_at", "closed_at", "revision", "replaced_by", "is_open")
)


def parse_retries(options: dict[str, Any]) -> Retries:
    known = {"retry_limit": "limit", "retry_pause_seconds": "pause_seconds", "timeout_seconds": "timeout_seconds"}
    check_option_names(options, known, "step")
    for name, value in options.items():
        check = check_integer if name == "retry_limit" else check_number
        check(name, value, 0, 86_400)
    return Retries(**{known[name]: value for name, value in options.items()})


def check_function_options(expression: object, returns: object, retry: Mapping[str, Any]) -> None:
    """Refuse the options of functions if the expression is SQL, which would ignore them."""
    options = [*retry, *([] if returns is None else ["returns"])]
    if options and not is_python(expression):
        parse_retries({name: 1 for name in retry})
        raise InvalidOption(f"{', '.join(options)}: only for functions; leave it out for SQL", option=options[0])


def parse_types(option: str, types: Mapping[str, str] | None) -> dict[str, str] | None:
    if types is None:
        return None
    given: object = types
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and name and isinstance(kind, str) and kind.strip() for name, kind in given.items()
    ):
        raise InvalidOption(
            f"{option} must map fields to types, such as {{'total': 'decimal(18,2)'}}, not {short_repr(types)}",
            option=option,
        )
    return dict(types)


def parse_join_fields(on: object) -> tuple[str, ...]:
    given = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, Sequence) else ()
    names = tuple(name for name in given if isinstance(name, str) and name.strip())
    if not names or len(names) != len(given) or len(set(names)) != len(names):
        raise InvalidOption(
            f"on takes a field or a list of different fields to join on, not {short_repr(on)}", option="on"
        )
    return names


def select_list(fields: Mapping[str, Any]) -> str:
    from penstock.stream.sql.sql_text import on_one_line, split_arguments

    if not fields:
        raise InvalidRequest(
            "map takes the fields of the new event, {'total': 'price * quantity'}, not an empty mapping"
        )
    items: list[str] = []
    for name, text in fields.items():
        given: object = name
        if not isinstance(given, str) or not given or "`" in given:
            raise InvalidRequest(f"map: {short_repr(name)} cannot name a field: give it a text without backquotes")
        if not isinstance(text, str) or len(split_arguments(check_expression(text, f"map: the field {name!r}"))) != 1:
            raise InvalidRequest(
                f"map: the field {name!r} takes one SQL expression, such as 'price * quantity', not "
                f"{short_repr(text)}; for Python, give map a function that returns the whole event"
            )
        items.append(f"{on_one_line(text)} AS `{name}`")
    return ", ".join(items)


def check_fold(function: Callable[..., Any], initial: Any) -> None:
    if not accepts_arguments(function, initial, {}):
        raise InvalidRequest(
            f"reduce: {function_name(function)} must take a value and an event: write def f(value, event)"
        )
    try:
        json.encode(initial)
    except json.JSONProblem as problem:
        raise InvalidRequest(
            f"reduce: the initial value must be JSON, and {short_repr(initial)} is not: {problem}"
        ) from None


def check_output_name(name: object) -> None:
    """Raise if a field of the events for closed windows cannot have the name."""
    problem = find_text_problem(name) or (None if name else "must not be empty")
    if problem is not None:
        raise InvalidRequest(f"select: the name of a field {problem}")


def check_aggregate_name(name: object, names: Mapping[Any, Any]) -> None:
    if not isinstance(name, str) or not _COLUMN.fullmatch(name):
        raise InvalidRequest(
            f"{short_repr(name)} cannot name an aggregate: it becomes a column, so use letters, digits and "
            "underscores, at most 60"
        )
    if name.lower() in RESERVED_COLUMNS:
        raise InvalidRequest(f"{name!r} is a column of every result: give the aggregate another name")
    same = [other for other in names if isinstance(other, str) and other.lower() == name.lower()]
    if len(same) > 1:
        raise InvalidRequest(f"{' and '.join(map(repr, same))} differ in case only: give one another name")
