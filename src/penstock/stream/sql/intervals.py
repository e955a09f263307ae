"""Times in statements: lengths such as ``'5 seconds'`` and ``INTERVAL``, and the windows of a GROUP BY."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import InvalidOption
from penstock.stream import windows
from penstock.stream.sql.parser import Source
from penstock.stream.windows import Window

_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_WINDOWS = ("window", "session_window")


def micros_of(text: str) -> int | None:
    """How long ``1 minute 30 seconds`` is, in microseconds; None if that is no length."""
    total, place = 0.0, 0
    text = text.strip().removeprefix("INTERVAL").removeprefix("interval")
    for part in _PART.finditer(text):
        unit = _UNITS.get(part[2].lower().removesuffix("s"))
        if part.start() != place or unit is None:
            return None
        total += float(part[1]) * unit
        place = part.end()
    return round(total) if place and not text[place:].strip() else None


def length_of(source: Source, node: Any) -> int:
    """The length that a literal or an INTERVAL stands for, in microseconds."""
    from sqlglot import exp

    text = ""
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        text = f"{node.this.name} {unit.name if unit is not None else ''}"
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.this
    found = micros_of(text)
    if found is None:
        raise source.refuse(
            node, f"{node.sql('spark')} is no length of time: write '5 seconds', '10 minutes' or '1 day'"
        )
    return found


@dataclass(frozen=True)
class Spanned:
    """A window of a GROUP BY: what it is, which time it goes by, and how its value is spelt."""

    window: Window
    #: The part of the statement that stands for the time.
    time: Any
    #: SQL over a closed window for what the expression stands for.
    value: str


def window_of(source: Source, node: Any) -> Spanned | None:
    """The window that a part of a GROUP BY stands for; None, if it is none."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous) and node.name.lower() in _WINDOWS:
        return _named(source, node)
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        return _calendar(source, node)
    return None


def _named(source: Source, node: Any) -> Spanned:
    arguments = node.expressions
    kind = node.name.lower()
    example = "window(event_time, '5 seconds')" if kind == "window" else "session_window(event_time, '5 minutes')"
    if not 2 <= len(arguments) <= (3 if kind == "window" else 2):
        raise source.refuse(node, f"{kind} takes a time and a length: {example}; a start that is shifted is not known")
    time, lengths = arguments[0], [length_of(source, argument) / 10**6 for argument in arguments[1:]]
    try:
        if kind == "session_window":
            window: Window = windows.session(lengths[0])
        elif len(lengths) == 2 and lengths[0] != lengths[1]:
            window = windows.sliding(*lengths)
        else:
            window = windows.tumbling(lengths[0])
    except InvalidOption as error:
        raise source.refuse(node, str(error)) from None
    return Spanned(window, time, "struct(window_start AS start, window_end AS end)")


def _calendar(source: Source, node: Any) -> Spanned:
    """``date_trunc('day', t)``, of UTC or, with ``from_utc_timestamp(t, zone)``, of a time zone."""
    from sqlglot import exp

    every, time, zone = node.args["unit"].name.lower(), _uncast(node.this), "UTC"
    value = "window_start"
    if isinstance(time, exp.AtTimeZone):
        zone, time = time.args["zone"].name, _uncast(time.this)
        value = f"from_utc_timestamp(window_start, '{zone}')"
    try:
        return Spanned(windows.calendar(every, zone), time, value)
    except InvalidOption as error:
        raise source.refuse(node, str(error)) from None


def _uncast(node: Any) -> Any:
    from sqlglot import exp

    return node.this if isinstance(node, exp.Cast) and not node.meta else node
