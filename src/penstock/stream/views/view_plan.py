"""The operators of a materialized view, as values. A plan needs no Spark session and does no I/O.

Expressions are Spark SQL over the columns of the operator's input, written in backquotes (```b.price` * 2``). Column
names are unique within an operator's output. The engine adds the columns that identify a row, so no operator here names
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """A column that is computed from the input."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source: a field of its events, or a system column such as ``_key`` and ``_time``."""

    name: str
    field: str


@dataclass(frozen=True, slots=True)
class QueueSource:
    """The events of a queue; each is inserted once. The position is that of its occurrence in the statement."""

    queue: str
    columns: tuple[SourceColumn, ...]


@dataclass(frozen=True, slots=True)
class ViewSource:
    """The changes of another view: its rows appear, change and disappear."""

    view: str
    columns: tuple[SourceColumn, ...]


@dataclass(frozen=True, slots=True)
class ReferenceSource:
    """The rows of a reference table. It is joined with rows when these appear; its changes are not followed."""

    table: str
    columns: tuple[SourceColumn, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """Computes columns; all others are dropped."""

    input: Operator
    columns: tuple[NamedExpression, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    input: Operator
    condition: str


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """All windows that contain a time, which is SQL in microseconds."""

    micros_sql: str
    size_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class Explode:
    """One row for each element of an array, such as the sliding windows of an event. Elements must be distinct."""

    input: Operator
    #: The column of the element, in addition to those of the input.
    name: str
    array_sql: str
    #: The windows of which the elements are the starts.
    windows: SlidingWindows | None = None


@dataclass(frozen=True, slots=True)
class UnionAll:
    """The rows of all inputs. Their columns have the same names in the same order."""

    inputs: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function: ``sum(DISTINCT price) FILTER (WHERE price > 10) AS total``.

    The argument of count is None for ``count(*)``.
    """

    name: str
    function: str
    argument: str | None = None
    is_distinct: bool = False
    filter: str | None = None
    #: For min_by and max_by: the expression that is minimal or maximal.
    order: str | None = None
    #: For percentile: the fraction, such as 0.5.
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group. Without groups there is one row for all. Without calls it is DISTINCT."""

    input: Operator
    groups: tuple[NamedExpression, ...]
    calls: tuple[AggregateCall, ...]


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    #: The rows of the left input that have a match, or none. The output has the columns of the left input.
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class Join:
    """Joins on the equality of keys and an optional further condition. The inputs have no column name in common.

    Rows whose key has a null match nothing. Without keys, all rows are compared.
    """

    left: Operator
    right: Operator
    kind: JoinKind
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    #: SQL over the columns of both inputs.
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class SortKey:
    sql: str
    is_descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class TopN:
    """The first n rows of each partition. Ties are broken by the order in which the rows came.

    ``rank_name`` adds the column of the row number, from 1.
    """

    input: Operator
    partition_by: tuple[str, ...]
    order_by: tuple[SortKey, ...]
    limit: int
    rank_name: str | None = None


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """``avg(price) OVER (... ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean``, without its partition and order."""

    name: str
    #: The call, such as ``avg(`price`)`` or ``rank()``.
    sql: str
    #: The frame, such as ``ROWS BETWEEN 9 PRECEDING AND CURRENT ROW``; None for Spark's default.
    frame: str | None = None


@dataclass(frozen=True, slots=True)
class WindowFunctions:
    """Adds columns that are computed over the ordered rows of a partition."""

    input: Operator
    partition_by: tuple[str, ...]
    order_by: tuple[SortKey, ...]
    functions: tuple[WindowFunction, ...]


Operator: TypeAlias = (
    QueueSource
    | ViewSource
    | ReferenceSource
    | Project
    | Filter
    | Explode
    | UnionAll
    | Aggregate
    | Join
    | TopN
    | WindowFunctions
)


def inputs_of(operator: Operator) -> tuple[Operator, ...]:
    match operator:
        case QueueSource() | ViewSource() | ReferenceSource():
            return ()
        case UnionAll(inputs=inputs):
            return inputs
        case Join(left=left, right=right):
            return (left, right)
        case _:
            return (operator.input,)


def walk(operator: Operator) -> Iterator[Operator]:
    """The operators of a plan, inputs first. The position in this order is the number of an operator's state."""
    for source in inputs_of(operator):
        yield from walk(source)
    yield operator


def output_columns(operator: Operator) -> tuple[str, ...]:
    """The names of an operator's columns."""
    match operator:
        case QueueSource(columns=columns) | ViewSource(columns=columns) | ReferenceSource(columns=columns):
            return tuple(column.name for column in columns)
        case Project(columns=columns):
            return tuple(column.name for column in columns)
        case Explode(input=source, name=name):
            return (*output_columns(source), name)
        case UnionAll(inputs=inputs):
            return output_columns(inputs[0])
        case Aggregate(groups=groups, calls=calls):
            return (*(group.name for group in groups), *(call.name for call in calls))
        case Join(left=left, right=right, kind=kind):
            if kind in (JoinKind.SEMI, JoinKind.ANTI):
                return output_columns(left)
            return (*output_columns(left), *output_columns(right))
        case TopN(input=source, rank_name=rank_name):
            return output_columns(source) if rank_name is None else (*output_columns(source), rank_name)
        case WindowFunctions(input=source, functions=functions):
            return (*output_columns(source), *(function.name for function in functions))
        case Filter(input=source):
            return output_columns(source)


def is_append_only(operator: Operator) -> bool:
    """True if the rows of an operator never change or disappear."""
    match operator:
        case QueueSource() | ReferenceSource():
            return True
        case Project() | Filter() | Explode() | UnionAll():
            return all(map(is_append_only, inputs_of(operator)))
        case Join(left=left, right=right, kind=kind):
            if is_reference(right) and kind in LOOKUP_KINDS:
                return is_append_only(left)
            return kind is JoinKind.INNER and all(map(is_append_only, inputs_of(operator)))
        case _:
            return False


def has_expiring_state(root: Operator) -> bool:
    """True if an operator keeps rows of events, which a time to live can delete."""
    stateful = [each for each in walk(root) if isinstance(each, Aggregate | Join | TopN | WindowFunctions)]
    return any(is_append_only(source) for operator in stateful for source in inputs_of(operator))


def first_lookup_of_joined_rows(root: Operator) -> str | None:
    """The name of a reference table that the rows of a join of events are joined with; None if there is none."""
    for join in walk(root):
        if isinstance(join, Join) and is_reference(join.left) != is_reference(join.right):
            rows, table = (join.left, join.right) if is_reference(join.right) else (join.right, join.left)
            if any(map(_is_join_of_events, walk(rows))):
                return next(each.table for each in walk(table) if isinstance(each, ReferenceSource))
    return None


def _is_join_of_events(operator: Operator) -> bool:
    return isinstance(operator, Join) and not any(map(is_reference, inputs_of(operator)))


#: The joins of rows, on the left, with a reference table.
LOOKUP_KINDS: tuple[JoinKind, ...] = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)


def is_reference(operator: Operator) -> bool:
    """True for the rows of a reference table, of which some may be filtered out."""
    match operator:
        case ReferenceSource():
            return True
        case Project(input=source) | Filter(input=source):
            return is_reference(source)
        case _:
            return False
