"""Finds the keys of joins, and orders inner joins so that each has keys where the conditions allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.stream.views.expressions import parse_sql, to_sql, tree_columns
from penstock.stream.views.optimize.rebuild import map_inputs
from penstock.stream.views.select_tree import join_conjuncts, split_conjuncts
from penstock.stream.views.view_plan import Join, JoinKind, Operator, output_columns


def order_joins(operator: Operator) -> Operator:
    if not isinstance(operator, Join):
        return map_inputs(operator, order_joins)
    if operator.kind is not JoinKind.INNER:
        left, right = order_joins(operator.left), order_joins(operator.right)
        return _join(left, right, operator.kind, _conditions(operator))
    inputs, conditions = _flatten(operator)
    return _join_all([_JoinedInput(order_joins(each)) for each in inputs], conditions)


@dataclass(frozen=True)
class _JoinedInput:
    operator: Operator

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(output_columns(self.operator))


def _flatten(operator: Operator) -> tuple[list[Operator], list[exp.Expr]]:
    """Return the inputs and the conditions of nested inner joins."""
    if not isinstance(operator, Join) or operator.kind is not JoinKind.INNER:
        return [operator], []
    left, left_conditions = _flatten(operator.left)
    right, right_conditions = _flatten(operator.right)
    return [*left, *right], [*left_conditions, *right_conditions, *_conditions(operator)]


def _join_all(inputs: list[_JoinedInput], conditions: list[exp.Expr]) -> Operator:
    """Join the inputs in their order; one that a key connects with those before it comes first."""
    result, *waiting = inputs
    while waiting:
        connected = [each for each in waiting if any(_key(node, result.columns, each.columns) for node in conditions)]
        chosen = (connected or waiting)[0]
        waiting.remove(chosen)
        names = result.columns | chosen.columns
        usable = [node for node in conditions if tree_columns(node) <= names]
        conditions = [node for node in conditions if not tree_columns(node) <= names]
        result = _JoinedInput(_join(result.operator, chosen.operator, JoinKind.INNER, usable))
    return result.operator


def _join(left: Operator, right: Operator, kind: JoinKind, conditions: Sequence[exp.Expr]) -> Join:
    """Return a join. Equalities between both inputs are its keys."""
    left_names, right_names = frozenset(output_columns(left)), frozenset(output_columns(right))
    keys = {node: _key(node, left_names, right_names) for node in conditions}
    pairs = dict.fromkeys((to_sql(pair[0]), to_sql(pair[1])) for pair in keys.values() if pair is not None)
    condition = join_conjuncts(node for node in conditions if keys[node] is None)
    return Join(
        left,
        right,
        kind,
        tuple(own for own, _ in pairs),
        tuple(other for _, other in pairs),
        None if condition is None else to_sql(condition),
    )


def _key(node: Any, left: frozenset[str], right: frozenset[str]) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the expressions over the left and the right input that a condition compares with =."""
    if not isinstance(node, exp.EQ):
        return None
    own, other = tree_columns(node.this), tree_columns(node.expression)
    if own and other and own <= left and other <= right:
        return node.this, node.expression
    if own and other and own <= right and other <= left:
        return node.expression, node.this
    return None


def _conditions(join: Join) -> list[exp.Expr]:
    keys = zip(join.left_keys, join.right_keys, strict=True)
    equal: list[exp.Expr] = [exp.EQ(this=parse_sql(own), expression=parse_sql(other)) for own, other in keys]
    return equal if join.condition is None else [*equal, *split_conjuncts(parse_sql(join.condition))]
