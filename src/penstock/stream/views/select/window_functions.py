"""Plans calls with OVER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.select.sort_keys import sort_keys
from penstock.stream.views.select_tree import call, column, function_name, is_aggregate, own_nodes, replace_nodes
from penstock.stream.views.view_plan import Operator, SortKey, WindowFunction, WindowFunctions

if TYPE_CHECKING:
    from penstock.stream.views.select.query import QueryPlanner

_NEEDS_ORDER = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value")

#: Functions whose value depends on the order of rows that ORDER BY does not tell apart.
_DEPENDS_ON_TIES = frozenset(
    (
        *("any_value", "array_agg", "collect_list", "collect_set", "first", "first_value", "last", "last_value"),
        *("listagg", "max_by", "min_by", "mode", "nth_value", "string_agg"),
    )
)


def plan_window_functions(
    planner: QueryPlanner, operator: Operator, nodes: list[exp.Expr]
) -> tuple[Operator, list[exp.Expr]]:
    """Return an operator that computes the calls with OVER, and expressions that use their columns.

    Calls over the same rows in the same order are computed by one operator.
    """
    rows = operator
    groups: dict[tuple[tuple[str, ...], tuple[SortKey, ...]], dict[WindowFunction, str]] = {}

    def replace(part: Any) -> exp.Expr | None:
        if isinstance(part, exp.Query):
            return part
        if not isinstance(part, exp.Window):
            return None
        name = _function_name(planner, part)
        partition = tuple(planner.statement.sql(node, rows) for node in part.args.get("partition_by") or [])
        order = part.args.get("order")
        keys = sort_keys(planner.statement, order.expressions if order is not None else [], rows)
        function = WindowFunction("", planner.statement.sql(_plain_call(planner, part), rows), _frame(planner, part))
        functions = groups.setdefault((partition, keys), {})
        if function not in functions:
            functions[function] = planner.statement.unique_name(name)
        return column(functions[function])

    replaced = [replace_nodes(node, replace) for node in nodes]
    for (partition, keys), functions in groups.items():
        named = tuple(WindowFunction(name, each.sql, each.frame) for each, name in functions.items())
        operator = WindowFunctions(operator, partition, keys, named)
    return operator, replaced


def _function_name(planner: QueryPlanner, window: Any) -> str:
    """Return the name of a call with OVER. Refuse what Spark does not compute."""
    source, node = planner.statement.source, window.this
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    name = function_name(node)
    if not is_aggregate(node) and name not in _NEEDS_ORDER:
        raise source.error(
            window, f"{name or 'this'} is no function for OVER: write sum(x) OVER (...), or rank() OVER (...)"
        )
    if name in _NEEDS_ORDER and window.args.get("order") is None:
        raise source.error(window, f"{name} needs an order: {name}(...) OVER (PARTITION BY ... ORDER BY ...)")
    if any(isinstance(part, exp.Distinct) for part in node.expressions):
        raise source.error(window, f"{name}(DISTINCT ...) OVER is not supported: group in a subquery and join it")
    spec = window.args.get("spec")
    # The first value of a frame that begins with the group is found after ties are broken by the row's key.
    is_first = name in ("first", "first_value") and spec is None
    if name in _DEPENDS_ON_TIES and not is_first and (spec is None or spec.args.get("kind") != "ROWS"):
        raise source.error(
            window,
            f"{name} depends on the order of rows that are equal in ORDER BY: write a frame of rows, in which the key "
            f"of the rows breaks ties, {name}(...) OVER (... ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        )
    inner = [part for part in own_nodes(window) if isinstance(part, exp.Window) and part is not window]
    if inner:
        raise source.error(inner[0], "a window function takes no other window function: compute that in a subquery")
    return name


def _plain_call(planner: QueryPlanner, window: Any) -> exp.Expr:
    """Return the call. FILTER, which Spark does not know with OVER, becomes CASE."""
    node: exp.Expr = window.this
    if not isinstance(node, exp.Filter):
        return node
    if function_name(node.this) not in ("count", "sum", "avg", "min", "max", "mean", "stddev", "variance"):
        raise planner.statement.source.error(window, "FILTER with OVER: write CASE WHEN ... THEN x END as the argument")
    argument = node.this.expressions[0]
    value = exp.Literal.number(1) if isinstance(argument, exp.Star) else argument.copy()
    case = exp.Case(ifs=[exp.If(this=node.expression.this.copy(), true=value)])
    return call(function_name(node.this), case)


def _frame(planner: QueryPlanner, window: Any) -> str | None:
    spec = window.args.get("spec")
    if spec is None:
        return None
    kind = spec.args.get("kind")
    if spec.args.get("exclude") or kind not in ("ROWS", "RANGE"):
        raise planner.statement.source.error(
            window, "a frame is ROWS BETWEEN ... or RANGE BETWEEN ..., without EXCLUDE"
        )
    return str(spec.sql("spark"))
