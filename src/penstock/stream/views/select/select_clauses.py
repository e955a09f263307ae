"""Plans one SELECT: each clause is computed on the rows of the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.select.aggregate_calls import AggregateCalls, is_aggregate_call
from penstock.stream.views.select.conditions import plan_condition
from penstock.stream.views.select.scalar_subqueries import attach_subqueries
from penstock.stream.views.select.set_operations import distinct_rows
from penstock.stream.views.select.sort_keys import parse_limit, sort_keys
from penstock.stream.views.select.window_functions import plan_window_functions
from penstock.stream.views.select_tree import column, contains_query, has_aggregates, replace_nodes, split_conjuncts
from penstock.stream.views.view_plan import Aggregate, AggregateCall, NamedExpression, Operator, TopN

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner


class SelectPlanner:
    """Plans a SELECT. Its expressions are rewritten to the columns of the operators as these are added."""

    def __init__(self, planner: QueryPlanner, select: exp.Select) -> None:
        self._planner = planner
        self._statement = planner.statement
        self._select = select
        self._operator: Operator = planner.plan_rows(select)
        order = select.args.get("order")
        self._items: list[exp.Expr] = [item.unalias() for item in select.expressions]
        self._having = split_conjuncts(select.args.get("having"))
        self._qualify = split_conjuncts(select.args.get("qualify"))
        self._order: list[exp.Expr] = list(order.expressions) if order is not None else []

    def plan(self, names: tuple[str, ...]) -> Operator:
        """Return the operators of the SELECT. Its columns get the names."""
        if has_aggregates(self._select):
            self._aggregate()
        self._operator = plan_condition(self._planner, self._operator, self._having, "HAVING")
        self._operator, nodes = attach_subqueries(self._planner, self._operator, [*self._items, *self._order])
        self._set_items_and_order(nodes)
        nodes = [*self._items, *self._order, *self._qualify]
        self._operator, nodes = plan_window_functions(self._planner, self._operator, nodes)
        self._set_items_and_order(nodes)
        self._qualify = nodes[len(self._items) + len(self._order) :]
        self._operator = plan_condition(self._planner, self._operator, self._qualify, "QUALIFY")
        return self._project(names)

    def _set_items_and_order(self, nodes: list[exp.Expr]) -> None:
        first_order = len(self._items)
        self._items, self._order = nodes[:first_order], nodes[first_order : first_order + len(self._order)]

    def _aggregate(self) -> None:
        groups = self._group_names()
        clauses = [self._items, self._having, self._qualify, self._order]
        for nodes in clauses:
            nodes[:] = [self._attach_in_calls(node) for node in nodes]
        calls = AggregateCalls(self._planner, self._operator)
        for nodes in clauses:
            nodes[:] = [calls.replace(node, groups) for node in nodes]
        if not groups and not calls.calls:
            calls.add(AggregateCall("", "count"))
        named = [NamedExpression(name, self._statement.sql(node, self._operator)) for node, name in groups.items()]
        self._operator = Aggregate(self._operator, tuple(named), calls.calls)

    def _group_names(self) -> dict[exp.Expr, str]:
        """Return the names of the groups. An expression over other groups needs no group of its own."""
        group = self._select.args.get("group")
        nodes: list[exp.Expr] = list(dict.fromkeys(group.expressions)) if group is not None else []
        for node in nodes:
            self._statement.check_row_expression(node, "GROUP BY")
            if contains_query(node):
                raise self._statement.source.error(
                    node, "a subquery in GROUP BY is not supported: compute it in a subquery in FROM"
                )
        names: dict[exp.Expr, str] = {}
        # Short expressions come first, because long ones may be computed from them.
        for node in sorted(nodes, key=lambda node: sum(1 for _ in node.walk())):
            rest = replace_nodes(node, lambda part: exp.Null() if part in names else None)
            if rest.find(exp.Column) is not None:
                base = node.name if isinstance(node, exp.Column) else "group"
                names[node] = self._statement.unique_name(base)
        if nodes and not names:
            names[nodes[0]] = self._statement.unique_name("group")
        return {node: names[node] for node in nodes if node in names}

    def _attach_in_calls(self, node: exp.Expr) -> exp.Expr:
        """Add the values of the subqueries that are in the arguments of aggregates."""

        def replace(part: Any) -> exp.Expr | None:
            if isinstance(part, exp.Query):
                return part
            if not is_aggregate_call(part) or not contains_query(part):
                return None
            self._operator, (call,) = attach_subqueries(self._planner, self._operator, [part])
            return call

        return replace_nodes(node, replace)

    def _project(self, names: tuple[str, ...]) -> Operator:
        limit = parse_limit(self._statement, self._select)
        columns = dict(zip(names, self._items, strict=True))
        if not self._select.args.get("distinct"):
            if limit is not None:
                keys = sort_keys(self._statement, self._order, self._operator)
                self._operator = TopN(self._operator, (), keys, limit)
            return self._statement.project(self._operator, columns)
        distinct = distinct_rows(self._statement.project(self._operator, columns), names)
        if limit is None:
            return distinct
        return TopN(distinct, (), sort_keys(self._statement, self._distinct_order(names), distinct), limit)

    def _distinct_order(self, names: tuple[str, ...]) -> list[exp.Expr]:
        """Return ORDER BY over the columns of SELECT DISTINCT."""
        items = {item: column(name) for item, name in zip(self._items, names, strict=True)}
        order = [
            replace_nodes(node, lambda part: items[part].copy() if part in items else None) for node in self._order
        ]
        for node, written in zip(order, self._order, strict=True):
            if any(part.table or part.name not in names for part in node.find_all(exp.Column)):
                raise self._statement.source.error(
                    written, "ORDER BY of SELECT DISTINCT takes columns of the select list: add it there"
                )
        return order
