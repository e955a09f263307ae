"""The windows of a GROUP BY, such as ``window(t, '5 seconds')`` and ``date_trunc('day', t)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.windows import (
    Window,
    calendar_window,
    parse_duration,
    session_window,
    sliding_window,
    tumbling_window,
)

_EXAMPLES = {
    "window": "window(event_time, '5 seconds')",
    "session_window": "session_window(event_time, '5 minutes')",
    "calendar_window": "calendar_window(event_time, 'month', 'Europe/Rome', 17)",
}
#: The functions whose value is an object with the start and the end of a window.
WINDOW_FUNCTIONS = tuple(_EXAMPLES)
_WINDOW_VALUE = "struct(window_start AS start, window_end AS end)"
_MICROS = 10**6


@dataclass(frozen=True)
class GroupWindow:
    window: Window
    #: The expression for the event time.
    time: exp.Expr
    #: SQL over a closed window for the value of the expression.
    value: str


def parse_group_window(source: SqlSource, node: exp.Expr) -> GroupWindow | None:
    """Return the window that an expression of GROUP BY is; None if it is none."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in WINDOW_FUNCTIONS:
        is_calendar = node.name.lower() == "calendar_window"
        return _parse_calendar_call(source, node) if is_calendar else _parse_window_call(source, node)
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        return _parse_date_trunc(source, node)
    return None


def parse_interval(source: SqlSource, node: Any) -> int:
    """Return the microseconds of a literal such as ``'5 seconds'`` or of an INTERVAL."""
    text = ""
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        text = f"{node.this.name} {unit.name if unit is not None else ''}"
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.this
    micros = parse_duration(text)
    if micros is None:
        raise source.error(
            node, f"{node.sql('spark')} is no length of time: write '5 seconds', '10 minutes' or '1 day'"
        )
    return micros


def _parse_window_call(source: SqlSource, call: exp.Anonymous) -> GroupWindow:
    arguments = call.expressions
    name = call.name.lower()
    if not 2 <= len(arguments) <= (3 if name == "window" else 2):
        raise source.error(
            call, f"{name} takes a time and a length: {_EXAMPLES[name]}; a shifted start is not supported"
        )
    lengths = [parse_interval(source, argument) / _MICROS for argument in arguments[1:]]
    with source.locate_errors(call):
        if name == "session_window":
            window: Window = session_window(lengths[0])
        elif len(lengths) == 2 and lengths[0] != lengths[1]:
            window = sliding_window(*lengths)
        else:
            window = tumbling_window(lengths[0])
    return GroupWindow(window, arguments[0], _WINDOW_VALUE)


def _parse_calendar_call(source: SqlSource, call: exp.Anonymous) -> GroupWindow:
    """``calendar_window(t, unit [, time zone [, first day [, first month]]])``."""
    time, *values = call.expressions or [None]
    if not 1 <= len(values) <= 4 or not all(isinstance(value, exp.Literal) for value in values):
        raise source.error(
            call,
            "calendar_window takes a time, a unit and, if needed, a time zone, the first day and the first month: "
            f"{_EXAMPLES['calendar_window']}",
        )
    texts = [value.this if value.is_string else _integer(value.this) for value in values]
    every, zone, *anchors = texts if len(texts) > 1 else [*texts, "UTC"]
    with source.locate_errors(call):
        return GroupWindow(calendar_window(every, zone, *anchors), time, _WINDOW_VALUE)


def _integer(text: str) -> object:
    return int(text) if text.isdecimal() else text


def _parse_date_trunc(source: SqlSource, call: Any) -> GroupWindow:
    """``date_trunc('day', t)`` in UTC or, with ``from_utc_timestamp(t, zone)``, in a time zone."""
    every, time, zone = call.args["unit"].name.lower(), _without_cast(call.this), "UTC"
    value = "window_start"
    if isinstance(time, exp.AtTimeZone):
        zone, time = time.args["zone"].name, _without_cast(time.this)
        value = f"from_utc_timestamp(window_start, '{zone}')"
    with source.locate_errors(call):
        return GroupWindow(calendar_window(every, zone), time, value)


def _without_cast(node: Any) -> Any:
    """Return the operand of a cast that sqlglot has added."""
    return node.this if isinstance(node, exp.Cast) and not node.meta else node
