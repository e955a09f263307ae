"""The types of the fields that a stream reads: declared, remembered from before, or inferred from a sample."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from penstock.core import json
from penstock.core.errors import InvalidRequest
from penstock.engine.callables import Batch, Item, encode_items, run_steps
from penstock.engine.compile import Split, Tables, apply_steps, fields_read, numeric_names
from penstock.engine.fields import NUMBER, infer
from penstock.engine.reading import Reading, columns_of
from penstock.log.event import Event
from penstock.stream.steps import Call, Foreach, Step

_logger = logging.getLogger("penstock.engine")

#: How many of the newest events types are inferred from.
SAMPLE = 1000


def resolve_fields(
    spark: SparkSession, cut: Split, known: Mapping[str, str], sample: Sequence[Event]
) -> tuple[pa.Schema, dict[str, str]]:
    """The columns that the reader gives, and their types as Spark spells them, to be remembered."""
    names = fields_read(cut)
    time_field = _time_field(cut)
    if time_field is not None and time_field not in names:
        names.append(time_field)
    declared = {**known, **cut.stream.schema}
    for step in cut.first:
        declared.update(getattr(step, "returns", None) or {})
    wanted = [name for name in names if name not in declared]
    found = infer(_after_callables(cut, sample), wanted)
    if time_field in wanted and found.get(time_field) == NUMBER:
        found[time_field] = pa.int64() if _all_whole(sample, time_field) else pa.float64()
    types: dict[str, pa.DataType] = {}
    numbers = numeric_names(cut.stream)
    for name in names:
        if name in declared:
            types[name] = _arrow(spark, name, declared[name])
        elif found.get(name) is not None:
            types[name] = found[name]
        elif name in numbers or name.startswith("__value_"):
            types[name] = NUMBER
        elif name == time_field:
            types[name] = pa.string()
        elif _is_field(cut, name):
            types[name] = pa.string()
            _logger.warning(
                "field %r is in none of the newest events: it is taken for text; declare it with "
                "Stream.from_(..., schema={%r: 'double'})",
                name,
                name,
            )
    return pa.schema(list(types.items())), {name: from_arrow_type(kind).simpleString() for name, kind in types.items()}


def resolve_stages(
    cut: Split, reader: DataFrame, tables: Tables, sample: Sequence[Event], known: Mapping[str, str]
) -> Split:
    """The stream with the types of what each Python stage gives, as the sample shows them."""
    rest = list(cut.rest)
    given = tables.reading.fields.names
    for part, (stage, _) in enumerate(cut.parts()):
        if stage is None:
            continue
        place = rest.index(stage)
        stage = rest[place] = dataclasses.replace(stage, copies=frozenset(given))
        declared = {**cut.stream.schema}
        for step in stage.steps:
            declared.update(getattr(step, "returns", None) or {})
        names = fields_read(cut, part)
        found: dict[str, pa.DataType | None] = {}
        if sample and any(name not in declared for name in names):
            before = apply_steps(_sample_frame(reader, tables.reading, sample), rest[:place], tables).toArrow()
            pure = dataclasses.replace(stage, steps=_without_effects(stage.steps))
            found = infer(pure.run("sample", before)[0] if pure.steps else [], names)
        numbers = numeric_names(cut.stream)
        types = []
        for name in names:
            kind = _arrow(reader.sparkSession, name, declared[name]) if name in declared else found.get(name)
            if kind is None and (name in numbers or name.startswith("__value_")):
                kind = NUMBER
            if kind is not None or _is_field(cut, name):
                types.append((name, pa.string() if kind is None else kind))
        rest[place] = dataclasses.replace(stage, fields=pa.schema(types))
        given = [name for name, _ in types]
    return dataclasses.replace(cut, rest=tuple(rest))


def _without_effects(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(step for step in steps if not isinstance(step, Foreach | Call))


def _sample_frame(reader: DataFrame, reading: Reading, sample: Sequence[Event]) -> DataFrame:
    """The sample as the reader would give it."""
    quiet = dataclasses.replace(reading, steps=_without_effects(reading.steps))
    return reader.sparkSession.createDataFrame(columns_of(quiet, sample)[0])


def _is_field(cut: Split, name: str) -> bool:
    """Whether a name that no event has shown can only be a field: it stands alone as a key or an argument."""
    plain = [cut.stream.key, cut.stream.sink_key, *(a.argument for a in cut.stream.aggregates.values())]
    return name in [text for text in plain if isinstance(text, str)] or any(
        name in getattr(step, "on", ()) for step in cut.rest
    )


def _time_field(cut: Split) -> str | None:
    event_time = cut.stream.time.event_time
    if not isinstance(event_time, str) or cut.first:
        return None
    return event_time.split(".")[0]


def _all_whole(sample: Sequence[Event], name: str) -> bool:
    values = [event.data.get(name) for event in sample if isinstance(event.data, dict)]
    return all(isinstance(value, int) for value in values if value is not None)


def _after_callables(cut: Split, sample: Sequence[Event]) -> list[bytes]:
    """The sample as Spark will see it. Calls to the outside are left out: a sample must not have effects."""
    if not cut.first:
        return [event.raw for event in sample]
    steps = _without_effects(cut.first)
    batch = Batch(
        "sample",
        [Item(place, json.decode(event.raw)) for place, event in enumerate(sample)],
        lambda place: (sample[place].partition_id, sample[place].offset),
        lambda place: {"key": sample[place].key, "queue": sample[place].queue, "headers": sample[place].headers},
    )
    run_steps(steps, batch)
    return encode_items(batch, "sample")[0]


def _arrow(spark: SparkSession, name: str, kind: str) -> pa.DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed: Any = StructType.fromDDL(f"`{name}` {kind}")
        return to_arrow_type(parsed[0].dataType, timezone="UTC")
    except PySparkException as error:
        raise InvalidRequest(f"the type {kind!r} of field {name!r} is none that Spark knows: {error}") from error
