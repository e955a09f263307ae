"""Plans subqueries that are values: a join with their one row adds the value as a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.expressions import to_sql, tree_columns
from penstock.stream.views.select.aggregate_calls import AggregateCalls
from penstock.stream.views.select.sort_keys import parse_limit
from penstock.stream.views.select_tree import (
    call,
    column,
    contains_query,
    has_aggregates,
    join_conjuncts,
    replace_nodes,
    split_conjuncts,
)
from penstock.stream.views.view_plan import Aggregate, Join, JoinKind, NamedExpression, Operator, output_columns

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner

_ADVICE: dict[type[exp.Expr], str] = {
    exp.Exists: "EXISTS is a condition of WHERE or HAVING, combined with AND: write a SELECT for each part of OR, "
    "combined with UNION",
    exp.In: "IN (SELECT ...) is a condition of WHERE or HAVING, combined with AND: write LEFT JOIN (SELECT DISTINCT id "
    "...) t ON ..., and t.id IS NOT NULL",
    exp.Any: "ANY (SELECT ...) is not supported: write IN, or compare with (SELECT max(x) ...)",
    exp.All: "ALL (SELECT ...) is not supported: write NOT EXISTS, or compare with (SELECT max(x) ...)",
}
_SEVERAL_ROWS = "this subquery may return several rows: write an aggregate, (SELECT max(x) ...), or LIMIT 1"


def attach_subqueries(
    planner: QueryPlanner, operator: Operator, nodes: list[exp.Expr]
) -> tuple[Operator, list[exp.Expr]]:
    """Return an operator that has the values of the subqueries in the expressions, and expressions that use them."""
    # ORDER BY repeats the subquery of an alias that it names.
    known: dict[exp.Expr, exp.Expr] = {}

    def replace(part: Any) -> exp.Expr | None:
        nonlocal operator
        if not isinstance(part, exp.Query):
            return None
        if part in known:
            return known[part].copy()
        advice = _ADVICE.get(type(part.parent or part))
        if advice is not None:
            raise planner.statement.source.error(part, advice)
        operator, known[part] = _attach(planner, operator, part)
        return known[part].copy()

    replaced = [replace_nodes(node, replace) if contains_query(node) else node for node in nodes]
    return operator, replaced


def _attach(planner: QueryPlanner, operator: Operator, query: Any) -> tuple[Operator, exp.Expr]:
    source = planner.statement.source
    if len(query.selects) != 1:
        raise source.error(query, f"a subquery in an expression has one column, and this one has {len(query.selects)}")
    limit = query.args.get("limit")
    is_single = limit is not None and parse_limit(planner.statement, query) == 1
    if tree_columns(query) & set(output_columns(operator)):
        return _attach_correlated(planner, operator, query)
    is_aggregate = isinstance(query, exp.Select) and has_aggregates(query) and not query.args.get("group")
    if not is_aggregate and not is_single:
        raise source.error(query, _SEVERAL_ROWS)
    name = planner.statement.unique_name("value")
    rows = planner.plan(query, (name,))
    # An aggregate without groups has exactly one row.
    has_one_row = is_aggregate and not query.args.get("having") and limit is None and not query.args.get("qualify")
    kind = JoinKind.INNER if has_one_row else JoinKind.LEFT
    return Join(operator, rows, kind, (), ()), column(name)


def _attach_correlated(planner: QueryPlanner, operator: Operator, query: Any) -> tuple[Operator, exp.Expr]:
    """Group the rows of the subquery by what is compared with the outer SELECT, and join the groups."""
    statement = planner.statement
    others = ("group", "having", "qualify", "limit", "distinct")
    is_aggregate = isinstance(query, exp.Select) and has_aggregates(query)
    if not is_aggregate or any(query.args.get(name) for name in others):
        raise statement.source.error(
            query,
            "a subquery with columns of the SELECT around it is an aggregate in an expression, (SELECT max(x) FROM t "
            "WHERE t.id = o.id), without GROUP BY and LIMIT: join it in FROM instead",
        )
    outer = set(output_columns(operator))
    conjuncts = split_conjuncts(query.args.get("where"))
    rows = planner.plan_rows(query, [node for node in conjuncts if not tree_columns(node) & outer])
    own = set(output_columns(rows))
    groups: list[NamedExpression] = []
    conditions: list[exp.Expr] = []
    for node in conjuncts:
        if not tree_columns(node) & outer:
            continue
        left, right = (node.this, node.expression) if isinstance(node, exp.EQ) else (node, node)
        if tree_columns(left) <= outer:
            left, right = right, left
        if not tree_columns(left) <= own or not tree_columns(right) <= outer:
            raise statement.source.error(
                node, "an aggregate in a subquery compares columns of the SELECT around it with =: t.id = o.id"
            )
        statement.check_row_expression(node, "WHERE")
        name = statement.unique_name("key")
        groups.append(NamedExpression(name, to_sql(left)))
        conditions.append(exp.EQ(this=right, expression=column(name)))
    calls = AggregateCalls(planner, rows)
    value = calls.replace(query.selects[0].unalias(), {})
    aggregate = Aggregate(calls.operator, tuple(groups), calls.calls)
    statement.check_columns(value, aggregate)
    condition = join_conjuncts(conditions)
    on = None if condition is None else to_sql(condition)
    joined = Join(operator, aggregate, JoinKind.LEFT, (), (), on)
    return joined, _zero_if_missing(value, {each.name for each in calls.calls if each.function == "count"})


def _zero_if_missing(value: exp.Expr, counts: set[str]) -> exp.Expr:
    """Return the value where a group without rows has the count 0."""

    def replace(part: Any) -> exp.Expr | None:
        if isinstance(part, exp.Column) and not part.table and part.name in counts:
            return call("coalesce", part.copy(), exp.Literal.number(0))
        return None

    return replace_nodes(value, replace)
