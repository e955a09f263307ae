"""Plans conditions. IN and EXISTS become semi and anti joins, and other subqueries become columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.expressions import to_sql, tree_columns
from penstock.stream.views.select.scalar_subqueries import attach_subqueries
from penstock.stream.views.select.sort_keys import parse_limit
from penstock.stream.views.select_tree import (
    column,
    contains_query,
    has_aggregates,
    join_conjuncts,
    split_conjuncts,
    window_calls,
)
from penstock.stream.views.view_plan import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    JoinKind,
    Operator,
    output_columns,
)

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner


def plan_condition(planner: QueryPlanner, operator: Operator, conjuncts: list[exp.Expr], clause: str) -> Operator:
    """Return the rows of an operator for which all conditions hold."""
    for node in conjuncts:
        planner.statement.check_row_expression(node, clause)
    plain = join_conjuncts(node for node in conjuncts if not contains_query(node))
    if plain is not None:
        operator = Filter(operator, planner.statement.sql(plain, operator))
    for node in conjuncts:
        if contains_query(node):
            operator = _plan_subquery_condition(planner, operator, node)
    return operator


def _plan_subquery_condition(planner: QueryPlanner, operator: Operator, node: Any) -> Operator:
    is_negated, inner = False, node
    while isinstance(inner, exp.Not):
        is_negated, inner = not is_negated, inner.this
    if isinstance(inner, exp.Exists):
        return _plan_exists(planner, operator, inner.this, is_negated)
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        return _plan_in(planner, operator, inner, is_negated)
    operator, (condition,) = attach_subqueries(planner, operator, [node])
    return Filter(operator, planner.statement.sql(condition, operator))


def _plan_exists(planner: QueryPlanner, operator: Operator, query: Any, is_negated: bool) -> Operator:
    if query.args.get("limit") is not None:
        # Whether there is a row does not depend on how many are taken.
        parse_limit(planner.statement, query)
        query = query.copy()
        query.set("limit", None)
        query.set("order", None)
    rows, conditions = _plan_matches(planner, operator, query)
    return _join(planner, operator, rows, JoinKind.ANTI if is_negated else JoinKind.SEMI, conditions)


def _plan_in(planner: QueryPlanner, operator: Operator, node: Any, is_negated: bool) -> Operator:
    source, query = planner.statement.source, node.args["query"]
    values = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    if len(query.selects) != len(values):
        raise source.error(query, f"IN compares {len(values)} values with {len(query.selects)} columns")
    before = operator
    operator, values = attach_subqueries(planner, operator, values)
    if is_negated:
        if operator is not before or len(values) != 1:
            raise source.error(node, "NOT IN compares one expression with a subquery here: write NOT EXISTS instead")
        return _plan_not_in(planner, operator, values[0], query)
    if _is_plain(query):
        rows, conditions = _plan_matches(planner, operator, query)
        rows, columns = attach_subqueries(planner, rows, [item.unalias() for item in query.expressions])
    else:
        names = tuple(planner.statement.unique_name("value") for _ in values)
        rows, conditions = planner.plan(query, names), []
        columns = [column(name) for name in names]
    equal = [exp.EQ(this=own, expression=other) for own, other in zip(values, columns, strict=True)]
    return _join(planner, operator, rows, JoinKind.SEMI, [*equal, *conditions])


def _plan_not_in(planner: QueryPlanner, operator: Operator, value: exp.Expr, query: Any) -> Operator:
    """Keep the rows whose value is in no row of the subquery.

    With a null among the values of the subquery no row is kept. A null is kept only if the subquery is empty.
    """
    statement = planner.statement
    if tree_columns(query) & set(output_columns(operator)):
        raise statement.source.error(
            query, "NOT IN with columns of the SELECT around it is not supported: write NOT EXISTS instead"
        )
    name = statement.unique_name("value")
    rows = planner.plan(query, (name,))
    different = _join(planner, operator, rows, JoinKind.ANTI, [exp.EQ(this=value, expression=column(name))])
    row_count, null_count = statement.unique_name("rows"), statement.unique_name("nulls")
    is_null = to_sql(exp.Is(this=column(name), expression=exp.Null()))
    calls = (AggregateCall(row_count, "count"), AggregateCall(null_count, "count", filter=is_null))
    is_unknown = exp.Or(
        this=exp.GT(this=column(null_count), expression=exp.Literal.number(0)),
        expression=exp.And(
            this=exp.GT(this=column(row_count), expression=exp.Literal.number(0)),
            expression=exp.Is(this=value.copy(), expression=exp.Null()),
        ),
    )
    return _join(planner, different, Aggregate(rows, (), calls), JoinKind.ANTI, [is_unknown])


def _plan_matches(planner: QueryPlanner, operator: Operator, query: Any) -> tuple[Operator, list[exp.Expr]]:
    """Return the rows of a subquery, and the conditions that compare them with the rows of an operator."""
    if not _is_plain(query):
        name = planner.statement.unique_name("value")
        return planner.plan(query, (name, *(f"{name}_{index}" for index in range(1, len(query.selects))))), []
    outer = set(output_columns(operator))
    conjuncts = split_conjuncts(query.args.get("where"))
    local = [node for node in conjuncts if not tree_columns(node) & outer]
    correlated = [node for node in conjuncts if tree_columns(node) & outer]
    for node in correlated:
        planner.statement.check_row_expression(node, "WHERE")
        if contains_query(node):
            raise planner.statement.source.error(
                node, "a subquery inside a condition with columns of the SELECT around it: join it in FROM instead"
            )
    return planner.plan_rows(query, local), correlated


def _is_plain(query: Any) -> bool:
    """Return whether the rows of a query are those of its FROM and WHERE, some of them more than once."""
    if not isinstance(query, exp.Select) or query.args.get("limit") or query.args.get("qualify"):
        return False
    return not has_aggregates(query) and not any(window_calls(item) for item in query.expressions)


def _join(
    planner: QueryPlanner, left: Operator, right: Operator, kind: JoinKind, conditions: list[exp.Expr]
) -> Operator:
    condition = join_conjuncts(conditions)
    if condition is None:
        return Join(left, right, kind, (), ())
    both = Join(left, right, JoinKind.INNER, (), ())
    return Join(left, right, kind, (), (), planner.statement.sql(condition, both))
