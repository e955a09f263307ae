"""Parts of a parsed SELECT: conjuncts, columns, aggregates and window functions.

After names are resolved, a column of a relation has the relation's alias as its table. A column that an operator of the
plan computes has no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlglot import exp

#: Spark's aggregate functions. Views do not support all of them.
_AGGREGATES = frozenset(
    (
        *("any", "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "bit_and", "bit_or"),
        *("bit_xor", "bool_and", "bool_or", "collect_list", "collect_set", "corr", "count", "count_if", "covar_pop"),
        *("covar_samp", "every", "first", "first_value", "grouping", "grouping_id", "histogram_numeric", "kurtosis"),
        *("last", "last_value", "listagg", "max", "max_by", "mean", "median", "min", "min_by", "mode", "percentile"),
        *("percentile_approx", "percentile_cont", "percentile_disc", "regr_avgx", "regr_avgy", "regr_count"),
        *("regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "skewness", "some", "std"),
        *("stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "try_avg", "try_sum", "var_pop", "var_samp"),
        "variance",
    )
)


def quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def column(name: str) -> exp.Column:
    """Return a column that an operator computes."""
    return exp.Column(this=quoted(name))


def relation_column(alias: str, name: str) -> exp.Column:
    """Return a column of a relation."""
    return exp.Column(this=quoted(name), table=quoted(alias))


def full_name(node: exp.Column) -> str:
    """Return the name of a column in the plan, such as ``b.price``."""
    return f"{node.table}.{node.name}" if node.table else node.name


def function_name(node: Any) -> str:
    """Return the name of the function that a node calls, in lower case; an empty text for other nodes."""
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def split_conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that AND combines, without those that are always true."""
    if node is None:
        return []
    if isinstance(node, exp.Where | exp.Having | exp.Qualify | exp.Paren):
        return split_conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*split_conjuncts(node.this), *split_conjuncts(node.expression)]
    is_true = isinstance(node, exp.Boolean) and node.this
    return [] if is_true else [node]


def join_conjuncts(nodes: Iterable[exp.Expr]) -> exp.Expr | None:
    result: exp.Expr | None = None
    for node in nodes:
        copy = node.copy()
        result = copy if result is None else exp.And(this=result, expression=copy)
    return result


def own_nodes(node: exp.Expr) -> Iterator[Any]:
    """Walk an expression without its subqueries."""
    return node.walk(prune=lambda part: isinstance(part, exp.Query))


def contains_query(node: exp.Expr) -> bool:
    return node.find(exp.Query) is not None


def is_aggregate(node: Any) -> bool:
    """Return whether a node is the call of an aggregate function."""
    return function_name(node) in _AGGREGATES


def outer_call(node: exp.Expr) -> exp.Expr:
    """Return a call together with its FILTER, WITHIN GROUP and IGNORE NULLS."""
    wrappers = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
    while isinstance(node.parent, wrappers) and node.arg_key == "this":
        node = node.parent
    return node


def aggregate_calls(node: exp.Expr) -> list[exp.Expr]:
    """Return the aggregate calls of a SELECT's expression, without those that OVER makes window functions."""
    calls = [outer_call(part) for part in own_nodes(node) if is_aggregate(part)]
    return [part for part in calls if not isinstance(part.parent, exp.Window) or part.arg_key != "this"]


def window_calls(node: exp.Expr) -> list[exp.Window]:
    """Return the calls with OVER of a SELECT's expression."""
    return [part for part in own_nodes(node) if isinstance(part, exp.Window)]


def has_aggregates(select: exp.Select) -> bool:
    """Return whether a SELECT groups its rows, or makes one row of all of them."""
    if select.args.get("group") or select.args.get("having"):
        return True
    clauses = (select.args.get(name) for name in ("qualify", "order"))
    nodes = [*select.expressions, *(clause for clause in clauses if clause is not None)]
    return any(aggregate_calls(node) for node in nodes)


def unwrap(query: Any) -> Any:
    """Return the SELECT or the set operation inside parentheses."""
    while isinstance(query, exp.Subquery) and not query.alias:
        query = query.this
    return query


def replace_nodes(node: exp.Expr, replace: Any) -> exp.Expr:
    """Return a copy of an expression. ``replace`` returns the node for a part, or None to keep it.

    The parts of a replaced node are not visited.
    """
    root = exp.Tuple(expressions=[node.copy()])
    waiting = [root.expressions[0]]
    while waiting:
        part = waiting.pop()
        replacement = replace(part)
        if replacement is None:
            waiting.extend(part.iter_expressions())
        else:
            part.replace(replacement)
    result: exp.Expr = root.expressions[0]
    result.pop()
    return result
