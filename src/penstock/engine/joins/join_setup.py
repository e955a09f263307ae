"""Prepare a stream-stream join: resolve the types of its inputs and build the reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engine.compile.referenced_fields import stored_fields
from penstock.engine.compile.schema.field_types import (
    is_time_only,
    parse_spark_type,
    resolve_fields,
    resolve_udf_stages,
)
from penstock.engine.compile.spark_columns import column_struct_references
from penstock.engine.compile.split_stream import SplitStream, shift_stages, split_stream
from penstock.engine.joins.join_inputs import SIDES, JoinInput, input_streams, is_json_type
from penstock.engine.joins.join_reader import JoinReader
from penstock.engine.joins.join_state import JOIN_OPERATOR, JOIN_SHARDS, JoinState
from penstock.engine.joins.matcher import JoinMatcher
from penstock.engine.joins.pairs import PairEncoder
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.state.operator_state import StateConfig
from penstock.engine.worker.read_config import ReadConfig
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.expression import is_python
from penstock.stream.sql.column_refs import StructReference, struct_references

#: Added to the stage numbers of the right input, so that its reports differ from those of the left input.
_RIGHT_STAGES = 500
#: The prefix of stored types that belong to fields used after the join, and not to fields of the reader.
_OUTPUT_PREFIX = "*."


def prepare_join(
    spark: SparkSession,
    stream: Definition,
    split: SplitStream,
    base: ReadConfig,
    samples: Sequence[Sequence[Event]],
    known: dict[str, str],
    queues: Sequence[dict[int, str]],
    *,
    strict: bool = False,
) -> tuple[JoinReader, ReferenceTables, dict[str, str]]:
    """Return the reader of a join, its reference tables, and the inferred types to store.

    ``split`` has the steps after the join. ``samples`` and ``queues`` have one entry per input. ``known`` has the
    stored types of both inputs. With ``strict``, a field that no event of its sample has is refused.
    """
    join = stream.joined
    assert join is not None  # noqa: S101 - the caller has checked
    tables = ReferenceTables(base)
    inputs: list[JoinInput] = []
    inferred: dict[str, str] = {}
    structs: list[pa.Field] = []
    casts: dict[str, dict[str, str]] = {}
    for side, input_stream in enumerate(input_streams(stream, join)):
        name, sample = SIDES[side], samples[side]
        known_of_side = _without_prefix(known, f"{name}.")
        known_outputs = _without_prefix(known_of_side, _OUTPUT_PREFIX)
        known_fields = {key: kind for key, kind in known_of_side.items() if not key.startswith(_OUTPUT_PREFIX)}
        references_to_side = _references_after_join(split, name)
        input_split = dataclasses.replace(split_stream(input_stream), read_after_join=_members(references_to_side))
        schema, types = resolve_fields(spark, input_split, tables, known_fields, sample, strict=strict)
        config = dataclasses.replace(
            base,
            fields=schema,
            queues=queues[side],
            event_time=input_stream.time.event_time,
            lateness_us=stream.time.lateness_us,
            steps=input_split.reader_steps,
            with_event_json=input_split.with_event_json,
            stage=_RIGHT_STAGES * side,
            with_metadata=input_split.with_metadata,
            stored_fields=stored_fields(input_split),
            is_time_only=is_time_only(input_split),
        )
        references = tables.with_config(config)
        empty = spark.createDataFrame([], from_arrow_schema(config.output_schema))
        input_split, stage_types = resolve_udf_stages(
            input_split, empty, references, known_fields, sample, strict=strict
        )
        types.update(stage_types)
        join_input = JoinInput(side, shift_stages(input_split, _RIGHT_STAGES * side), config, references, sample)
        used = _used_fields(references_to_side, join_input)
        outputs = {**join_input.output_types(empty, used, known_outputs, strict=strict), **known_outputs}
        outputs = {
            key: join_input.without_unread_members(key, kind)
            for key, kind in outputs.items()
            if used is None or key in used
        }
        inputs.append(join_input.with_validated_fields(empty, outputs))
        if sample:
            inferred.update({f"{name}.{key}": kind for key, kind in types.items()})
            inferred.update({f"{name}.{_OUTPUT_PREFIX}{key}": kind for key, kind in outputs.items()})
        if outputs:
            casts[name] = {key: kind for key, kind in outputs.items() if not is_json_type(kind)}
            fields = [
                (key, parse_spark_type(key, kind) if is_json_type(kind) else pa.string())
                for key, kind in outputs.items()
            ]
            structs.append(pa.field(name, pa.struct(fields)))
    config = dataclasses.replace(base, fields=pa.schema(structs))
    state = JoinState(
        StateConfig(config.conninfo, config.query_id, JOIN_OPERATOR, JOIN_SHARDS),
        join.before_us,
        join.after_us,
        join.how == "left",
    )
    matcher = JoinMatcher(config, state, PairEncoder(config.fields, split.with_event_json))
    return JoinReader(inputs, matcher, casts), tables.with_config(config), inferred


def _without_prefix(types: dict[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): kind for name, kind in types.items() if name.startswith(prefix)}


def _references_after_join(split: SplitStream, side: str) -> list[StructReference]:
    """Return the references of the steps after the join to the events of an input."""
    expressions: list[Any] = [split.stream.sink_key]
    for step in split.stream.steps:
        expressions += [getattr(step, name, None) for name in ("expression", "condition", "query")]
        expressions += list(getattr(step, "on", ()))
    references: list[StructReference] = []
    for expression in expressions:
        if expression is not None and not is_python(expression):
            find = struct_references if isinstance(expression, str) else column_struct_references
            references += find(expression, side)
    return references


def _members(references: Sequence[StructReference]) -> dict[str, list[list[str]]] | None:
    """Return the paths below each field; None if a reference is to the whole event."""
    members: dict[str, list[list[str]]] = {}
    for path, is_null_test in references:
        if path:
            members.setdefault(path[0], []).append(path[1:])
        elif not is_null_test:
            return None
    return members


def _used_fields(references: Sequence[StructReference], join_input: JoinInput) -> frozenset[str] | None:
    """Return the fields of an input that the steps after the join use; None for all fields.

    A test such as ``right IS NULL`` uses the fields that Spark gets in any case.
    """
    names = join_input.event_fields.names if join_input.outputs_event else []
    available = [name for name in names if not name.startswith("__")]
    used: set[str] = set()
    for path, is_null_test in references:
        if path:
            used.add(path[0])
        elif available and is_null_test:
            used.update(available)
        else:
            return None
    return frozenset(used)
