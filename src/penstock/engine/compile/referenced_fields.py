"""Finds the fields that the expressions of a stream refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from sqlglot import exp

from penstock.core.errors import InvalidSql
from penstock.core.names import MAX_WINDOW_KEY_BYTES
from penstock.engine.compile.spark_columns import column_fields, spark_column_paths
from penstock.engine.compile.split_stream import ARGUMENT_PREFIX, KEY_FIELD, SplitStream
from penstock.engine.worker.json_values import COST_PREFIX, SINK_KEY
from penstock.stream.definition import Definition
from penstock.stream.expression import is_python
from penstock.stream.sql.column_refs import bare_column, column_names, column_path, column_paths
from penstock.stream.sql.expression_parser import parse_select
from penstock.stream.steps import FilterStep, FlatMapStep, Lookup, MapStep, ReferenceTable, SqlStep, Step, makes_columns

#: Returns the columns of a reference table with this name.
TableColumns: TypeAlias = Callable[[str, ReferenceTable], Sequence[str]]

_COMPUTED_FIELDS = (ARGUMENT_PREFIX, KEY_FIELD, SINK_KEY, COST_PREFIX)
#: Aggregates that keep values of the events.
_VALUE_AGGREGATES = ("min", "max", "first", "last", "count_distinct", "top_k")
_NUMERIC_AGGREGATES = ("sum", "avg", "stddev", "percentile")


class FieldReferences(NamedTuple):
    #: Every name that may be a field of the events, in order.
    names: list[str]
    #: The names that can only be fields: a key, an argument or a lookup's key that no step computes.
    certain: frozenset[str]


def key_expressions(stream: Definition) -> tuple[Any, ...]:
    """The expressions of the key; empty if it is the event's own key."""
    if stream.key is None:
        return ()
    return stream.key if isinstance(stream.key, tuple) else (stream.key,)


def referenced_fields(
    split: SplitStream, part: int = 0, table_columns: TableColumns = lambda name, table: ()
) -> FieldReferences:
    """The fields that the reader (part 0) or the n-th stage must return for the Spark steps that follow it."""
    parts = split.by_stage()
    scope = _Scope()
    for step in parts[part].steps:
        match step:
            case MapStep(expression=expression) | FlatMapStep(expression=expression) | FilterStep(condition=expression):
                scope.refer(expression)
            case SqlStep(query=query):
                scope.refer(query)
            case Lookup(on=on):
                scope.refer_to_fields(on)
        scope.pass_step(step, table_columns)
    stream = split.stream
    if part == len(parts) - 1:
        values = [*key_expressions(stream), *(gate.cost.expression for gate in stream.gates)]
        values += [aggregate.argument for aggregate in stream.aggregates.values()]
        if not stream.windows:
            values.append(stream.sink_key)
        scope.refer_to_fields(split.view_fields)
        for value in values:
            field = bare_column(value) if isinstance(value, str) else None
            if field is None:
                scope.refer(value)
            else:
                scope.refer_to_fields([field])
    names = [name for name in scope.names if not name.startswith("__") or name.startswith(_COMPUTED_FIELDS)]
    return FieldReferences(names, frozenset(scope.certain))


