"""Removes columns that nothing uses, so that they are neither read nor kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.stream.views.expressions import column_names, column_sql
from penstock.stream.views.view_plan import (
    Aggregate,
    Explode,
    Filter,
    Join,
    NamedExpression,
    Operator,
    Project,
    QueueSource,
    ReferenceSource,
    SortKey,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunctions,
    output_columns,
)


def prune(operator: Operator) -> Operator:
    """Return a plan with the same columns in which every operator computes only what those above it use."""
    return _prune(operator, frozenset(output_columns(operator)))


def _prune(operator: Operator, used: frozenset[str]) -> Operator:
    """Return an operator with the used columns, and maybe more."""
    match operator:
        case QueueSource(columns=sources) | ViewSource(columns=sources) | ReferenceSource(columns=sources):
            return replace(operator, columns=tuple(column for column in sources if column.name in used))
        case Project(input=source, columns=columns):
            kept = tuple(column for column in columns if column.name in used)
            return Project(_prune(source, _names(column.sql for column in kept)), kept)
        case Filter(input=source, condition=condition):
            return Filter(_prune(source, used | column_names(condition)), condition)
        case Explode(input=source, name=name, array_sql=array_sql):
            return replace(operator, input=_prune(source, (used - {name}) | column_names(array_sql)))
        case UnionAll(inputs=inputs):
            names = [name for name in output_columns(operator) if name in used]
            return UnionAll(tuple(_narrow(each, names) for each in inputs))
        case Aggregate():
            return _prune_aggregate(operator, used)
        case Join():
            return _prune_join(operator, used)
        case TopN(input=source, partition_by=partition_by, order_by=order_by, rank_name=rank):
            needed = (used - {rank}) | _group_columns(partition_by, order_by)
            return replace(operator, input=_narrow(source, needed), rank_name=rank if rank in used else None)
        case WindowFunctions(input=source, partition_by=partition_by, order_by=order_by, functions=functions):
            kept_functions = tuple(function for function in functions if function.name in used)
            if not kept_functions:
                return _prune(source, used)
            needed = used - {function.name for function in functions}
            needed |= _names(function.sql for function in kept_functions) | _group_columns(partition_by, order_by)
            return replace(operator, input=_narrow(source, needed), functions=kept_functions)


def _prune_aggregate(aggregate: Aggregate, used: frozenset[str]) -> Operator:
    calls = tuple(call for call in aggregate.calls if call.name in used)
    if not aggregate.groups and not calls:
        # Without groups and calls it would be no row instead of one.
        calls = aggregate.calls[:1]
    needed = _names(group.sql for group in aggregate.groups)
    for call in calls:
        needed |= column_names(call.argument) | column_names(call.filter) | column_names(call.order)
    return replace(aggregate, input=_prune(aggregate.input, needed), calls=calls)


def _prune_join(join: Join, used: frozenset[str]) -> Operator:
    condition = column_names(join.condition)
    return replace(
        join,
        left=_narrow(join.left, used | condition | _names(join.left_keys)),
        right=_narrow(join.right, used | condition | _names(join.right_keys)),
    )


def _narrow(operator: Operator, used: Iterable[str]) -> Operator:
    """Return an operator that has the used columns alone."""
    names = frozenset(used)
    pruned = _prune(operator, names & frozenset(output_columns(operator)))
    kept = tuple(name for name in output_columns(operator) if name in names)
    if output_columns(pruned) == kept:
        return pruned
    return Project(pruned, tuple(NamedExpression(name, column_sql(name)) for name in kept))


def _group_columns(partition_by: Iterable[str], order_by: Iterable[SortKey]) -> frozenset[str]:
    return _names(partition_by) | _names(key.sql for key in order_by)


def _names(expressions: Iterable[str]) -> frozenset[str]:
    return frozenset(name for sql in expressions for name in column_names(sql))
