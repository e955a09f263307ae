"""Days, weeks, months, quarters and years of a view, as expressions over the time of a row. They never close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.select_tree import call, quoted
from penstock.stream.windows import CALENDAR_MONTHS, CalendarWindow, calendar_window

_EXAMPLE = "calendar_window(event_time, 'month', 'Europe/Rome', 17)"
_DATE_UNITS = ("day", "week", *CALENDAR_MONTHS)


@dataclass(frozen=True)
class CalendarTimeWindow:
    """The end is an expression over the start, by which a SELECT groups."""

    time: exp.Expr
    window: CalendarWindow

    def tumbling_start(self) -> exp.Expr:
        return self._to_time(self._first_day(self._local_date(exp.cast(self.time.copy(), "timestamp"))))

    def end(self, start: exp.Expr) -> exp.Expr:
        day = self._local_date(start.copy())
        months = CALENDAR_MONTHS.get(self.window.every)
        if months is not None:
            return self._to_time(self._anchor(_add_months(_first_of_month(day), _integer(months))))
        return self._to_time(call("date_add", day, _integer(7 if self.window.every == "week" else 1)))

    def value(self, start: exp.Expr) -> exp.Expr:
        """Return the struct that ``calendar_window(...)`` is."""
        parts = {"start": start.copy(), "end": self.end(start)}
        return call("struct", *(exp.Alias(this=part, alias=quoted(name)) for name, part in parts.items()))

    def _first_day(self, day: exp.Expr) -> exp.Expr:
        """The first day of the window that contains a day."""
        if self.window.every == "day":
            return day
        if self.window.every == "week":
            return call("trunc", day, exp.Literal.string("WEEK"))
        months = CALENDAR_MONTHS[self.window.every]
        first = _first_of_month(day)
        if months > 1:
            month = exp.Sub(this=call("month", day.copy()), expression=_integer(self.window.anchor_month))
            first = _add_months(first, exp.Neg(this=exp.paren(call("pmod", month, _integer(months)))))
        if self.window.anchor_day == 1:
            return first
        is_before = exp.LT(this=day.copy(), expression=self._anchor(first.copy()))
        return self._anchor(_add_months(first, exp.Case().when(is_before, _integer(-months)).else_(_integer(0))))

    def _anchor(self, first: exp.Expr) -> exp.Expr:
        """The anchor day of the month that begins at ``first``, or the last day of a shorter month."""
        if self.window.anchor_day == 1:
            return first
        return call(
            "least", call("date_add", first, _integer(self.window.anchor_day - 1)), call("last_day", first.copy())
        )

    def _local_date(self, time: exp.Expr) -> exp.Expr:
        return exp.cast(call("from_utc_timestamp", time, self._zone), "date")

    def _to_time(self, day: exp.Expr) -> exp.Expr:
        return call("to_utc_timestamp", exp.cast(day, "timestamp"), self._zone)

    @property
    def _zone(self) -> exp.Expr:
        return exp.Literal.string(self.window.timezone)


def parse_calendar_call(source: SqlSource, node: exp.Expr) -> CalendarTimeWindow:
    """Return the window of ``calendar_window(time, unit [, time zone [, first day [, first month]]])``."""
    time, *values = node.expressions or [None]
    if not 1 <= len(values) <= 4 or not all(isinstance(value, exp.Literal) for value in values):
        raise source.error(
            node,
            "calendar_window takes a time, a unit and, if needed, a time zone, the first day and the first month: "
            f"{_EXAMPLE}",
        )
    given: list[Any] = [value.name if value.is_string else int(value.name) for value in values]
    every, zone, *anchors = given if len(given) > 1 else [*given, "UTC"]
    with source.locate_errors(node):
        window = calendar_window(every, zone, *anchors)
    if window.every not in _DATE_UNITS:
        raise source.error(
            node, f"calendar_window of a view is a {', a '.join(_DATE_UNITS)}: write window(event_time, '1 {every}')"
        )
    return CalendarTimeWindow(time, window)


def _first_of_month(day: exp.Expr) -> exp.Expr:
    return call("trunc", day.copy(), exp.Literal.string("MM"))


def _add_months(day: exp.Expr, months: exp.Expr) -> exp.Expr:
    return call("add_months", day, months)


def _integer(value: int) -> exp.Expr:
    return exp.Literal.number(value)
