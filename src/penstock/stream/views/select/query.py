"""Plans a query: a SELECT or a set operation."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.stream.views.select.conditions import plan_condition
from penstock.stream.views.select.from_clause import plan_from
from penstock.stream.views.select.select_clauses import SelectPlanner
from penstock.stream.views.select.set_operations import plan_set_operation
from penstock.stream.views.select.statement import Statement
from penstock.stream.views.select_tree import split_conjuncts
from penstock.stream.views.view_plan import Operator


class QueryPlanner:
    """Plans the queries of a statement whose names are resolved."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement

    def plan(self, query: Any, names: tuple[str, ...]) -> Operator:
        """Return the operators of a query. Its columns get the names."""
        if isinstance(query, exp.SetOperation):
            return plan_set_operation(self, query, names)
        return SelectPlanner(self, query).plan(names)

    def plan_rows(self, select: exp.Select, conditions: list[exp.Expr] | None = None) -> Operator:
        """Return the rows of FROM for which WHERE, or the given conditions instead, hold."""
        if conditions is None:
            conditions = split_conjuncts(select.args.get("where"))
        return plan_condition(self, plan_from(self, select), conditions, "WHERE")