class _Scope:
    """The columns that an expression can refer to after some steps."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.certain: set[str] = set()
        #: Columns that the steps so far have added to the event, in lower case: Spark ignores the case of names.
        self._added: set[str] = set()
        #: False once a step has replaced the event.
        self._has_event = True

    def refer(self, expression: Any) -> None:
        names = _expression_fields(expression)
        self.names.update(dict.fromkeys(name for name in names if name.lower() not in self._added))

    def refer_to_fields(self, names: Sequence[str]) -> None:
        fields = [name for name in names if name.lower() not in self._added]
        self.names.update(dict.fromkeys(fields))
        if self._has_event:
            self.certain.update(fields)

    def pass_step(self, step: Step, table_columns: TableColumns) -> None:
        match step:
            case Lookup(name=name, table=table):
                # The columns to join on are those of the event, which are added by no step.
                joined = {field.lower() for field in step.on}
                self._added |= {column.lower() for column in table_columns(name, table)} - joined
            case SqlStep(query=query, tables=tables) if not makes_columns(step):
                names = [*_aliases(query), *(c for name, table in tables.items() for c in table_columns(name, table))]
                self._added |= {name.lower() for name in names} - {name.lower() for name in _join_columns(query)}
            case MapStep(expression=str(text)) if _has_star(text):
                self._added |= {name.lower() for name in _aliases(text)}
            case MapStep() | FlatMapStep() | SqlStep():
                self._has_event = False


def _has_star(text: str) -> bool:
    tree = _parse(text)
    return tree is None or any(item.is_star for item in tree.selects)


def _aliases(text: str) -> list[str]:
    """The names that a query or a select list gives to what it computes."""
    tree = _parse(text)
    return [] if tree is None else [item.alias for item in tree.selects if isinstance(item, exp.Alias)]


def _join_columns(text: str) -> list[str]:
    """The columns of USING, which the stream has as well."""
    tree = _parse(text)
    joins = [] if tree is None else tree.find_all(exp.Join)
    return [column.name for join in joins for column in join.args.get("using") or []]


def _parse(text: str) -> Any:
    try:
        return parse_select(text)
    except InvalidSql:
        return None  # Spark may be able to parse it


def referenced_members(split: SplitStream, part: int = 0) -> dict[str, list[list[str]]]:
    """The paths below each field that the Spark steps refer to; an empty path if they refer to the whole field.

    Fields that are not in the result may be read as a whole.
    """
    stream, parts = split.stream, split.by_stage()
    members: dict[str, list[list[str]]] = {}
    if part == len(parts) - 1 and split.outputs_event:
        if split.read_after_join is None:
            return {}
        members = {name: list(paths) for name, paths in split.read_after_join.items()}
    expressions: list[Any] = [*key_expressions(stream), stream.sink_key]
    expressions += [gate.cost.expression for gate in stream.gates]
    expressions += [aggregate.argument for aggregate in stream.aggregates.values()]
    for step in parts[part].steps:
        match step:
            case MapStep(expression=expression) | FlatMapStep(expression=expression) | FilterStep(condition=expression):
                expressions.append(expression)
            case SqlStep(query=query):
                expressions.append(query)
    for expression in expressions:
        if expression is None or is_python(expression):
            continue
        paths = column_paths(expression) if isinstance(expression, str) else spark_column_paths(expression)
        if paths is None:
            paths = [[name] for name in _expression_fields(expression)]
        for path in filter(None, paths):
            members.setdefault(path[0], []).append(path[1:])
    if isinstance(stream.time.event_time, str):
        field, *path = stream.time.event_time.split(".")
        members.setdefault(field, []).append(path)
    return members


def stored_fields(split: SplitStream, part: int = 0) -> dict[str, int | None]:
    """The fields of the reader (part 0) or the n-th stage whose text PostgreSQL stores, as it is or in another text.

    These are the fields from which Spark computes keys, and aggregates that keep values. A field that is a key, or
    part of one, is returned with the most bytes that a key may have.
    """
    parts, stream = split.by_stage(), split.stream
    if part < len(parts) - 1:
        return {}  # a later stage decodes the fields again
    expressions = [*key_expressions(stream), *(() if stream.windows else (stream.sink_key,))]
    expressions += [a.argument for a in stream.aggregates.values() if a.kind in _VALUE_AGGREGATES]
    names = {name for expression in expressions for name in _expression_fields(expression)} | {*split.view_fields}
    for step in reversed(parts[part].steps):
        if names:
            names = _input_fields(step, names)
    keys: set[str | None] = set()
    if all(isinstance(step, FilterStep) for step in parts[part].steps):
        keys = {bare_column(key) for key in key_expressions(stream) if isinstance(key, str)}
    return {name: MAX_WINDOW_KEY_BYTES if name in keys else None for name in names}


def _input_fields(step: Step, names: set[str]) -> set[str]:
    """The fields before a step from which it computes the named fields, and perhaps others."""
    match step:
        case MapStep(expression=str(text)):
            tree = _parse(text)
            return set(column_names(text)) if tree is None else _selected_fields(tree, names)
        case MapStep(expression=expression) | FlatMapStep(expression=expression):
            return set(_expression_fields(expression))
        case SqlStep(query=query):
            return set(column_names(query))
    return names


def _selected_fields(tree: Any, names: set[str]) -> set[str]:
    lowered = {name.lower() for name in names}
    selected: set[str] = set()
    for column in tree.selects:
        if column.is_star:
            selected |= names
        elif column.alias_or_name.lower() in lowered:
            selected.update(path[0] for node in column.find_all(exp.Column) if (path := column_path(node)))
    return selected


def _expression_fields(expression: Any) -> list[str]:
    if expression is None or is_python(expression):
        return []
    return column_names(expression) if isinstance(expression, str) else column_fields(expression)


def numeric_fields(stream: Definition) -> set[str]:
    """Fields that an aggregate adds up or a gate uses as cost: numbers, whatever the sample contains."""
    expressions = [gate.cost.expression for gate in stream.gates]
    expressions += [a.argument for a in stream.aggregates.values() if a.kind in _NUMERIC_AGGREGATES]
    columns = [bare_column(expression) for expression in expressions if isinstance(expression, str)]
    return {column for column in columns if column is not None}
