"""What makes a query the one that it is: a description of its steps, its hash, and what changed between two."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from penstock.core import json
from penstock.stream.aggregates import Aggregate, spelled
from penstock.stream.code_hash import code_hash
from penstock.stream.definition import Definition, TimeRules
from penstock.stream.expression import is_python
from penstock.stream.gates import Gate, amount_text
from penstock.stream.joins import Join
from penstock.stream.steps import Call, Filter, FlatMap, Foreach, Lookup, Map, Sql, Step, Table
from penstock.stream.windows import seconds_text


def describe(stream: Definition) -> list[str]:
    """The stream, a line a part: what its result depends on and nothing else."""
    lines = [f"from: {', '.join(sorted(stream.sources))}"]
    if stream.joined is not None:
        lines = [*_join(stream.joined), *_rules(stream.time)]
    lines += [f"type {name}: {kind}" for name, kind in sorted(stream.schema.items())]
    lines += [_step(step) for step in stream.steps]
    if stream.key is not None:
        keys = stream.key if isinstance(stream.key, tuple) else (stream.key,)
        lines.append(f"key: {', '.join(map(_expression, keys))}")
    lines += [f"window: {window.describe()}" for window in stream.windows]
    if stream.windows:
        lines += _time(stream.time)
    lines += [_aggregate(name, aggregate) for name, aggregate in stream.aggregates.items()]
    if stream.fold is not None:
        initial = json.encode(stream.fold.initial).decode()
        lines.append(f"reduce: {_expression(stream.fold.function)}, beginning with {initial}")
    lines += [f"field {name}: {spelled(text)}" for name, text in stream.outputs.items()]
    if stream.condition is not None:
        lines.append(f"having: {spelled(stream.condition)}")
    lines += [f"gate {place}: {_gate(gate)}" for place, gate in enumerate(stream.gates, 1)]
    if stream.sink is not None:
        key = "" if stream.sink_key is None else f", key {_expression(stream.sink_key)}"
        lines.append(f"to: {stream.sink}{key}")
    return [_one_line(line) for line in lines]


def fingerprint(lines: list[str]) -> str:
    """The hash of a description; in which order aggregates were named changes nothing."""
    return hashlib.sha256("\n".join(_sorted(lines)).encode("utf-8", "backslashreplace")).hexdigest()


def in_order_of(stream: Definition, lines: Sequence[str], columns: Sequence[str]) -> Definition:
    """A stream with its aggregates in the order of when it was first started: that is how its tables are laid out.

    Descriptions of earlier versions have them sorted; the columns of the tables, once these are made, do not.
    """
    places = {name: place for place, name in enumerate(columns)}
    if not places.keys() >= stream.aggregates.keys():
        described = {line: place for place, line in enumerate(lines)}
        places = {name: described[_one_line(_aggregate(name, how))] for name, how in stream.aggregates.items()}
    names = sorted(stream.aggregates, key=places.__getitem__)
    return dataclasses.replace(stream, aggregates={name: stream.aggregates[name] for name in names})


def changes(before: list[str], after: list[str]) -> str:
    """What differs, for a message: ``- filter big: amount > 10`` above ``+ filter big: amount > 20``."""
    before, after = _sorted(before), _sorted(after)
    told: list[str] = []
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        added = list(after[k:m])
        for line in before[i:j]:
            told.append(f"- {line}")
            same_part = [other for other in added if _label(other) == _label(line)]
            if same_part:
                told.append(f"+ {same_part[0]}")
                added.remove(same_part[0])
        told += [f"+ {line}" for line in added]
    return "\n".join(told)


def _sorted(lines: list[str]) -> list[str]:
    """A description with its aggregates, which stand together, by name."""
    places = [place for place, line in enumerate(lines) if line.startswith("aggregate ")]
    if not places:
        return lines
    first, end = places[0], places[-1] + 1
    return [*lines[:first], *sorted(lines[first:end], key=_label), *lines[end:]]


def _one_line(line: str) -> str:
    return line.replace("\r", "\\r").replace("\n", "\\n")


def _label(line: str) -> str:
    return line.partition(": ")[0]


def _step(step: Step) -> str:
    label = f"{type(step).__name__.lower()} {step.name}"
    match step:
        case Map(expression=what) | FlatMap(expression=what):
            return f"{label}: {_expression(what)}{_returns(step.returns)}"
        case Filter(condition=what) | Foreach(function=what):
            return f"{label}: {_expression(what)}"
        case Call(function=what):
            return f"{label}: {_expression(what)}{_returns(step.returns)}"
        case Sql(query=query, tables=tables):
            return f"{label}: {spelled(query)}" + "".join(f"; {n} is {_table(t)}" for n, t in sorted(tables.items()))
        case Lookup(table=table, on=on, how=how):
            return f"{label}: {how} join with {_table(table)} on {', '.join(on)}"


def _table(table: Table) -> str:
    if table.query is not None:
        return spelled(table.query)
    return _expression(table.frame) if is_python(table.frame) else "a DataFrame"


def _returns(types: Mapping[str, str] | None) -> str:
    return f", returns {', '.join(f'{name} {kind}' for name, kind in sorted(types.items()))}" if types else ""


def _time(rules: TimeRules) -> list[str]:
    match rules.event_time:
        case None:
            time = "when an event was appended"
        case True:
            time = "when an event happened, as its producer said"
        case str(field):
            time = f"the field {field}"
        case function:
            time = _expression(function)
    return [f"time: {time}", f"grace: {seconds_text(rules.grace_us)}", *_rules(rules)]


def _join(join: Join) -> list[str]:
    sides = (("left", join.left, join.left_on, join.left_time), ("right", join.right, join.right_on, join.right_time))
    lines = [f"join: {join.how}, from {seconds_text(join.before_us)} before to {seconds_text(join.after_us)} after"]
    for name, side, on, time in sides:
        lines += [f"{name} {line}" for line in describe(side)]
        lines += [f"{name} on: {', '.join(on)}", f"{name} {_time(TimeRules(time))[0]}"]
    return lines


def _rules(rules: TimeRules) -> list[str]:
    return [
        f"allowed lateness: {seconds_text(rules.lateness_us)}",
        f"late events: {rules.late}",
    ]


def _aggregate(name: str, aggregate: Aggregate) -> str:
    code = f", code {code_hash(aggregate.argument)}" if is_python(aggregate.argument) else ""
    return f"aggregate {name}: {aggregate.describe()}{code}"


def _gate(gate: Gate) -> str:
    cost = gate.cost
    if cost.expression is not None:
        return f"{gate.describe()}, cost {_expression(cost.expression)}"
    return f"{gate.describe()}, cost {amount_text(cost.fixed or 0)}"


def _expression(value: Any) -> str:
    return f"{spelled(value)}, code {code_hash(value)}" if is_python(value) else spelled(value)
