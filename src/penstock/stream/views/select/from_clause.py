"""Plans FROM, JOIN and LATERAL VIEW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.expressions import to_sql
from penstock.stream.views.names.scope import RelationKind
from penstock.stream.views.names.time_windows import TimeWindow
from penstock.stream.views.select_tree import call, column, contains_query, function_name, quoted
from penstock.stream.views.view_plan import (
    Explode,
    Filter,
    Join,
    JoinKind,
    Operator,
    QueueSource,
    ReferenceSource,
    SlidingWindows,
    SourceColumn,
    ViewSource,
    output_columns,
)

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner

_SOURCES: dict[RelationKind, type[QueueSource | ViewSource | ReferenceSource]] = {
    RelationKind.QUEUE: QueueSource,
    RelationKind.VIEW: ViewSource,
    RelationKind.REFERENCE: ReferenceSource,
}
_SIDES = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL}


def plan_from(planner: QueryPlanner, select: exp.Select) -> Operator:
    """Return the rows of FROM. Its columns are called ``alias.column``."""
    operator = _plan_relation(planner, select.args["from_"].this)
    for join in select.args.get("joins") or []:
        operator = _plan_join(planner, operator, join)
    for lateral in select.args.get("laterals") or []:
        operator = _plan_lateral(planner, operator, lateral)
    return operator


def _plan_relation(planner: QueryPlanner, node: Any) -> Operator:
    statement = planner.statement
    relation = statement.relations[node.alias]
    operator: Operator
    if relation.kind is RelationKind.SUBQUERY:
        names = tuple(f"{relation.alias}.{name}" for name in relation.columns or ())
        operator = planner.plan(node.this, names)
    else:
        columns = tuple(SourceColumn(f"{relation.alias}.{name}", name) for name in statement.used_columns(relation))
        operator = _SOURCES[relation.kind](relation.source_name, columns)
    if relation.window_time is None:
        return operator
    if relation.sliding is not None:
        return _explode_windows(planner, operator, f"{relation.alias}.window_start", relation.sliding)
    is_known = exp.Not(this=exp.Is(this=relation.window_time.copy(), expression=exp.Null()))
    return Filter(operator, to_sql(is_known))


def _explode_windows(planner: QueryPlanner, operator: Operator, name: str, window: TimeWindow) -> Explode:
    starts, micros = (planner.statement.sql(tree, operator) for tree in (window.sliding_starts(), window.micros()))
    return Explode(operator, name, starts, SlidingWindows(micros, window.size_us, window.slide_us))


def _plan_join(planner: QueryPlanner, left: Operator, node: Any) -> Operator:
    right = _plan_relation(planner, node.this)
    kind = JoinKind.SEMI if node.kind == "SEMI" else JoinKind.ANTI if node.kind == "ANTI" else JoinKind.INNER
    if kind is JoinKind.INNER:
        kind = _SIDES.get(node.side, JoinKind.INNER)
    elif node.side == "RIGHT":
        raise planner.statement.source.error(node, f"RIGHT {node.kind} JOIN: write LEFT {node.kind} JOIN")
    condition = node.args.get("on")
    if condition is None:
        return Join(left, right, kind, (), ())
    if contains_query(condition):
        raise planner.statement.source.error(
            condition, "a subquery in ON is not supported: write it in WHERE, or join it with its own JOIN"
        )
    planner.statement.check_row_expression(condition, "ON")
    # The columns of both sides are visible, also for a semi join.
    both = Join(left, right, JoinKind.INNER, (), ())
    return Join(left, right, kind, (), (), planner.statement.sql(condition, both))


def _plan_lateral(planner: QueryPlanner, operator: Operator, node: Any) -> Operator:
    statement = planner.statement
    relation = statement.relations[node.alias]
    if relation.sliding is not None:
        return _explode_windows(planner, operator, f"{relation.alias}.start", relation.sliding)
    names, array = relation.columns or (), node.this.expressions[0]
    function = function_name(node.this)
    if contains_query(array):
        raise statement.source.error(array, "LATERAL VIEW takes no subquery: join the subquery first")
    statement.check_row_expression(array, "LATERAL VIEW")
    fields = ("pos", "col") if function.startswith("pos") else ("col",) if len(names) == 1 else ("key", "value")
    entries = call("map_entries", array.copy()) if "key" in fields else _with_positions(array)
    if node.args.get("outer") or function.endswith("_outer"):
        entries = _one_null_if_empty(array, entries)
    element = statement.unique_name("element")
    exploded = Explode(operator, element, statement.sql(entries, operator))
    columns: dict[str, exp.Expr] = {name: column(name) for name in output_columns(operator)}
    for name, field in zip(names, fields, strict=True):
        columns[f"{relation.alias}.{name}"] = exp.Dot(this=column(element), expression=quoted(field))
    return statement.project(exploded, columns)


def _with_positions(array: exp.Expr) -> exp.Expr:
    """Return the elements with their positions, because the elements of an Explode are distinct."""
    value, position = exp.to_identifier("x"), exp.to_identifier("i")
    entry = call(
        "struct",
        exp.Alias(this=position.copy(), alias=exp.to_identifier("pos")),
        exp.Alias(this=value.copy(), alias=exp.to_identifier("col")),
    )
    return call("transform", array.copy(), exp.Lambda(this=entry, expressions=[value, position]))


def _one_null_if_empty(array: exp.Expr, entries: exp.Expr) -> exp.Expr:
    has_elements = exp.GT(this=call("size", array.copy()), expression=exp.Literal.number(0))
    otherwise = call("array", exp.Null())
    return exp.Case(ifs=[exp.If(this=has_elements, true=entries)], default=otherwise)
