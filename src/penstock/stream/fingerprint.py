"""The identity of a query: a description of its stream, its hash, and the differences between two descriptions.

Descriptions are stored. If a new version describes an unchanged stream in other words, its query does not start.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from penstock.core import json
from penstock.stream.aggregates import WindowAggregate
from penstock.stream.code_hash import code_hash
from penstock.stream.definition import Definition
from penstock.stream.expression import describe_expression, is_python
from penstock.stream.gates import Gate, format_amount
from penstock.stream.joins import StreamJoin
from penstock.stream.steps import (
    EnrichCall,
    FilterStep,
    FlatMapStep,
    ForeachStep,
    Lookup,
    MapStep,
    ReferenceTable,
    SqlStep,
    Step,
)
from penstock.stream.time_rules import TimeRules
from penstock.stream.views.describe import describe_operators
from penstock.stream.views.view import MaterializedView
from penstock.stream.windows import format_seconds


def describe(stream: Definition) -> list[str]:
    """Return a line for each part of the stream on which its result depends."""
    lines = [f"from: {', '.join(sorted(stream.sources))}"]
    if stream.joined is not None:
        lines = [*_describe_join(stream.joined), *_describe_lateness(stream.time)]
    if stream.view is not None:
        lines = _describe_view(stream.view)
    lines += [f"type {name}: {kind}" for name, kind in sorted(stream.schema.items())]
    lines += [_describe_step(step) for step in stream.steps]
    if stream.key is not None:
        keys = stream.key if isinstance(stream.key, tuple) else (stream.key,)
        lines.append(f"key: {', '.join(map(_describe_code, keys))}")
    lines += [f"window: {window.describe()}" for window in stream.windows]
    if stream.windows:
        lines += _describe_time(stream.time)
    lines += [_describe_aggregate(name, aggregate) for name, aggregate in stream.aggregates.items()]
    if stream.fold is not None:
        initial = json.encode(stream.fold.initial).decode()
        lines.append(f"reduce: {_describe_code(stream.fold.function)}, beginning with {initial}")
    lines += [f"field {name}: {describe_expression(text)}" for name, text in stream.outputs.items()]
    if stream.condition is not None:
        lines.append(f"having: {describe_expression(stream.condition)}")
    lines += [f"gate {number}: {_describe_gate(gate)}" for number, gate in enumerate(stream.gates, 1)]
    lines += [
        f"function {name}: {_describe_code(each.function)}, returns {each.returns}"
        for name, each in sorted(stream.functions.items())
    ]
    if stream.sink is not None:
        key = "" if stream.sink_key is None else f", key {_describe_code(stream.sink_key)}"
        lines.append(f"to: {stream.sink}{key}")
    return [_on_one_line(line) for line in lines]


def fingerprint(lines: list[str]) -> str:
    """Return the hash of a description. It does not depend on the order of the aggregates."""
    return hashlib.sha256("\n".join(_with_sorted_aggregates(lines)).encode("utf-8", "backslashreplace")).hexdigest()


def with_stored_order(stream: Definition, lines: Sequence[str], columns: Sequence[str]) -> Definition:
    """Return the stream with its aggregates in the order of its tables, which is that of its first start.

    Earlier versions stored descriptions with sorted aggregates. The columns of the tables, if they exist, are in order.
    """
    order = {name: index for index, name in enumerate(columns)}
    if not order.keys() >= stream.aggregates.keys():
        described = {line: index for index, line in enumerate(lines)}
        order = {
            name: described[_on_one_line(_describe_aggregate(name, aggregate))]
            for name, aggregate in stream.aggregates.items()
        }
    names = sorted(stream.aggregates, key=order.__getitem__)
    return dataclasses.replace(stream, aggregates={name: stream.aggregates[name] for name in names})


def changes(before: list[str], after: list[str]) -> str:
    """Return the differences, for a message: ``- filter big: amount > 10`` above ``+ filter big: amount > 20``."""
    before, after = _with_sorted_aggregates(before), _with_sorted_aggregates(after)
    differences: list[str] = []
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        added = list(after[k:m])
        for line in before[i:j]:
            differences.append(f"- {line}")
            same_part = [other for other in added if _label(other) == _label(line)]
            if same_part:
                differences.append(f"+ {same_part[0]}")
                added.remove(same_part[0])
        differences += [f"+ {line}" for line in added]
    return "\n".join(differences)


def is_view(lines: Sequence[str]) -> bool:
    """Return whether a description is that of a materialized view."""
    return bool(lines) and lines[0].startswith("view ")


def keeps_state(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether a view can go on from its state with another definition.

    Indexes and the queue of the changes do not matter to its operators and columns.
    """
    return is_view(before) and _state_lines(before) == _state_lines(after)


