"""Finds the fields that the expressions of a stream refer to."""

from __future__ import annotations

from typing import Any

from penstock.engine.compile.spark_columns import column_fields
from penstock.engine.compile.split_stream import ARGUMENT_PREFIX, KEY_FIELD, SplitStream
from penstock.engine.worker.json_values import COST_PREFIX, SINK_KEY
from penstock.stream.definition import Definition
from penstock.stream.expression import is_python
from penstock.stream.sql.column_refs import bare_column, column_names
from penstock.stream.steps import Filter, FlatMap, Lookup, Map, Sql

_COMPUTED_FIELDS = (ARGUMENT_PREFIX, KEY_FIELD, SINK_KEY, COST_PREFIX)
_NUMERIC_AGGREGATES = ("sum", "avg", "stddev", "percentile")


def key_expressions(stream: Definition) -> tuple[Any, ...]:
    """The expressions of the key; empty if it is the event's own key."""
    if stream.key is None:
        return ()
    return stream.key if isinstance(stream.key, tuple) else (stream.key,)


def referenced_fields(split: SplitStream, part: int = 0) -> list[str]:
    """The fields that the reader (part 0) or the n-th stage must return for the Spark steps that follow it."""
    names: dict[str, None] = {}

    def add(*expressions: Any) -> None:
        for expression in expressions:
            if expression is not None and not is_python(expression):
                found = column_names(expression) if isinstance(expression, str) else column_fields(expression)
                names.update(dict.fromkeys(found))

    parts = split.by_stage()
    for step in parts[part].steps:
        match step:
            case Map(expression=expression) | FlatMap(expression=expression) | Filter(condition=expression):
                add(expression)
            case Sql(query=query):
                add(query)
            case Lookup(on=on):
                names.update(dict.fromkeys(on))
    stream = split.stream
    if part == len(parts) - 1:
        add(*key_expressions(stream))
        if not stream.windows:
            add(stream.sink_key)
        add(*(gate.cost.expression for gate in stream.gates))
        add(*(aggregate.argument for aggregate in stream.aggregates.values()))
    return [name for name in names if not name.startswith("__") or name.startswith(_COMPUTED_FIELDS)]


def numeric_fields(stream: Definition) -> set[str]:
    """Fields that an aggregate adds up or a gate uses as cost: numbers, whatever the sample contains."""
    expressions = [gate.cost.expression for gate in stream.gates]
    expressions += [a.argument for a in stream.aggregates.values() if a.kind in _NUMERIC_AGGREGATES]
    columns = [bare_column(expression) for expression in expressions if isinstance(expression, str)]
    return {column for column in columns if column is not None}
