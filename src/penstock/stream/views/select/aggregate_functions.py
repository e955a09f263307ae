"""Maps Spark's aggregate functions to those of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.select_tree import call, function_name, join_conjuncts
from penstock.stream.views.view_plan import AggregateCall

#: Functions of one argument by the name of the plan's function.
_SIMPLE = {
    **{name: name for name in ("sum", "avg", "min", "max", "stddev", "variance", "bool_and", "bool_or")},
    **{"mean": "avg", "stddev_samp": "stddev", "std": "stddev", "var_samp": "variance"},
    **{"every": "bool_and", "some": "bool_or", "any": "bool_or", "any_value": "min"},
}
_FIRST_AND_LAST = {"first": "first", "first_value": "first", "last": "last", "last_value": "last"}
_DISCRETE_PERCENTILES = ("percentile_disc", "percentile_approx", "approx_percentile")
_CONTINUOUS_PERCENTILES = ("percentile", "percentile_cont", "median")
#: DISTINCT changes the result of these alone. It is left out for the others.
_DISTINCT = ("count", "sum", "avg")
_DISTINCT_IS_NOTHING = ("min", "max", "bool_and", "bool_or")
_KNOWN = (
    "count, count(DISTINCT x), count_if, sum, avg, min, max, min_by, max_by, first, last, any_value, stddev, variance, "
    "stddev_pop, var_pop, median, percentile_disc, percentile_approx, bool_and and bool_or"
)
#: A little above one half: the discrete percentile of an even number of rows is the upper one of the middle values.
_UPPER_MEDIAN = 0.5 + 1e-12


@dataclass(frozen=True)
class ParsedCall:
    """A call with its FILTER, WITHIN GROUP and IGNORE NULLS."""

    node: exp.Expr
    name: str
    arguments: tuple[exp.Expr, ...]
    is_distinct: bool = False
    condition: exp.Expr | None = None
    within: tuple[exp.Ordered, ...] = ()
    ignores_nulls: bool = False

    @classmethod
    def of(cls, node: exp.Expr) -> ParsedCall:
        inner: Any = node
        found: dict[str, Any] = {}
        while not isinstance(inner, exp.Anonymous):
            if isinstance(inner, exp.Filter):
                found["condition"] = inner.expression.this
            elif isinstance(inner, exp.WithinGroup):
                found["within"] = tuple(inner.expression.expressions)
            elif isinstance(inner, exp.IgnoreNulls):
                found["ignores_nulls"] = True
            inner = inner.this
        arguments = inner.expressions
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            found["is_distinct"] = True
            arguments = arguments[0].expressions
        return cls(node, function_name(inner), tuple(arguments), **found)


def parse_call(
    source: SqlSource, parsed: ParsedCall, to_sql: Callable[[exp.Expr], str], add: Callable[[AggregateCall], exp.Expr]
) -> exp.Expr:
    """Add the plan's calls for a call of SQL, and return its result as an expression over them."""
    return _CallParser(source, parsed, to_sql, add).parse()


