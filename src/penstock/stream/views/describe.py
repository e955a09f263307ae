"""Describes the operators of a view as text, one line each, with their inputs indented below them."""

from __future__ import annotations

from penstock.stream.views.plan import (
    Aggregate,
    AggregateCall,
    Explode,
    Filter,
    Join,
    Operator,
    Project,
    QueueSource,
    ReferenceSource,
    SortKey,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunctions,
    inputs_of,
)


def describe_operators(root: Operator) -> list[str]:
    """Return a line for each operator; the inputs of an operator follow it."""
    lines = [_describe(root)]
    for source in inputs_of(root):
        lines += [f"  {line}" for line in describe_operators(source)]
    return lines


def _describe(operator: Operator) -> str:
    match operator:
        case QueueSource(queue=queue, columns=columns):
            return f"queue {queue}: {', '.join(column.field for column in columns)}"
        case ViewSource(view=view, columns=columns):
            return f"view {view}: {', '.join(column.field for column in columns)}"
        case ReferenceSource(table=table, columns=columns):
            return f"reference {table}: {', '.join(column.field for column in columns)}"
        case Project(columns=columns):
            return f"select: {', '.join(f'{column.sql} AS {column.name}' for column in columns)}"
        case Filter(condition=condition):
            return f"filter: {condition}"
        case Explode(name=name, array_sql=array_sql):
            return f"explode: {array_sql} AS {name}"
        case UnionAll():
            return "union all"
        case Aggregate(groups=groups, calls=calls):
            by = ", ".join(f"{group.sql} AS {group.name}" for group in groups) or "all rows"
            return f"aggregate: {', '.join(map(_describe_call, calls)) or 'distinct rows'} by {by}"
        case Join():
            return _describe_join(operator)
        case TopN(partition_by=partition_by, order_by=order_by, limit=limit, rank_name=rank):
            numbered = "" if rank is None else f", numbered as {rank}"
            return f"first {limit}{numbered}: {_describe_order(partition_by, order_by)}"
        case WindowFunctions(partition_by=partition_by, order_by=order_by, functions=functions):
            calls_over = ", ".join(f"{each.sql} {each.frame or ''} AS {each.name}" for each in functions)
            return f"over: {calls_over}; {_describe_order(partition_by, order_by)}"


def _describe_call(call: AggregateCall) -> str:
    arguments = ", ".join(part for part in (call.argument or "*", call.order) if part is not None)
    if call.fraction is not None:
        arguments = f"{arguments}, {call.fraction}"
    distinct = "DISTINCT " if call.is_distinct else ""
    where = "" if call.filter is None else f" FILTER (WHERE {call.filter})"
    return f"{call.function}({distinct}{arguments}){where} AS {call.name}"


def _describe_join(join: Join) -> str:
    keys = [f"{left} = {right}" for left, right in zip(join.left_keys, join.right_keys, strict=True)]
    conditions = [*keys, *([] if join.condition is None else [join.condition])]
    return f"{join.kind} join: {' AND '.join(conditions) or 'all rows'}"


def _describe_order(partition_by: tuple[str, ...], order_by: tuple[SortKey, ...]) -> str:
    order = [
        f"{key.sql}{' desc' if key.is_descending else ''} nulls {'first' if key.nulls_first else 'last'}"
        for key in order_by
    ]
    return f"per {', '.join(partition_by) or 'all rows'}, ordered by {', '.join(order) or 'arrival'}"
