"""The columns that identify a row of a view, as far as they follow from the plan alone."""

from __future__ import annotations

from typing import TypeAlias

from penstock.stream.views.view_plan import (
    Aggregate,
    Explode,
    Filter,
    Join,
    JoinKind,
    Operator,
    Project,
    QueueSource,
    ReferenceSource,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunctions,
    output_columns,
)

#: The columns of a key. None is a column that is stored and hidden.
_Key: TypeAlias = tuple[str | None, ...]


def visible_key(root: Operator) -> tuple[str, ...]:
    """Return the columns of the key that a view shows.

    The engine decides in the same way with the types of the columns. It differs for a latest row per floating-point
    number, which has the key of the row.
    """
    return tuple(name for name in _key_of(root) if name is not None)


def key_fields(root: Operator, queue: str) -> set[str]:
    """Return the fields of a queue's events that are columns of the key of every row that the events appear in."""
    names = visible_key(root)
    return {field for name in names for source, field in _fields_of(root, name) if source == queue}


def _fields_of(operator: Operator, name: str) -> set[tuple[str, str]]:
    """Return the queues and fields whose values are the column, unchanged.

    The inputs of a join are left out, except those whose rows are all in the result.
    """
    match operator:
        case QueueSource(queue=queue, columns=columns):
            return {(queue, column.field) for column in columns if column.name == name}
        case Project(input=source, columns=columns) | Aggregate(input=source, groups=columns):
            sql = next((column.sql for column in columns if column.name == name), "")
            inner = next((each for each in output_columns(source) if sql == f"`{each}`"), None)
            return set() if inner is None else _fields_of(source, inner)
        case UnionAll(inputs=inputs):
            index = output_columns(operator).index(name)
            return {field for each in inputs for field in _fields_of(each, output_columns(each)[index])}
        case Join(left=left, right=right, kind=kind):
            kept = [left] if kind in (JoinKind.LEFT, JoinKind.FULL) else []
            kept += [right] if kind in (JoinKind.RIGHT, JoinKind.FULL) else []
            return {field for each in kept if name in output_columns(each) for field in _fields_of(each, name)}
        case Filter(input=source) | Explode(input=source) | TopN(input=source) | WindowFunctions(input=source):
            return _fields_of(source, name) if name in output_columns(source) else set()
    return set()


def _key_of(operator: Operator) -> _Key:
    match operator:
        case QueueSource() | ViewSource() | ReferenceSource():
            return (None,)
        case Project(input=source, columns=columns):
            kept = {column.sql: column.name for column in reversed(columns)}
            return tuple(kept.get(f"`{name}`") for name in _key_of(source))
        case Filter(input=source) | WindowFunctions(input=source):
            return _key_of(source)
        case Explode(input=source):
            return (*_key_of(source), None)
        case UnionAll():
            return (None,)
        case Aggregate(groups=groups):
            return tuple(group.name for group in groups)
        case Join(left=left, right=right, kind=kind):
            is_one_sided = kind in (JoinKind.SEMI, JoinKind.ANTI)
            return _key_of(left) if is_one_sided else (*_key_of(left), *_key_of(right))
        case TopN(input=source, partition_by=partition_by, limit=limit):
            names = {f"`{name}`": name for name in output_columns(source)}
            if limit == 1 and partition_by and all(sql in names for sql in partition_by):
                return tuple(names[sql] for sql in partition_by)
            return _key_of(source)
