"""Plans UNION, INTERSECT and EXCEPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.expressions import column_sql
from penstock.stream.views.select.sort_keys import parse_limit, sort_keys
from penstock.stream.views.select_tree import column
from penstock.stream.views.view_plan import (
    Aggregate,
    AggregateCall,
    Filter,
    NamedExpression,
    Operator,
    Project,
    TopN,
    UnionAll,
)

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner


def plan_set_operation(planner: QueryPlanner, query: Any, names: tuple[str, ...]) -> Operator:
    operator: Operator
    if isinstance(query, exp.Union):
        is_distinct = bool(query.args.get("distinct"))
        parts = [*_parts(query.this, is_distinct), *_parts(query.expression, is_distinct)]
        operator = UnionAll(tuple(planner.plan(part, names) for part in parts))
        if is_distinct:
            operator = distinct_rows(operator, names)
    else:
        operator = _plan_intersection(planner, query, names)
    limit = parse_limit(planner.statement, query)
    if limit is None:
        return operator
    order = query.args.get("order")
    keys = [node.copy() for node in order.expressions] if order is not None else []
    for node in keys:
        # The names are resolved to the numbers of columns.
        node.set("this", column(names[int(node.this.name) - 1]))
    return TopN(operator, (), sort_keys(planner.statement, keys, operator), limit)


def distinct_rows(operator: Operator, names: tuple[str, ...]) -> Aggregate:
    return Aggregate(operator, tuple(NamedExpression(name, column_sql(name)) for name in names), ())


def _parts(query: Any, is_distinct: bool) -> list[Any]:
    """Return the queries of nested unions. UNION removes the duplicates of all of them, those of UNION ALL too."""
    if not isinstance(query, exp.Union) or query.args.get("limit") or query.args.get("order"):
        return [query]
    if query.args.get("distinct") and not is_distinct:
        return [query]
    return [*_parts(query.this, is_distinct), *_parts(query.expression, is_distinct)]


def _plan_intersection(planner: QueryPlanner, query: Any, names: tuple[str, ...]) -> Operator:
    """Count the rows of both sides per value. Nulls are equal, as in GROUP BY."""
    statement = planner.statement
    side = statement.unique_name("side")
    columns = tuple(NamedExpression(name, column_sql(name)) for name in names)
    sides = [
        Project(planner.plan(part, names), (*columns, NamedExpression(side, str(number))))
        for number, part in ((1, query.this), (2, query.expression))
    ]
    left, right = statement.unique_name("left_rows"), statement.unique_name("right_rows")
    calls = tuple(
        AggregateCall(name, "count", filter=f"{column_sql(side)} = {number}")
        for number, name in ((1, left), (2, right))
    )
    counts = Aggregate(UnionAll(tuple(sides)), columns, calls)
    comparison = ">" if isinstance(query, exp.Intersect) else "="
    kept = Filter(counts, f"{column_sql(left)} > 0 AND {column_sql(right)} {comparison} 0")
    return Project(kept, columns)