def _state_lines(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not line.startswith(("index: ", "to: "))]


def _with_sorted_aggregates(lines: list[str]) -> list[str]:
    """Return a description with its aggregates, which are adjacent, sorted by name."""
    indexes = [index for index, line in enumerate(lines) if line.startswith("aggregate ")]
    if not indexes:
        return lines
    first, end = indexes[0], indexes[-1] + 1
    return [*lines[:first], *sorted(lines[first:end], key=_label), *lines[end:]]


def _on_one_line(line: str) -> str:
    return line.replace("\r", "\\r").replace("\n", "\\n")


def _label(line: str) -> str:
    return line.partition(": ")[0]


def _describe_step(step: Step) -> str:
    match step:
        case MapStep(expression=expression, returns=returns):
            return f"map {step.name}: {_describe_code(expression)}{_describe_types(returns)}"
        case FlatMapStep(expression=expression, returns=returns):
            return f"flatmap {step.name}: {_describe_code(expression)}{_describe_types(returns)}"
        case FilterStep(condition=condition):
            return f"filter {step.name}: {_describe_code(condition)}"
        case ForeachStep(function=function):
            return f"foreach {step.name}: {_describe_code(function)}"
        case EnrichCall(function=function, returns=returns):
            return f"call {step.name}: {_describe_code(function)}{_describe_types(returns)}"
        case SqlStep(query=query, tables=tables):
            described = "".join(f"; {name} is {_describe_table(table)}" for name, table in sorted(tables.items()))
            return f"sql {step.name}: {describe_expression(query)}{described}"
        case Lookup(table=table, on=on, how=how):
            return f"lookup {step.name}: {how} join with {_describe_table(table)} on {', '.join(on)}"


def _describe_table(table: ReferenceTable) -> str:
    if table.query is not None:
        from sqlglot.dialects.postgres import Postgres

        from penstock.stream.sql.sql_text import on_one_line

        return on_one_line(table.query, Postgres)
    return _describe_code(table.frame) if is_python(table.frame) else "a DataFrame"


def _describe_types(types: Mapping[str, str] | None) -> str:
    return f", returns {', '.join(f'{name} {kind}' for name, kind in sorted(types.items()))}" if types else ""


def _describe_time(rules: TimeRules) -> list[str]:
    match rules.event_time:
        case None:
            time = "when an event was appended"
        case True:
            time = "when an event happened, as its producer said"
        case str(field):
            time = f"the field {field}"
        case function:
            time = _describe_code(function)
    return [f"time: {time}", f"grace: {format_seconds(rules.grace_us)}", *_describe_lateness(rules)]


def _describe_lateness(rules: TimeRules) -> list[str]:
    return [f"allowed lateness: {format_seconds(rules.lateness_us)}", f"late events: {rules.late}"]


def _describe_join(join: StreamJoin) -> list[str]:
    before, after = format_seconds(join.before_us), format_seconds(join.after_us)
    lines = [f"join: {join.how}, from {before} before to {after} after"]
    sides = (("left", join.left, join.left_on, join.left_time), ("right", join.right, join.right_on, join.right_time))
    for name, side, on, time in sides:
        lines += [f"{name} {line}" for line in describe(side)]
        lines += [f"{name} on: {', '.join(on)}", f"{name} {_describe_time(TimeRules(time))[0]}"]
    return lines


def _describe_view(view: MaterializedView) -> list[str]:
    lines = [f"view {line}" for line in describe_operators(view.root)]
    for name, stream in view.inputs.items():
        described = [line for line in describe(stream) if line != f"from: {name}"]
        lines += [f"input {name} {line}" for line in described]
    lines += [f"table {name}: {_describe_table(table)}" for name, table in view.references.items()]
    if view.state_ttl_seconds is not None:
        # The state has a time for each group. How long it lives may change.
        lines.append("state: expires")
    return [*lines, *(f"index: {', '.join(columns)}" for columns in view.indexes)]


def _describe_aggregate(name: str, aggregate: WindowAggregate) -> str:
    code = f", code {code_hash(aggregate.argument)}" if is_python(aggregate.argument) else ""
    return f"aggregate {name}: {aggregate.describe()}{code}"


def _describe_gate(gate: Gate) -> str:
    cost = gate.cost
    if cost.expression is not None:
        return f"{gate.describe()}, cost {_describe_code(cost.expression)}"
    return f"{gate.describe()}, cost {format_amount(cost.fixed or 0)}"


def _describe_code(value: Any) -> str:
    text = describe_expression(value)
    return f"{text}, code {code_hash(value)}" if is_python(value) else text
