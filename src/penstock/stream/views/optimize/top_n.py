"""Replaces ``row_number() OVER (...) <= n`` by the first n rows of each partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from penstock.stream.views.expressions import column_names, parse_sql, to_sql
from penstock.stream.views.optimize.rebuild import map_inputs
from penstock.stream.views.select_tree import join_conjuncts, split_conjuncts
from penstock.stream.views.view_plan import Filter, Operator, TopN, WindowFunction, WindowFunctions

#: Comparisons by those with swapped operands.
_SWAPPED: dict[type[exp.Expr], type[exp.Binary]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}


def find_top_n(operator: Operator) -> Operator:
    operator = map_inputs(operator, find_top_n)
    if not isinstance(operator, Filter):
        return operator
    conditions = split_conjuncts(parse_sql(operator.condition))
    found = _find(operator.input, conditions)
    if found is None:
        return operator
    top_n, rest = found
    condition = join_conjuncts(rest)
    return top_n if condition is None else Filter(top_n, to_sql(condition))


def _find(operator: Operator, conditions: list[exp.Expr]) -> tuple[TopN, list[exp.Expr]] | None:
    """Return the first rows that the conditions select, and the conditions that remain."""
    above: list[WindowFunctions] = []
    while isinstance(operator, WindowFunctions):
        for function in operator.functions:
            limits = {node: _limit(node, function.name) for node in conditions if _is_row_number(function)}
            known = [limit for limit in limits.values() if limit is not None]
            if known and not any(_uses(each, function.name) for each in above):
                limit = min(known)
                # With n = 1, the condition row_number = 1 holds for all rows.
                implied = [node for node, value in limits.items() if value == limit and _is_implied(node, limit)]
                rest = [node for node in conditions if node not in implied]
                rows = _without(operator, function)
                for each in reversed(above):
                    rows = replace(each, input=rows)
                return TopN(rows, operator.partition_by, operator.order_by, limit, function.name), rest
        above.append(operator)
        operator = operator.input
    return None


def _is_row_number(function: WindowFunction) -> bool:
    return function.sql.lower().startswith("row_number(")


def _without(operator: WindowFunctions, function: WindowFunction) -> Operator:
    others = tuple(each for each in operator.functions if each is not function)
    return replace(operator, functions=others) if others else operator.input


def _uses(operator: WindowFunctions, name: str) -> bool:
    expressions = [*operator.partition_by, *(key.sql for key in operator.order_by)]
    expressions += [function.sql for function in operator.functions]
    return any(name in column_names(sql) for sql in expressions)


def _limit(node: Any, name: str) -> int | None:
    """Return the largest row number for which a condition can hold; None if it does not compare the row number."""
    if isinstance(node, exp.Between) and _is_column(node.this, name):
        return _integer(node.args["high"])
    if type(node) in _SWAPPED and _is_column(node.expression, name):
        node = _SWAPPED[type(node)](this=node.expression.copy(), expression=node.this.copy())
    if not isinstance(node, exp.LTE | exp.LT | exp.EQ) or not _is_column(node.this, name):
        return None
    number = _integer(node.expression)
    if number is None:
        return None
    limit = number - 1 if isinstance(node, exp.LT) else number
    return limit if limit >= 1 else None


def _is_implied(node: Any, limit: int) -> bool:
    """Return whether a condition holds for every row number from 1 to the limit that it sets."""
    if isinstance(node, exp.Between):
        low = _integer(node.args["low"])
        return low is not None and low <= 1
    return not isinstance(node, exp.EQ) or limit == 1


def _is_column(node: Any, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name == name


def _integer(node: Any) -> int | None:
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    return int(node.name) if is_number else None
