"""Compiles the aggregate functions of a SELECT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from penstock.stream.aggregates import WindowAggregate, parse_aggregate
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.name_resolution import is_star

_KINDS: dict[type[exp.Expr], str] = {
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.Stddev: "stddev",
    exp.StddevSamp: "stddev",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.ApproxDistinct: "approx_distinct",
}
#: Aggregates of Spark that are not supported and that sqlglot does not know as aggregates.
_UNSUPPORTED = ("collect_list", "collect_set", "max_by", "min_by", "median", "mode", "kurtosis", "skewness")
#: The relative error of approx_count_distinct.
_DISTINCT_ERROR = 0.03


def compile_aggregate(source: SqlSource, node: Any, resolve: Callable[[exp.Expr], exp.Expr]) -> WindowAggregate | None:
    """Return the aggregate that an expression is; None if it is none.

    ``resolve`` returns an expression over the fields of the events.
    """

    def to_sql(expression: exp.Expr) -> str:
        return resolve(expression).sql("spark")

    condition = None
    if isinstance(node, exp.Filter):
        condition, node = to_sql(node.expression.this), node.this
    if isinstance(node, exp.IgnoreNulls):
        raise source.error(node, "IGNORE NULLS is not supported: read a subquery with WHERE x IS NOT NULL in it")
    with source.locate_errors(node):
        aggregate = _parse_call(node, to_sql)
    if aggregate is None:
        if isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and node.name.lower() in _UNSUPPORTED):
            raise source.error(node, _why_unsupported(node))
        return None
    inner = next((part for part in node.find_all(exp.AggFunc) if part is not node), None)
    if inner is not None:
        raise source.error(
            inner,
            f"{inner.sql('spark')} is an aggregate inside another: send the first to a queue, INSERT INTO counts "
            "SELECT ..., and read that with a second statement",
        )
    problem = _find_problem(node)
    if problem is not None:
        raise source.error(node, problem)
    if condition is None:
        return aggregate
    if aggregate.kind in ("first", "last"):
        raise source.error(node, f"{aggregate.kind} takes no FILTER: read a subquery with WHERE {condition} in it")
    return _with_filter(aggregate, condition)


def _parse_call(node: Any, to_sql: Callable[[exp.Expr], str]) -> WindowAggregate | None:
    if isinstance(node, exp.Count):
        return _parse_count(node, to_sql)
    if isinstance(node.this, exp.Distinct | exp.Order) or is_star(node.this):
        return None
    kind = _KINDS.get(type(node))
    if kind is not None:
        return WindowAggregate(kind, to_sql(node.this))
    if isinstance(node, exp.ApproxQuantile | exp.PercentileCont | exp.Quantile):
        fraction = node.args.get("quantile") or node.args.get("expression")
        if fraction is None or node.this is None:
            return None
        return parse_aggregate("percentile", f"{to_sql(node.this)}, {fraction.sql('spark')}")
    if isinstance(node, exp.Anonymous) and node.name.lower() == "top_k" and node.expressions:
        number = f", {node.expressions[1].sql('spark')}" if len(node.expressions) > 1 else ""
        return parse_aggregate("top_k", to_sql(node.expressions[0]) + number)
    return None


def _parse_count(node: exp.Count, to_sql: Callable[[exp.Expr], str]) -> WindowAggregate | None:
    counted = node.this
    if isinstance(counted, exp.Distinct):
        if any(is_star(part) for part in counted.expressions):
            return None
        values = [to_sql(part) for part in counted.expressions]
        several = _if_all_present(values, f"to_json(struct({', '.join(values)}))")
        return WindowAggregate("count_distinct", values[0] if len(values) == 1 else several)
    if counted is None or isinstance(counted, exp.Star | exp.Literal):
        return WindowAggregate("count")
    if is_star(counted):
        return None
    values = [to_sql(part) for part in (counted, *node.expressions)]
    return WindowAggregate("count", values[0] if len(values) == 1 else _if_all_present(values, "1"))


def _if_all_present(values: Sequence[str], result: str) -> str:
    """Return SQL for a result if no value is null."""
    present = " AND ".join(f"({value}) IS NOT NULL" for value in values)
    return f"CASE WHEN {present} THEN {result} END"


def _with_filter(aggregate: WindowAggregate, condition: str) -> WindowAggregate:
    """Return the aggregate of the events for which a condition holds."""
    if aggregate.argument is None:
        return WindowAggregate("count_if", condition)
    if aggregate.kind == "count_if":
        return WindowAggregate("count_if", f"({condition}) AND ({aggregate.argument})")
    return replace(aggregate, argument=f"CASE WHEN {condition} THEN {aggregate.argument} END")


def _why_unsupported(node: Any) -> str:
    if isinstance(node, exp.AnonymousAggFunc):
        return "percentile takes a value and a fraction: percentile(x, 0.95)"
    return (
        f"there is no aggregate {node.sql('spark')}; there are count, count(DISTINCT ...), count_if, sum, avg, min, "
        "max, stddev, first, last, approx_count_distinct, percentile and top_k"
    )


def _find_problem(node: Any) -> str | None:
    """Return why an aggregate cannot be computed as its arguments say."""
    match node:
        case exp.ApproxQuantile() if node.args.get("accuracy") or node.args.get("weight"):
            return "a percentile is exact up to 1,024 values and within 1 percent beyond: leave the accuracy out"
        case exp.ApproxDistinct() if node.args.get("accuracy"):
            accuracy = node.args["accuracy"]
            if not isinstance(accuracy, exp.Literal) or accuracy.is_string or float(accuracy.name) < _DISTINCT_ERROR:
                return (
                    "approx_count_distinct is exact up to 1,024 values and then within 3 percent: leave the second "
                    "argument out, or write count(DISTINCT x)"
                )
        case exp.Min() | exp.Max() if node.expressions:
            function = "least" if isinstance(node, exp.Min) else "greatest"
            return f"{node.key} takes one value: {function} compares several"
        case exp.CountIf() if node.args.get("zero_on_all_null"):
            return "count_if takes one condition: combine several with AND"
        case exp.Anonymous() if len(node.expressions) > 2:
            return "top_k takes a value and a number: top_k(x, 10)"
    return None
