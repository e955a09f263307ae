"""Aggregates of a window.

::

    from penstock import agg

    .aggregate({"count": agg.count(), "total": agg.sum("amount"), "p95": agg.percentile("latency_ms", 0.95)})

The text ``"sum(amount)"`` means ``agg.sum("amount")``. Sums are exact: numbers are added as the decimals in the JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.option_checks import check_integer, check_number
from penstock.stream.expression import Expression, check_expression, describe_expression


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """An aggregate: its kind, its argument, and a number if the kind takes one."""

    kind: str
    argument: Expression | None = None
    number: float | None = None

    def describe(self) -> str:
        """Return the text that is part of a query's fingerprint."""
        arguments = [] if self.argument is None else [describe_expression(self.argument)]
        if self.number is not None:
            arguments.append(f"{int(self.number) if self.number == int(self.number) else self.number}")
        return f"{self.kind}({', '.join(arguments)})"


def count(expression: Expression | None = None) -> WindowAggregate:
    """Count the events; with an expression, those for which it is not null."""
    return WindowAggregate("count", None if expression is None else check_expression(expression, "count"))


def count_if(condition: Expression) -> WindowAggregate:
    """Count the events for which a condition holds."""
    return WindowAggregate("count_if", check_expression(condition, "count_if"))


def sum(expression: Expression) -> WindowAggregate:
    """Add the values, exactly."""
    return WindowAggregate("sum", check_expression(expression, "sum"))


def avg(expression: Expression) -> WindowAggregate:
    """Return the mean: the exact sum divided by the count, to the 28 digits of Python's Decimal."""
    return WindowAggregate("avg", check_expression(expression, "avg"))


def min(expression: Expression) -> WindowAggregate:
    """Return the smallest value."""
    return WindowAggregate("min", check_expression(expression, "min"))


def max(expression: Expression) -> WindowAggregate:
    """Return the largest value."""
    return WindowAggregate("max", check_expression(expression, "max"))


def stddev(expression: Expression) -> WindowAggregate:
    """Return the sample standard deviation, as a double; null for fewer than two values."""
    return WindowAggregate("stddev", check_expression(expression, "stddev"))


def first(expression: Expression) -> WindowAggregate:
    """Return the value of the earliest event, by the time of the windows."""
    return WindowAggregate("first", check_expression(expression, "first"))


def last(expression: Expression) -> WindowAggregate:
    """Return the value of the latest event, by the time of the windows."""
    return WindowAggregate("last", check_expression(expression, "last"))


def count_distinct(expression: Expression) -> WindowAggregate:
    """Count the distinct values, exactly. The values are stored while the window is open."""
    return WindowAggregate("count_distinct", check_expression(expression, "count_distinct"))


def approx_distinct(expression: Expression) -> WindowAggregate:
    """Count the distinct values in constant space: exactly up to 1,024, then within about 3 percent."""
    return WindowAggregate("approx_distinct", check_expression(expression, "approx_distinct"))


def percentile(expression: Expression, fraction: float) -> WindowAggregate:
    """Return a percentile: ``percentile("latency_ms", 0.95)``. Up to 1,024 distinct values of a window it is exact."""
    check_number("fraction", fraction, 0, 1)
    return WindowAggregate("percentile", check_expression(expression, "percentile"), float(fraction))


def top_k(expression: Expression, k: int = 10) -> WindowAggregate:
    """Return the k most frequent values with their counts, most frequent first."""
    check_integer("k", k, 1, 1000)
    return WindowAggregate("top_k", check_expression(expression, "top_k"), float(k))


KINDS = (
    *("approx_distinct", "avg", "count", "count_distinct", "count_if", "first", "last", "max", "min", "stddev", "sum"),
    *("percentile", "top_k"),
)
_EXAMPLES = {
    **{kind: f"{kind}(amount)" for kind in KINDS},
    "percentile": "percentile(latency_ms, 0.95)",
    "top_k": "top_k(page, 10)",
    "count_if": "count_if(amount > 100)",
    "count": "count(*)",
}


def check_aggregate(name: str, value: object) -> WindowAggregate:
    """Return the aggregate that a value is, or that a text such as ``"sum(amount)"`` means."""
    from penstock.stream.sql.sql_text import split_call

    if isinstance(value, WindowAggregate) and value.kind in KINDS:
        return value
    try:
        kind, arguments = split_call(value) if isinstance(value, str) else ("", "")
        if kind in KINDS:
            return parse_aggregate(kind, arguments)
    except InvalidOption as error:
        raise InvalidOption(f"aggregate {name!r}: {error}", option=error.option) from None
    except InvalidRequest as error:
        raise InvalidRequest(f"aggregate {name!r}: {error}") from None
    raise InvalidRequest(
        f"aggregate {name!r}: {short_repr(value)} is none; write agg.sum('amount') or 'sum(amount)'. "
        f"There are {', '.join(KINDS)}"
    )


def parse_aggregate(kind: str, text: str) -> WindowAggregate:
    """Return the aggregate of a kind, with the text between its parentheses."""
    from penstock.stream.sql.sql_text import split_arguments, without_distinct

    if kind == "count" and text in ("", "*", "1"):
        return count()
    if not text:
        raise InvalidRequest(f"{kind} takes an argument: write '{_EXAMPLES[kind]}'")
    check_expression(text, kind)
    arguments = split_arguments(text)
    distinct = without_distinct(text)
    if kind == "percentile":
        if len(arguments) != 2:
            raise InvalidRequest(f"percentile takes an expression and a fraction: '{_EXAMPLES[kind]}'")
        return percentile(arguments[0], _parse_number(arguments[1], float, "fraction"))
    if kind == "top_k" and len(arguments) == 2:
        return top_k(arguments[0], _parse_number(arguments[1], int, "k"))
    if len(arguments) != 1 or (distinct is not None and kind != "count"):
        raise InvalidRequest(f"{kind} takes one expression, not {short_repr(text)}: '{_EXAMPLES[kind]}'")
    if kind == "top_k":
        return top_k(text)
    return WindowAggregate(kind, text) if distinct is None else count_distinct(distinct)


def _parse_number(text: str, kind: Callable[[str], Any], option: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidOption(f"{option} must be a number, not {short_repr(text)}", option=option) from None
