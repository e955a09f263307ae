"""Splits the steps of a stream into those that run in the reader and those that Spark runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from penstock.core.errors import InvalidRequest
from penstock.engine.worker.json_values import COST_PREFIX, NON_OBJECT, SINK_KEY
from penstock.engine.worker.udf.udf_stage import UdfStage, group_udf_stages, needs_event_json
from penstock.stream.aggregates import WindowAggregate
from penstock.stream.definition import Definition
from penstock.stream.expression import is_python, takes_context
from penstock.stream.gates import ConcurrencyGate, Gate
from penstock.stream.steps import MapStep, Step, makes_columns, runs_in_python

#: Fields that hold what a user-defined function computes: the key, and the argument of an aggregate.
KEY_FIELD = "__key_of"
ARGUMENT_PREFIX = "__value_"


class StageSteps(NamedTuple):
    """The Spark steps that follow a stage; the stage None is the reader."""

    stage: UdfStage | None
    steps: list[Step]


@dataclass(frozen=True)
class SplitStream:
    """A stream whose user-defined functions at the start are separated from the other steps."""

    stream: Definition
    #: User-defined functions that run in the reader.
    reader_steps: tuple[Step, ...]
    #: The other steps. Their user-defined functions are grouped into stages.
    spark_steps: tuple[Step | UdfStage, ...]
    #: True if a step after the reader needs whole events.
    with_event_json: bool
    #: The paths below each field of the result that the steps after a join read; None if they may read anything.
    read_after_join: Mapping[str, Sequence[list[str]]] | None = dataclasses.field(default_factory=dict)
    #: The fields of the result that a view reads.
    view_fields: tuple[str, ...] = ()

    @property
    def outputs_event(self) -> bool:
        """True if the stream's result is the whole event. False if a step replaces it with columns."""
        return not any(makes_columns(step) for step in self.by_stage()[-1].steps)

    @property
    def with_metadata(self) -> bool:
        """True if a function after the reader takes a context."""
        return any(stage.reads_metadata for stage in self.stages)

    @property
    def stages(self) -> list[UdfStage]:
        return [step for step in self.spark_steps if isinstance(step, UdfStage)]

    def by_stage(self) -> list[StageSteps]:
        grouped = [StageSteps(None, [])]
        for step in self.spark_steps:
            if isinstance(step, UdfStage):
                grouped.append(StageSteps(step, []))
            else:
                grouped[-1].steps.append(step)
        return grouped


def split_stream(stream: Definition) -> SplitStream:
    """Split a stream, after turning functions that compute a value into steps."""
    stream = _with_value_step(stream)
    if stream.windows and not (stream.sink_key is None or is_python(stream.sink_key)):
        fields = set(stream.outputs) or {"key", "window_start", "window_end", "value", *stream.aggregates}
        if stream.sink_key not in fields:
            raise InvalidRequest(
                "the key of a closed window must be one of its fields or a function of the window: "
                ".to(queue, partition='count') or .to(queue, partition=lambda window: ...)"
            )
    reader_steps = tuple(takewhile(runs_in_python, stream.steps))
    later = stream.steps[len(reader_steps) :]
    outputs_event = not stream.windows or stream.fold is not None
    stages = group_udf_stages(later, outputs_event)
    return SplitStream(stream, reader_steps, stages, needs_event_json(later, outputs_event))


def split_view_input(stream: Definition, fields: Sequence[str]) -> SplitStream:
    """Split the stream whose events a view reads. The view gets these fields, and no whole events."""
    reader_steps = tuple(takewhile(runs_in_python, stream.steps))
    later = stream.steps[len(reader_steps) :]
    whole_fields: dict[str, list[list[str]]] = {name: [[]] for name in fields}
    return SplitStream(
        stream,
        reader_steps,
        group_udf_stages(later, False),
        needs_event_json(later, False),
        read_after_join=whole_fields,
        view_fields=tuple(fields),
    )


def shift_stages(split: SplitStream, offset: int) -> SplitStream:
    """Add an offset to the numbers of the stages, so that the reports of two inputs differ."""
    steps = [
        dataclasses.replace(step, number=step.number + offset) if isinstance(step, UdfStage) else step
        for step in split.spark_steps
    ]
    return dataclasses.replace(split, spark_steps=tuple(steps))


def _with_value_step(stream: Definition) -> Definition:
    """Add a step that computes functions for a key, a cost or an aggregate's argument, and refer to its fields."""
    functions: dict[str, Callable[..., Any]] = {}
    changes: dict[str, Any] = {}
    if is_python(stream.key):
        functions[KEY_FIELD] = stream.key
        changes["key"] = KEY_FIELD
    if is_python(stream.sink_key) and not stream.windows:
        functions[SINK_KEY] = stream.sink_key
        changes["sink_key"] = SINK_KEY
    gates: list[Gate] = []
    for index, gate in enumerate(stream.gates):
        if is_python(gate.cost.expression) and not isinstance(gate, ConcurrencyGate):
            field = f"{COST_PREFIX}{index}"
            functions[field] = gate.cost.expression
            gate = dataclasses.replace(gate, cost=dataclasses.replace(gate.cost, expression=field))
        gates.append(gate)
    aggregates: dict[str, WindowAggregate] = {}
    for index, (name, aggregate) in enumerate(stream.aggregates.items()):
        if is_python(aggregate.argument):
            field = f"{ARGUMENT_PREFIX}{index}"
            functions[field] = aggregate.argument
            aggregate = dataclasses.replace(aggregate, argument=field)
        aggregates[name] = aggregate
    if not functions:
        return stream
    step = MapStep("values", _FieldAdder(functions))
    return dataclasses.replace(
        stream, steps=(*stream.steps, step), aggregates=aggregates, gates=tuple(gates), **changes
    )


class _FieldAdder:
    """A user-defined function that adds the results of other functions to an event, as fields."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self._functions = [(name, function, takes_context(function)) for name, function in functions.items()]
        self.uses_context = any(with_context for _, _, with_context in self._functions)

    def __call__(self, event: Any, ctx: Any) -> dict[str, Any]:
        fields = dict(event) if isinstance(event, dict) else {NON_OBJECT: event}
        for name, function, with_context in self._functions:
            fields[name] = function(event, ctx) if with_context else function(event)
        return fields
