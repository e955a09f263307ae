"""Resolves the types of the fields that a stream reads: declared, stored from before, or inferred from a sample."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StructType

from penstock.core.errors import InvalidRequest
from penstock.engine.compile.referenced_fields import (
    numeric_fields,
    referenced_fields,
    referenced_members,
    stored_fields,
)
from penstock.engine.compile.schema.sample import run_reader_udfs, run_stage
from penstock.engine.compile.schema.schema_inference import infer_types
from penstock.engine.compile.schema.unknown_fields import field_names, find_missing_path, unknown_field
from penstock.engine.compile.spark_steps import lookup_columns
from penstock.engine.compile.split_stream import ARGUMENT_PREFIX, SplitStream
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.worker.json_columns import DEFAULT_NUMBER
from penstock.engine.worker.json_values import COST_PREFIX
from penstock.engine.worker.udf.udf_stage import UdfStage
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.steps import EnrichCall, Step

_logger = logging.getLogger("penstock.engine")


def resolve_fields(
    spark: SparkSession,
    split: SplitStream,
    references: ReferenceTables,
    stored: Mapping[str, str],
    sample: Sequence[Event],
    *,
    strict: bool = False,
) -> tuple[pa.Schema, dict[str, str]]:
    """Resolve the types of the fields that the reader decodes. Also returns their Spark types, to be stored.

    With ``strict``, raises UnknownField for a field that is not declared and that no event of the sample has.
    """
    names, certain = referenced_fields(split, 0, partial(references.columns, spark))
    time_field = _time_field(split)
    if time_field is not None and time_field not in names:
        names.append(time_field)
    declared = {**stored, **declared_types(split.stream, split.reader_steps)}
    undeclared = [name for name in names if name not in declared]
    lines = run_reader_udfs(spark, split, sample) if undeclared else []
    inferred = infer_types(lines, undeclared)
    if strict:
        _check_time_field(split, sample)
        _check_known([name for name in undeclared if name in certain], lines, split.reader_steps)
    if time_field in undeclared and inferred.get(time_field) == DEFAULT_NUMBER:
        inferred[time_field] = pa.int64() if _has_only_integers(sample, time_field) else pa.float64()
    types = _resolve_types(split, 0, names, certain, declared, inferred, warn_assumed_type)
    if time_field is not None:
        types.setdefault(time_field, pa.string())
    return pa.schema(list(types.items())), {name: _spark_type(kind) for name, kind in types.items()}


def is_time_only(split: SplitStream) -> bool:
    """True if a field is the event time and no expression refers to it."""
    time_field = _time_field(split)
    return time_field is not None and time_field not in referenced_fields(split).names


def warn_assumed_type(name: str, kind: str) -> None:
    _logger.warning(
        "field %r has a value in none of the newest events, so its type is assumed to be %s; check its name, or "
        "declare it with Stream.from_(..., schema={%r: 'double'})",
        name,
        kind,
        name,
    )


def _check_known(names: Sequence[str], lines: Sequence[bytes], steps: Sequence[Step]) -> None:
    """Raise UnknownField for the first name that no event has after the steps."""
    if any(isinstance(step, EnrichCall) and not step.returns for step in steps):
        return  # the function is not called for a sample, so its fields are not known
    fields = field_names(lines)
    for name in names:
        if fields and name not in fields and not name.startswith("__"):
            raise unknown_field(name, fields)


def _check_time_field(split: SplitStream, sample: Sequence[Event]) -> None:
    """Raise UnknownField if no event has the field of the event time."""
    event_time = split.stream.time.event_time
    if isinstance(event_time, str) and event_time.split(".")[0] not in split.stream.schema:
        missing = find_missing_path(sample, event_time)
        if missing is not None:
            raise missing


def declared_types(stream: Definition, steps: Iterable[Step]) -> dict[str, str]:
    """The types that were declared for the queue and for the results of functions; a later one overrides."""
    declared = dict(stream.schema)
    for step in steps:
        declared.update(getattr(step, "returns", None) or {})
    return declared


def resolve_udf_stages(
    split: SplitStream,
    reader: DataFrame,
    references: ReferenceTables,
    stored: Mapping[str, str],
    sample: Sequence[Event],
    *,
    strict: bool = False,
) -> tuple[SplitStream, dict[str, str]]:
    """Resolve the types of the fields that each stage returns. Also returns the Spark types that are to be stored.

    Types that were inferred are stored. With windows all types are stored, because the result tables depend on them.
    """
    steps = list(split.spark_steps)
    types_to_store: dict[str, str] = {}
    input_fields = references.read_config.fields.names
    parts = split.by_stage()
    for part, (stage, _) in enumerate(parts):
        if stage is None:
            continue
        index = steps.index(stage)
        added = lookup_columns(reader.sparkSession, parts[part - 1].steps, references)
        stage = steps[index] = dataclasses.replace(stage, copied_fields=frozenset(input_fields) - added)
        prefix = f"{stage.name}."
        of_stage = {name.removeprefix(prefix): kind for name, kind in stored.items() if name.startswith(prefix)}
        declared = {**of_stage, **declared_types(split.stream, stage.steps)}
        names, certain = referenced_fields(split, part, partial(references.columns, reader.sparkSession))
        inferred: dict[str, pa.DataType | None] = {}
        if sample and any(name not in declared for name in names):
            lines = run_stage(stage, steps[:index], reader, references, sample)
            inferred = infer_types(lines, names)
            if strict:
                _check_known([n for n in names if n in certain and n not in declared], lines, stage.steps)
        types = _resolve_types(
            split, part, names, certain, declared, inferred, partial(_warn_assumed_stage_type, stage)
        )
        is_stored = [name for name in types if split.stream.windows or inferred.get(name) is not None]
        types_to_store.update({f"{prefix}{name}": _spark_type(types[name]) for name in is_stored})
        steps[index] = dataclasses.replace(
            stage, fields=pa.schema(list(types.items())), stored_fields=stored_fields(split, part)
        )
        input_fields = list(types)
    return dataclasses.replace(split, spark_steps=tuple(steps)), types_to_store


def _resolve_types(
    split: SplitStream,
    part: int,
    names: Sequence[str],
    certain: Collection[str],
    declared: Mapping[str, str],
    inferred: Mapping[str, pa.DataType | None],
    warn: Callable[[str, str], None],
) -> dict[str, pa.DataType]:
    """The types of those names that are certainly fields. ``warn`` is called for types that are assumed."""
    types: dict[str, pa.DataType] = {}
    members = referenced_members(split, part)
    for name in names:
        kind = parse_spark_type(name, declared[name]) if name in declared else inferred.get(name)
        if kind is None and name in certain:
            kind = DEFAULT_NUMBER if _is_numeric(split, name) else pa.string()
            warn(name, "decimal" if kind == DEFAULT_NUMBER else "string")
        if kind is not None:
            types[name] = prune_members(kind, members.get(name, [[]]))
    return types


def prune_members(kind: pa.DataType, paths: Sequence[Sequence[str]]) -> pa.DataType:
    """The type without members of structs that no path leads to: what nobody reads must not make an event invalid."""
    if not all(paths):
        return kind
    if pa.types.is_list(kind):
        return pa.list_(prune_members(kind.value_type, paths))
    if not pa.types.is_struct(kind):
        return kind
    kept = []
    for member in kind:
        inner = [path[1:] for path in paths if path[0].lower() == member.name.lower()]
        if inner:
            kept.append(member.with_type(prune_members(member.type, inner)))
    return pa.struct(kept) if kept else kind


def _warn_assumed_stage_type(stage: UdfStage, name: str, kind: str) -> None:
    _logger.warning(
        "stage %r returns the field %r for none of the newest events, so its type is assumed to be %s; check its name, "
        "or declare it with .map(..., returns={%r: 'double'})",
        stage.steps[-1].name,
        name,
        kind,
        name,
    )


def _is_numeric(split: SplitStream, name: str) -> bool:
    return name in numeric_fields(split.stream) or name.startswith((ARGUMENT_PREFIX, COST_PREFIX))


def _time_field(split: SplitStream) -> str | None:
    event_time = split.stream.time.event_time
    if not isinstance(event_time, str) or split.reader_steps:
        return None
    return event_time.split(".")[0]


def _has_only_integers(sample: Sequence[Event], name: str) -> bool:
    values = [event.data.get(name) for event in sample if isinstance(event.data, dict)]
    return all(isinstance(value, int) for value in values if value is not None)


def parse_spark_type(name: str, kind: str) -> pa.DataType:
    """The Arrow type of a field whose type is declared in Spark's syntax."""

    try:
        parsed: Any = StructType.fromDDL(f"`{name}` {kind}")
        return to_arrow_type(parsed[0].dataType, timezone="UTC")
    except PySparkException as error:
        raise InvalidRequest(f"the type {kind!r} of field {name!r} is not a Spark type: {error}") from error


def _spark_type(kind: pa.DataType) -> str:
    return from_arrow_type(kind).simpleString()
