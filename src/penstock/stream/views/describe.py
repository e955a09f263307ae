"""Describes the operators of a view as text, one line each, with their inputs indented below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.stream.views.view_plan import (
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


@dataclass(frozen=True, slots=True)
class OperatorText:
    """An operator in words: its kind, the queue or view that it reads, and what it computes."""

    kind: str
    #: The queue or the view; empty for other operators.
    name: str = ""
    detail: str | None = None

    @property
    def line(self) -> str:
        head = f"{self.kind} {self.name}" if self.name else self.kind
        return head if self.detail is None else f"{head}: {self.detail}"


def describe_operators(root: Operator) -> list[str]:
    """Return a line for each operator; the inputs of an operator follow it."""
    lines = [describe_operator(root).line]
    for source in inputs_of(root):
        lines += [f"  {line}" for line in describe_operators(source)]
    return lines


def name_operators(operators: Sequence[Operator]) -> list[str]:
    """Return short names of operators with state: ``aggregate by o.customer``.

    An outer join with a condition keeps the rows of its sides, and those of an outer side a second time.
    """
    return [
        f"{_name(operator)}: rows with the number of their pairs" if operator in operators[:number] else _name(operator)
        for number, operator in enumerate(operators)
    ]


def _name(operator: Operator) -> str:
    match operator:
        case Aggregate(groups=groups, calls=calls):
            what = "aggregate" if calls else "distinct rows"
            return f"{what}{_plain(' by ', [group.sql for group in groups])}"
        case Join(kind=kind, left_keys=left_keys, right_keys=right_keys):
            keys = [f"{left} = {right}" for left, right in zip(left_keys, right_keys, strict=True)]
            return f"{kind} join{_plain(' on ', keys)}"
        case TopN(partition_by=partition_by, limit=limit):
            return f"first {limit}{_plain(' per ', partition_by)}"
        case WindowFunctions(partition_by=partition_by):
            return f"window functions{_plain(' per ', partition_by)}"
    raise ValueError(f"{operator} keeps no state")


def _plain(prefix: str, expressions: Sequence[str]) -> str:
    return prefix + ", ".join(expressions).replace("`", "") if expressions else ""


def describe_operator(operator: Operator) -> OperatorText:
    match operator:
        case QueueSource(queue=queue, columns=columns):
            return OperatorText("queue", queue, ", ".join(column.field for column in columns))
        case ViewSource(view=view, columns=columns):
            return OperatorText("view", view, ", ".join(column.field for column in columns))
        case ReferenceSource(table=table, columns=columns):
            return OperatorText("reference", table, ", ".join(column.field for column in columns))
        case Project(columns=columns):
            return OperatorText("select", detail=", ".join(f"{column.sql} AS {column.name}" for column in columns))
        case Filter(condition=condition):
            return OperatorText("filter", detail=condition)
        case Explode(name=name, array_sql=array_sql):
            return OperatorText("explode", detail=f"{array_sql} AS {name}")
        case UnionAll():
            return OperatorText("union all")
        case Aggregate(groups=groups, calls=calls):
            by = ", ".join(f"{group.sql} AS {group.name}" for group in groups) or "all rows"
            computed = ", ".join(map(_describe_call, calls)) or "distinct rows"
            return OperatorText("aggregate", detail=f"{computed} by {by}")
        case Join():
            return OperatorText(f"{operator.kind} join", detail=_describe_condition(operator))
        case TopN(partition_by=partition_by, order_by=order_by, limit=limit, rank_name=rank):
            numbered = "" if rank is None else f", numbered as {rank}"
            return OperatorText(f"first {limit}{numbered}", detail=_describe_order(partition_by, order_by))
        case WindowFunctions(partition_by=partition_by, order_by=order_by, functions=functions):
            calls_over = ", ".join(f"{each.sql} {each.frame or ''} AS {each.name}" for each in functions)
            return OperatorText("over", detail=f"{calls_over}; {_describe_order(partition_by, order_by)}")


def _describe_call(call: AggregateCall) -> str:
    arguments = ", ".join(part for part in (call.argument or "*", call.order) if part is not None)
    if call.fraction is not None:
        arguments = f"{arguments}, {call.fraction}"
    distinct = "DISTINCT " if call.is_distinct else ""
    where = "" if call.filter is None else f" FILTER (WHERE {call.filter})"
    return f"{call.function}({distinct}{arguments}){where} AS {call.name}"


def _describe_condition(join: Join) -> str:
    keys = [f"{left} = {right}" for left, right in zip(join.left_keys, join.right_keys, strict=True)]
    conditions = [*keys, *([] if join.condition is None else [join.condition])]
    return " AND ".join(conditions) or "all rows"


def _describe_order(partition_by: tuple[str, ...], order_by: tuple[SortKey, ...]) -> str:
    order = [
        f"{key.sql}{' desc' if key.is_descending else ''} nulls {'first' if key.nulls_first else 'last'}"
        for key in order_by
    ]
    return f"per {', '.join(partition_by) or 'all rows'}, ordered by {', '.join(order) or 'arrival'}"
