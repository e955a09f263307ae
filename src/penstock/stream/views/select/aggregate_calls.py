"""Collects the aggregate calls of a SELECT. Calls and groups become columns of an Aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.select.aggregate_functions import ParsedCall, parse_call
from penstock.stream.views.select_tree import column, is_aggregate, outer_call, own_nodes, replace_nodes
from penstock.stream.views.view_plan import AggregateCall, Operator

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner

_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


class AggregateCalls:
    """The calls over the rows of one operator. Equal calls are computed once."""

    def __init__(self, planner: QueryPlanner, operator: Operator) -> None:
        self._statement = planner.statement
        self.operator = operator
        self._names: dict[AggregateCall, str] = {}

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        return tuple(replace(call, name=name) for call, name in self._names.items())

    def replace(self, node: exp.Expr, groups: Mapping[exp.Expr, str]) -> exp.Expr:
        """Return an expression over the groups, whose names are given, and over the calls, which are added."""

        def replacement(part: Any) -> exp.Expr | None:
            is_inner = part.find_ancestor(exp.Query) is not None
            name = groups.get(part)
            if name is not None and (not is_inner or part.find(exp.Column) is not None):
                return column(name)
            if is_inner or isinstance(part, exp.Query):
                return None
            if is_aggregate_call(part):
                return self._add(part)
            if isinstance(part, exp.Column):
                name = part.name
                raise self._statement.source.error(
                    part, f"{name} is neither grouped nor aggregated: add it to GROUP BY, or write any_value({name})"
                )
            return None

        return replace_nodes(node, replacement)

    def add(self, call: AggregateCall) -> exp.Column:
        """Return the column of a call."""
        unnamed = replace(call, name="")
        if unnamed not in self._names:
            self._names[unnamed] = self._statement.unique_name(call.function)
        return column(self._names[unnamed])

    def _add(self, node: exp.Expr) -> exp.Expr:
        self._check_nesting(node)
        return parse_call(self._statement.source, ParsedCall.of(node), self._sql, self.add)

    def _sql(self, node: exp.Expr) -> str:
        return self._statement.sql(node, self.operator)

    def _check_nesting(self, node: exp.Expr) -> None:
        calls = [part for part in own_nodes(node) if is_aggregate(part) or isinstance(part, exp.Window)]
        if len(calls) > 1:
            raise self._statement.source.error(
                calls[1], "an aggregate takes no other aggregate or window function: compute that in a subquery"
            )


def is_aggregate_call(node: exp.Expr) -> bool:
    """Return whether a node is an aggregate call with its FILTER, and not the function of a window."""
    inner = node
    while isinstance(inner, _WRAPPERS):
        inner = inner.this
    if not is_aggregate(inner):
        return False
    top = outer_call(inner)
    return not (isinstance(top.parent, exp.Window) and top.arg_key == "this")
