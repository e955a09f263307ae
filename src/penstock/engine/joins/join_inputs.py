"""The two inputs of a stream-stream join. Each is read and processed by the steps of its own stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from penstock.engine.compile import exact_decimals
from penstock.engine.compile.key_text import columns_to_text
from penstock.engine.compile.referenced_fields import referenced_members
from penstock.engine.compile.schema.field_types import (
    declared_types,
    parse_spark_type,
    prune_members,
    warn_assumed_type,
)
from penstock.engine.compile.schema.sample import run_all_udfs
from penstock.engine.compile.schema.schema_inference import infer_types
from penstock.engine.compile.schema.unknown_fields import field_names, unknown_field
from penstock.engine.compile.spark_steps import apply_steps, lookup_columns
from penstock.engine.compile.split_stream import SplitStream
from penstock.engine.joins.matcher import LineEncoder
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.state.runs import HASH
from penstock.engine.worker.read_config import EMPTY_SCHEMA, EVENT_JSON, METADATA, SYSTEM_COLUMNS, ReadConfig
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.joins import StreamJoin

SIDES = ("left", "right")


def input_streams(stream: Definition, join: StreamJoin) -> tuple[Definition, Definition]:
    """Return the inputs as streams of their own, with the key and the event time of the join."""

    def as_input(side: Definition, key: Any, event_time: Any) -> Definition:
        return dataclasses.replace(side, key=key, time=dataclasses.replace(stream.time, event_time=event_time))

    left = as_input(join.left, join.left_on, join.left_time)
    return left, as_input(join.right, join.right_on, join.right_time)


class JoinRows(NamedTuple):
    """The events of an input as the matcher gets them, and how it encodes them as JSON."""

    frame: DataFrame
    lines: LineEncoder


@dataclass(frozen=True)
class JoinInput:
    #: 0 for the left input, 1 for the right one.
    side: int
    split: SplitStream
    read_config: ReadConfig
    references: ReferenceTables
    sample: Sequence[Event]

    @property
    def outputs_event(self) -> bool:
        """Whether the join gets whole events, and not columns that a step has computed."""
        return self.split.outputs_event

    @property
    def event_fields(self) -> pa.Schema:
        """The fields of an event that Spark gets as columns."""
        stages = self.split.stages
        return stages[-1].fields or EMPTY_SCHEMA if stages else self.read_config.fields

    def to_join_rows(self, frame: DataFrame) -> JoinRows:
        """Apply the input's steps to the events of the reader."""
        frame = apply_steps(frame, self.split.spark_steps, self.references)
        fields = tuple(self._computed_columns(frame))
        lines = LineEncoder(self.side, fields, self.outputs_event)
        event = F.col(EVENT_JSON) if self.outputs_event else F.lit(None).cast("string")
        values = [F.col(f"`{name}`").alias(column) for name, column in zip(fields, lines.columns, strict=True)]
        rows = frame.select(
            "__partition",
            "__offset",
            "__key",
            "__time",
            ((F.col("__time") < F.col("__watermark")) & ~F.col("__redriven")).alias("__late"),
            F.lit(self.side).cast("tinyint").alias("__side"),
            self._join_key(frame).alias("__k"),
            event.alias("__line"),
            *values,
        )
        return JoinRows(rows.withColumn(HASH, F.xxhash64("__k")), lines)

    def output_types(
        self, frame: DataFrame, used: frozenset[str] | None, known: Collection[str], *, strict: bool
    ) -> dict[str, str]:
        """Return the Spark types of the fields that steps after the join use; ``used`` is None for all fields.

        Types of ``known`` fields were inferred before. With ``strict``, a field that no event has is refused.
        """
        types = self._computed_types(frame)
        if self.outputs_event:
            types = {**self._declared_types(), **types}
            lines: list[bytes] = []
            if used is None or not used <= {*types, *known}:
                lines = run_all_udfs(self.split, frame, self.references, self.sample)
                inferred = infer_types(lines, sorted(field_names(lines) if used is None else used))
                spark_types = {
                    name: from_arrow_type(kind).simpleString() for name, kind in inferred.items() if kind is not None
                }
                types = {**spark_types, **types}
            for name in sorted(() if used is None else used - {*types, *known}):
                if strict and (fields := field_names(lines)) and name not in fields:
                    raise unknown_field(name, fields)
                warn_assumed_type(name, "string")
                types[name] = "string"
        return {name: kind for name, kind in types.items() if used is None or name in used}

    def without_unread_members(self, name: str, kind: str) -> str:
        """Return the type of a field without the members that no step reads."""
        if not self.outputs_event:
            return kind
        members = referenced_members(self.split, len(self.split.stages))
        pruned = prune_members(parse_spark_type(name, kind), members.get(name, [[]]))
        return from_arrow_type(pruned).simpleString()

    def with_validated_fields(self, frame: DataFrame, types: dict[str, str]) -> JoinInput:
        """Return the input with validation of the fields that steps after the join use.

        An event with an invalid field becomes a dead letter when it is read. Otherwise it would fail a cycle when it
        finds a match, possibly hours later.
        """
        if not self.outputs_event:
            return self
        validated = {*self.event_fields.names, *self._computed_types(frame)}
        candidates = {name: _validated_as(name, kind) for name, kind in types.items() if name not in validated}
        fields = pa.schema([(name, kind) for name, kind in candidates.items() if kind is not None])
        stages = self.split.stages
        if not stages:
            config = dataclasses.replace(self.read_config, validated_fields=fields)
            return dataclasses.replace(self, read_config=config)
        last = dataclasses.replace(stages[-1], validated_fields=fields)
        steps = tuple(last if step is stages[-1] else step for step in self.split.spark_steps)
        return dataclasses.replace(self, split=dataclasses.replace(self.split, spark_steps=steps))

    def _declared_types(self) -> dict[str, str]:
        """Return the types that the user has declared for the queue and for user-defined functions."""
        in_stages = chain.from_iterable(stage.steps for stage in self.split.stages)
        return declared_types(self.split.stream, chain(self.split.reader_steps, in_stages))

    def _computed_types(self, frame: DataFrame) -> dict[str, str]:
        computed = apply_steps(frame, self.split.spark_steps, self.references)
        return {name: computed.schema[name].dataType.simpleString() for name in self._computed_columns(computed)}

    def _computed_columns(self, frame: DataFrame) -> list[str]:
        """Return the columns that the input's steps have computed, beside the event or instead of it."""
        system = {*SYSTEM_COLUMNS.names, EVENT_JSON, METADATA, "__k", "__side"}
        if self.outputs_event:
            steps = self.split.by_stage()[-1].steps
            system |= {*self.event_fields.names} - lookup_columns(frame.sparkSession, steps, self.references)
        return [name for name in frame.columns if name not in system]

    def _join_key(self, frame: DataFrame) -> Any:
        """Return the join key as a JSON list; null if a part of it is null."""
        keys: Any = self.split.stream.key
        parts = [exact_decimals.column(frame.sparkSession, key) for key in keys]
        is_complete = F.lit(True)
        for part in parts:
            is_complete = is_complete & part.isNotNull()
        return F.when(is_complete, F.to_json(F.array(*columns_to_text(frame, parts))))


def is_json_type(kind: str) -> bool:
    """Return whether Arrow reads values of the type from JSON as they are written."""
    return not any(part in kind for part in ("timestamp", "date", "binary", "interval", "map"))


def _validated_as(name: str, kind: str) -> pa.DataType | None:
    """Return the type that validates a field in JSON; None if JSON cannot show whether it is valid."""
    if is_json_type(kind) or kind in ("timestamp", "timestamp_ntz"):
        return parse_spark_type(name, kind)
    return pa.string() if kind in ("date", "binary") else None
