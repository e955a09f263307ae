"""What is computed of the events in a window.

::

    from penstock import agg

    .aggregate({"count": agg.count(), "total": agg.sum("amount"), "p95": agg.percentile("latency_ms", 0.95)})

The text ``"sum(amount)"`` stands for ``agg.sum("amount")``. Numbers are added as the decimals that the JSON spells,
so a sum is exact to the penny.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import InvalidOption, InvalidRequest, shown
from penstock.stream.expression import Expression, check_expression, function_name, is_python
from penstock.stream.sql.column_refs import column_text
from penstock.stream.sql.tokens import arguments_in, one_line


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: its kind, what it is computed of, and a number where the kind needs one."""

    kind: str
    argument: Expression | None = None
    number: float | None = None

    def describe(self) -> str:
        """In words, for people and for the fingerprint of a query."""
        inside = [] if self.argument is None else [spelled(self.argument)]
        if self.number is not None:
            inside.append(f"{int(self.number) if self.number == int(self.number) else self.number}")
        return f"{self.kind}({', '.join(inside)})"


def count(expression: Expression | None = None) -> Aggregate:
    """How many events; with an expression, how many where it is not null."""
    return Aggregate("count", None if expression is None else check_expression(expression, "count"))


def count_if(condition: Expression) -> Aggregate:
    """How many events for which the condition holds: alerts over a threshold."""
    return Aggregate("count_if", check_expression(condition, "count_if"))


def sum(expression: Expression) -> Aggregate:
    """The sum, exact."""
    return Aggregate("sum", check_expression(expression, "sum"))


def avg(expression: Expression) -> Aggregate:
    """The mean: the exact sum divided by the count, to 28 digits as Python's Decimal does."""
    return Aggregate("avg", check_expression(expression, "avg"))


def min(expression: Expression) -> Aggregate:
    """The smallest."""
    return Aggregate("min", check_expression(expression, "min"))


def max(expression: Expression) -> Aggregate:
    """The largest."""
    return Aggregate("max", check_expression(expression, "max"))


def stddev(expression: Expression) -> Aggregate:
    """The sample standard deviation, as a double; null for fewer than two values."""
    return Aggregate("stddev", check_expression(expression, "stddev"))


def first(expression: Expression) -> Aggregate:
    """The value of the earliest event, by the time that the windows go by."""
    return Aggregate("first", check_expression(expression, "first"))


def last(expression: Expression) -> Aggregate:
    """The value of the latest event, by the time that the windows go by."""
    return Aggregate("last", check_expression(expression, "last"))


def count_distinct(expression: Expression) -> Aggregate:
    """How many different values, exactly; the values are kept while the window is open."""
    return Aggregate("count_distinct", check_expression(expression, "count_distinct"))


def approx_distinct(expression: Expression) -> Aggregate:
    """How many different values: exact up to 1,024, then within about 3 percent, in constant space."""
    return Aggregate("approx_distinct", check_expression(expression, "approx_distinct"))


def percentile(expression: Expression, fraction: float) -> Aggregate:
    """A percentile within 1 percent of its value: ``percentile("latency_ms", 0.95)``."""
    given: object = fraction
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise InvalidOption(f"a percentile's fraction is from 0 to 1, not {shown(fraction)}", option="fraction")
    return Aggregate("percentile", check_expression(expression, "percentile"), float(fraction))


def top_k(expression: Expression, k: int = 10) -> Aggregate:
    """The k most frequent values with their counts, most frequent first."""
    given: object = k
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 1000:
        raise InvalidOption(f"top_k takes a whole number from 1 to 1000, not {shown(k)}", option="k")
    return Aggregate("top_k", check_expression(expression, "top_k"), float(k))


#: The aggregates of one expression.
_PLAIN = {
    "approx_distinct": approx_distinct,
    "avg": avg,
    "count": count,
    "count_distinct": count_distinct,
    "count_if": count_if,
    "first": first,
    "last": last,
    "max": max,
    "min": min,
    "stddev": stddev,
    "sum": sum,
}
KINDS = (*_PLAIN, "percentile", "top_k")
_TEXT = re.compile(r"\s*(\w+)\s*(?:\((.*)\)\s*)?", re.DOTALL)
_DISTINCT = re.compile(r"distinct\b\s*", re.IGNORECASE)


def check_aggregate(name: str, value: object) -> Aggregate:
    """Return the aggregate that a value stands for."""
    if isinstance(value, Aggregate) and value.kind in KINDS:
        return value
    match = _TEXT.fullmatch(value) if isinstance(value, str) else None
    kind = match.group(1).lower() if match else ""
    if match is None or kind not in KINDS:
        raise InvalidRequest(
            f"aggregate {name!r}: {shown(value)} is none; write agg.sum('amount') or 'sum(amount)'. "
            f"There are {', '.join(KINDS)}"
        )
    inside = (match.group(2) or "").strip()
    try:
        return _read(kind, inside)
    except InvalidOption as error:
        raise InvalidOption(f"aggregate {name!r}: {error}", option=error.option) from None
    except InvalidRequest as error:
        raise InvalidRequest(f"aggregate {name!r}: {error}") from None


def _read(kind: str, inside: str) -> Aggregate:
    """The aggregate of a kind, with what its text has in parentheses."""
    if kind == "count" and inside in ("", "*", "1"):
        return count()
    if not inside:
        raise InvalidRequest(f"{kind} of what? Write '{_EXAMPLES.get(kind, f'{kind}(amount)')}'")
    arguments = arguments_in(inside)
    if kind == "percentile":
        if len(arguments) != 2:
            raise InvalidRequest("percentile takes an expression and a fraction: 'percentile(latency_ms, 0.95)'")
        return percentile(arguments[0], _number(arguments[1], float, "fraction"))
    if kind == "top_k" and len(arguments) == 2:
        return top_k(arguments[0], _number(arguments[1], int, "k"))
    if len(arguments) != 1 or (kind != "count" and _DISTINCT.match(inside)):
        raise InvalidRequest(
            f"{kind} takes one expression, not {shown(inside)}: '{_EXAMPLES.get(kind, kind + '(amount)')}'"
        )
    if kind == "top_k":
        return top_k(inside)
    if kind == "count" and (distinct := _DISTINCT.match(inside)):
        return count_distinct(inside[distinct.end() :])
    return _PLAIN[kind](inside)


_EXAMPLES = {
    "percentile": "percentile(latency_ms, 0.95)",
    "top_k": "top_k(page, 10)",
    "count_if": "count_if(amount > 100)",
    "count": "count(*)",
}


def _number(text: str, kind: Callable[[str], Any], option: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidOption(f"{option} must be a number, not {shown(text)}", option=option) from None


def spelled(expression: object) -> str:
    """An expression in words: SQL on one line, a function by its name."""
    if is_python(expression):
        return function_name(expression)
    return one_line(column_text(str(expression)))
