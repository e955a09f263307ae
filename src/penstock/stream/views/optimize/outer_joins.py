"""Simplifies outer joins whose rows without a match are removed by a condition after the join."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from sqlglot import exp

from penstock.stream.views.view_plan import JoinKind

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def simplify_kind(kind: JoinKind, conditions: Iterable[exp.Expr], left: Set[str], right: Set[str]) -> JoinKind:
    """Return the kind of a join whose result is filtered with conditions."""
    names = {name for node in conditions for name in _columns_not_null(node)}
    if kind in (JoinKind.FULL, JoinKind.LEFT) and names & right:
        kind = JoinKind.RIGHT if kind is JoinKind.FULL else JoinKind.INNER
    if kind in (JoinKind.FULL, JoinKind.RIGHT) and names & left:
        kind = JoinKind.LEFT if kind is JoinKind.FULL else JoinKind.INNER
    return kind


def _columns_not_null(node: Any) -> list[str]:
    """Return columns that are not null if a condition holds."""
    if isinstance(node, exp.Not) and isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
        operands = [node.this.this]
    elif isinstance(node, _COMPARISONS):
        operands = [node.this, node.expression]
    elif isinstance(node, exp.Between | exp.In | exp.Like):
        operands = [node.this]
    else:
        operands = []
    return [operand.name for operand in operands if isinstance(operand, exp.Column)]
