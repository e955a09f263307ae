"""Windows of time that never close, as expressions over the time of a row.

The value of a tumbling window is its start. A sliding window is an array of starts, which an Explode makes rows of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.calendar_windows import CalendarTimeWindow, parse_calendar_call
from penstock.stream.views.select_tree import call, function_name, is_aggregate, own_nodes, quoted
from penstock.stream.windows import parse_duration

_WINDOW_EXAMPLE = "window(event_time, '10 seconds') or window(event_time, '10 seconds', '2 seconds')"
_TABLE_EXAMPLES = {
    "tumble": "TUMBLE(TABLE bids, DESCRIPTOR(event_time), INTERVAL '10' SECOND)",
    "hop": "HOP(TABLE bids, DESCRIPTOR(event_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
}
_CLOSING = (
    "{name} needs windows that close: write a stream with such windows, INSERT INTO counts SELECT ... GROUP BY "
    "session_window(event_time, '5 minutes'), and let the view read the queue counts"
)
_ADVICE = {
    "session_window": _CLOSING.format(name="session_window"),
    "session": _CLOSING.format(name="SESSION"),
    "cumulate": f"CUMULATE is not supported: write {_TABLE_EXAMPLES['tumble']}",
}
_MAX_WINDOWS_PER_ROW = 1000
#: The functions whose value is an object with the start and the end of a window.
WINDOW_FUNCTIONS = ("window", "calendar_window")
_GROUP_FUNCTIONS = ("tumble_start", "tumble_end", "hop_start", "hop_end")


@dataclass(frozen=True)
class TimeWindow:
    """A tumbling window if its slide is its size, otherwise a sliding one."""

    time: exp.Expr
    size_us: int
    slide_us: int

    @property
    def is_sliding(self) -> bool:
        return self.slide_us < self.size_us

    def tumbling_start(self) -> exp.Expr:
        micros = self.micros()
        offset = call("pmod", micros.copy(), _integer(self.size_us))
        return call("timestamp_micros", exp.Sub(this=micros, expression=offset))

    def end(self, start: exp.Expr) -> exp.Expr:
        micros = call("unix_micros", start.copy())
        return call("timestamp_micros", exp.Add(this=micros, expression=_integer(self.size_us)))

    def value(self, start: exp.Expr) -> exp.Expr:
        """Return the struct that ``window(...)`` is."""
        parts = {"start": start.copy(), "end": self.end(start)}
        return call("struct", *(exp.Alias(this=part, alias=quoted(name)) for name, part in parts.items()))

    def sliding_starts(self) -> exp.Expr:
        """Return the array of the starts of all windows that contain the time: the last start, then earlier ones."""
        micros = self.micros()
        offset = call("pmod", micros, _integer(self.slide_us))
        steps = exp.IntDiv(
            this=exp.Sub(this=_integer(self.size_us - 1), expression=offset), expression=_integer(self.slide_us)
        )
        last = exp.Sub(this=micros.copy(), expression=offset.copy())
        shift = exp.Mul(this=exp.to_identifier("i"), expression=_integer(self.slide_us))
        body = call("timestamp_micros", exp.Sub(this=last, expression=shift))
        number = exp.Lambda(this=body, expressions=[exp.to_identifier("i")])
        return call("transform", call("sequence", _integer(0), steps), number)

    def micros(self) -> exp.Expr:
        return call("unix_micros", exp.cast(self.time.copy(), "timestamp"))


def parse_window_call(source: SqlSource, node: exp.Expr) -> TimeWindow | CalendarTimeWindow | None:
    """Return the window of ``window(time, size [, slide])`` or ``calendar_window``; None for another function."""
    name = function_name(node)
    if name in _ADVICE:
        raise source.error(node, _ADVICE[name])
    if name in _TABLE_EXAMPLES or name in _GROUP_FUNCTIONS:
        raise source.error(
            node,
            f"{name.upper()} is no function of a row: write FROM {_TABLE_EXAMPLES['tumble']}, or {_WINDOW_EXAMPLE}",
        )
    if name not in WINDOW_FUNCTIONS:
        return None
    arguments = node.expressions
    if arguments and any(is_aggregate(part) for part in own_nodes(arguments[0])):
        raise source.error(node, f"{name} takes the time of a row and not an aggregate")
    if name == "calendar_window":
        return parse_calendar_call(source, node)
    if not 2 <= len(arguments) <= 3:
        raise source.error(node, f"window takes a time and a length: {_WINDOW_EXAMPLE}; no shifted start")
    return _checked(source, node, arguments[0], arguments[1], arguments[-1])


def is_table_function(node: Any) -> bool:
    return function_name(node) in (*_TABLE_EXAMPLES, "session", "cumulate")


@dataclass(frozen=True)
class WindowedTable:
    """``TUMBLE(TABLE bid, DESCRIPTOR(time), size)`` or HOP after FROM, before its names are resolved."""

    table: exp.Expr
    time: exp.Expr
    size: exp.Expr
    slide: exp.Expr

    def window(self, source: SqlSource, time: exp.Expr) -> TimeWindow:
        return _checked(source, self.time, time, self.size, self.slide)


def parse_table_function(source: SqlSource, node: exp.Anonymous) -> WindowedTable:
    name = function_name(node)
    if name in _ADVICE:
        raise source.error(node, _ADVICE[name])
    arguments = list(node.expressions)
    lengths = 1 if name == "tumble" else 2
    has_descriptor = len(arguments) == lengths + 2 and function_name(arguments[1]) == "descriptor"
    if not has_descriptor or len(arguments[1].expressions) != 1:
        raise source.error(node, f"{name.upper()} is written {_TABLE_EXAMPLES[name]}")
    table = arguments[0]
    if isinstance(table, exp.Column):
        table = exp.Table(this=table.this, db=table.args.get("table"))
    if not isinstance(table, exp.Table | exp.Subquery):
        raise source.error(node, f"{name.upper()} is written {_TABLE_EXAMPLES[name]}")
    # The arguments of HOP are the slide and the size.
    return WindowedTable(table, arguments[1].expressions[0], size=arguments[-1], slide=arguments[2])


def _checked(source: SqlSource, where: exp.Expr, time: exp.Expr, size: exp.Expr, slide: exp.Expr) -> TimeWindow:
    window = TimeWindow(time, _parse_interval(source, size), _parse_interval(source, slide))
    if window.slide_us > window.size_us:
        raise source.error(
            where, "the slide is longer than the window, so rows between two windows would be in none: make it shorter"
        )
    if window.size_us // window.slide_us > _MAX_WINDOWS_PER_ROW:
        raise source.error(
            where, f"a row would be in more than {_MAX_WINDOWS_PER_ROW:,} windows: make the slide longer"
        )
    return window


def _parse_interval(source: SqlSource, node: Any) -> int:
    """Return the microseconds of a literal such as ``'5 seconds'`` or of an INTERVAL."""
    text = ""
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        text = f"{node.this.name} {unit.name if unit is not None else ''}"
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.name
    micros = parse_duration(text)
    if micros is None or micros <= 0:
        raise source.error(
            node, f"{node.sql('spark')} is no length of time: write '5 seconds', '10 minutes' or '1 day'"
        )
    return micros


def _integer(value: int) -> exp.Expr:
    return exp.cast(exp.Literal.number(value), "bigint")