class _CallParser:
    def __init__(
        self,
        source: SqlSource,
        parsed: ParsedCall,
        to_sql: Callable[[exp.Expr], str],
        add: Callable[[AggregateCall], exp.Expr],
    ) -> None:
        self._source = source
        self._call = parsed
        self._to_sql = to_sql
        self._add_call = add

    def parse(self) -> exp.Expr:
        name, arguments = self._call.name, self._call.arguments
        self._check_clauses()
        if name == "count":
            return self._count()
        if name == "count_if":
            return self._add("count", None, condition=self._arguments(1)[0])
        if name == "approx_count_distinct" and len(arguments) in (1, 2):
            return self._add("count", arguments[0], is_distinct=True)
        if name in ("min_by", "max_by"):
            value, order = self._arguments(2)
            return self._add(name, value, order=order)
        if name in _FIRST_AND_LAST or name == "any_value":
            return self._first_or_last()
        if name in ("var_pop", "stddev_pop"):
            return self._population(self._arguments(1)[0], is_root=name == "stddev_pop")
        if name in _DISCRETE_PERCENTILES:
            value, fraction = self._percentile()
            return self._add("percentile", value, fraction=fraction)
        if name in _CONTINUOUS_PERCENTILES:
            return self._continuous_percentile()
        if name in _SIMPLE:
            return self._add(_SIMPLE[name], self._arguments(1)[0], is_distinct=self._call.is_distinct)
        raise self._error(f"{name} is no aggregate of views; there are {_KNOWN}")

    def _error(self, message: str) -> Exception:
        return self._source.error(self._call.node, message)

    def _check_clauses(self) -> None:
        parsed = self._call
        function = _SIMPLE.get(parsed.name, parsed.name)
        if parsed.is_distinct and function not in (*_DISTINCT, *_DISTINCT_IS_NOTHING):
            raise self._error(f"{parsed.name} takes no DISTINCT: read SELECT DISTINCT ... in a subquery")
        if parsed.within and not parsed.name.startswith("percentile_"):
            raise self._error(f"{parsed.name} takes no WITHIN GROUP: leave it out")
        if parsed.ignores_nulls and parsed.name not in (*_FIRST_AND_LAST, "any_value"):
            raise self._error(f"{parsed.name} takes no IGNORE NULLS: leave it out")

    def _arguments(self, number: int) -> tuple[exp.Expr, ...]:
        arguments = self._call.arguments
        if len(arguments) != number or any(isinstance(part, exp.Star) for part in arguments):
            raise self._error(f"{self._call.name} takes {number} argument{'s' if number > 1 else ''}")
        return arguments

    def _add(
        self,
        function: str,
        argument: exp.Expr | None,
        *,
        condition: exp.Expr | None = None,
        order: exp.Expr | None = None,
        is_distinct: bool = False,
        fraction: float | None = None,
    ) -> exp.Expr:
        """Add a call for the rows that FILTER and a further condition select."""
        where = join_conjuncts(part for part in (self._call.condition, condition) if part is not None)
        return self._add_call(
            AggregateCall(
                "",
                function,
                None if argument is None else self._to_sql(argument),
                is_distinct and function in _DISTINCT,
                None if where is None else self._to_sql(where),
                None if order is None else self._to_sql(order),
                fraction,
            )
        )

    def _count(self) -> exp.Expr:
        arguments = self._call.arguments
        is_star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
        if not arguments or (is_star and self._call.is_distinct):
            raise self._error("count takes * or values: count(*), count(x) or count(DISTINCT x)")
        if self._call.is_distinct:
            several = call("to_json", call("struct", *_aliased(arguments)))
            value = arguments[0] if len(arguments) == 1 else _if_present(arguments, several)
            return self._add("count", value, is_distinct=True)
        if is_star or all(isinstance(part, exp.Literal) for part in arguments):
            return self._add("count", None)
        one = exp.Literal.number(1)
        return self._add("count", arguments[0] if len(arguments) == 1 else _if_present(arguments, one))

    def _first_or_last(self) -> exp.Expr:
        arguments = self._call.arguments
        if not 1 <= len(arguments) <= 2 or not all(isinstance(part, exp.Boolean) for part in arguments[1:]):
            raise self._error(f"{self._call.name} takes a value: {self._call.name}(x)")
        value = arguments[0]
        if self._call.name == "any_value":
            return self._add("min", value)
        ignores_nulls = self._call.ignores_nulls or (len(arguments) == 2 and bool(arguments[1].this))
        condition = _is_present(value) if ignores_nulls else None
        return self._add(_FIRST_AND_LAST[self._call.name], value, condition=condition)

    def _population(self, value: exp.Expr, is_root: bool) -> exp.Expr:
        """Return the variance of all values: that of a sample times (n - 1) / n, and 0 for one value."""
        count, variance = self._add("count", value), self._add("variance", value)
        one, zero = exp.Literal.number(1), exp.cast(exp.Literal.number(0), "double")
        scaled = exp.Div(
            this=exp.Mul(this=variance, expression=exp.Sub(this=count.copy(), expression=one)), expression=count.copy()
        )
        is_one = exp.EQ(this=count, expression=one.copy())
        result = exp.Case(ifs=[exp.If(this=is_one, true=zero)], default=scaled)
        return call("sqrt", result) if is_root else result

    def _percentile(self) -> tuple[exp.Expr, float]:
        """Return the value and the fraction of a percentile."""
        parsed = self._call
        arguments = parsed.arguments
        if parsed.name in ("percentile_disc", "percentile_cont"):
            if len(parsed.within) != 1 or len(arguments) != 1:
                raise self._error(f"{parsed.name} is written {parsed.name}(0.95) WITHIN GROUP (ORDER BY x)")
            if parsed.within[0].args.get("desc"):
                raise self._error(f"{parsed.name} takes no DESC: write {parsed.name}(1 - fraction) without it")
            value, fraction = parsed.within[0].this, arguments[0]
        elif len(arguments) == 2 or (len(arguments) == 3 and parsed.name in _DISCRETE_PERCENTILES):
            value, fraction = arguments[0], arguments[1]
        else:
            raise self._error(f"{parsed.name} takes a value and a fraction: {parsed.name}(x, 0.95)")
        if not isinstance(fraction, exp.Literal) or fraction.is_string or not 0 <= float(fraction.name) <= 1:
            raise self._error(f"the fraction of {parsed.name} is one number from 0 to 1, such as 0.95")
        return value, float(fraction.name)

    def _continuous_percentile(self) -> exp.Expr:
        """Return the mean of the two middle values, or one of the ends."""
        name = self._call.name
        value, fraction = (self._arguments(1)[0], 0.5) if name == "median" else self._percentile()
        if fraction in (0.0, 1.0):
            return self._add("percentile", value, fraction=fraction)
        if fraction != 0.5:
            raise self._error(
                f"{name} interpolates between values, which views do for the median alone: write "
                f"percentile_disc({fraction}) WITHIN GROUP (ORDER BY x)"
            )
        lower = self._add("percentile", value, fraction=fraction)
        upper = self._add("percentile", value.copy(), fraction=_UPPER_MEDIAN)
        return exp.Div(this=exp.Add(this=lower, expression=upper), expression=exp.Literal.number(2))


def _aliased(arguments: tuple[exp.Expr, ...]) -> list[exp.Expr]:
    return [
        exp.Alias(this=part.copy(), alias=exp.to_identifier(f"c{number}")) for number, part in enumerate(arguments, 1)
    ]


def _is_present(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))


def _if_present(values: tuple[exp.Expr, ...], result: exp.Expr) -> exp.Expr:
    """Return the result if no value is null."""
    return exp.Case(ifs=[exp.If(this=join_conjuncts(map(_is_present, values)), true=result)])
