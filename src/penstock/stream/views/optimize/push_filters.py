"""Moves conditions towards the sources, and those of inner joins into the joins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from penstock.stream.views.expressions import parse_sql, plain_column, substitute, to_sql, tree_columns
from penstock.stream.views.optimize.outer_joins import simplify_kind
from penstock.stream.views.select_tree import join_conjuncts, split_conjuncts
from penstock.stream.views.view_plan import (
    Aggregate,
    Explode,
    Filter,
    Join,
    JoinKind,
    NamedExpression,
    Operator,
    Project,
    TopN,
    UnionAll,
    WindowFunctions,
    output_columns,
)

#: Joins all rows of whose left, or right, input are in the result, or those with a match. A condition on their columns
#: is the same before the join and after it.
_KEEPS_LEFT = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
_KEEPS_RIGHT = (JoinKind.INNER, JoinKind.RIGHT)
#: Joins whose condition can be checked for the rows of the left, or right, input alone, before the join.
_FILTERS_LEFT = (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI)
_FILTERS_RIGHT = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)


def push_filters(operator: Operator) -> Operator:
    return _push(operator, [])


def _push(operator: Operator, conditions: list[exp.Expr]) -> Operator:
    """Return the rows of an operator for which the conditions hold."""
    match operator:
        case Filter(input=source, condition=condition):
            # A condition may guard those after it: x <> 0 AND 1 / x > 2.
            return _push(source, [*split_conjuncts(parse_sql(condition)), *conditions])
        case Project(input=source, columns=columns):
            return Project(_push(source, _expand(conditions, columns)), columns)
        case UnionAll(inputs=inputs):
            return UnionAll(tuple(_push(source, conditions) for source in inputs))
        case Explode(input=source, name=name):
            below, above = _split(conditions, set(output_columns(source)) - {name})
            return _filter(replace(operator, input=_push(source, below)), above)
        case Aggregate(input=source, groups=groups):
            names = {group.name for group in groups}
            below, above = _split(conditions, names) if groups else ([], conditions)
            return _filter(replace(operator, input=_push(source, _expand(below, groups))), above)
        case TopN(input=source, partition_by=partition_by) | WindowFunctions(input=source, partition_by=partition_by):
            keys = {key for sql in partition_by if (key := plain_column(sql)) is not None}
            below, above = _split(conditions, keys) if keys else ([], conditions)
            return _filter(replace(operator, input=_push(source, below)), above)
        case Join():
            return _push_into_join(operator, conditions)
        case _:
            return _filter(operator, conditions)


def _push_into_join(join: Join, conditions: list[exp.Expr]) -> Operator:
    left, right = set(output_columns(join.left)), set(output_columns(join.right))
    kind = simplify_kind(join.kind, conditions, left, right)
    to_left, to_right, within, above = list[exp.Expr](), list[exp.Expr](), list[exp.Expr](), list[exp.Expr]()
    for node in split_conjuncts(parse_sql(join.condition)) if join.condition is not None else []:
        names = tree_columns(node)
        if names <= left and kind in _FILTERS_LEFT:
            to_left.append(node)
        elif names <= right and kind in _FILTERS_RIGHT:
            to_right.append(node)
        else:
            within.append(node)
    for node in conditions:
        names = tree_columns(node)
        if names <= left and kind in _KEEPS_LEFT:
            to_left.append(node)
        elif names <= right and kind in _KEEPS_RIGHT:
            to_right.append(node)
        elif kind is JoinKind.INNER:
            within.append(node)
        else:
            above.append(node)
    condition = join_conjuncts(within)
    pushed = replace(
        join,
        left=_push(join.left, to_left),
        right=_push(join.right, to_right),
        kind=kind,
        condition=None if condition is None else to_sql(condition),
    )
    return _filter(pushed, above)


def _expand(conditions: list[exp.Expr], columns: Iterable[NamedExpression]) -> list[exp.Expr]:
    """Return conditions over the input of an operator that computes columns."""
    used = frozenset(name for node in conditions for name in tree_columns(node))
    expressions = {column.name: parse_sql(column.sql) for column in columns if column.name in used}
    return [substitute(node, expressions) for node in conditions]


def _split(conditions: list[exp.Expr], names: set[str]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the conditions on some columns alone, and the others."""
    below = [node for node in conditions if tree_columns(node) <= names]
    return below, [node for node in conditions if not tree_columns(node) <= names]


def _filter(operator: Operator, conditions: list[exp.Expr]) -> Operator:
    condition = join_conjuncts(conditions)
    return operator if condition is None else Filter(operator, to_sql(condition))
