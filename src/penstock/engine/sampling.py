"""The types of the fields that a stream reads: declared, remembered from before, or inferred from a sample."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from penstock.core import json
from penstock.core.errors import InvalidRequest
from penstock.engine.callables import Batch, Item, encode_items, run_steps
from penstock.engine.compile import Split, Tables, apply_steps, fields_read, keys_of, numeric_names
from penstock.engine.decoding import Meta
from penstock.engine.fields import NUMBER, infer
from penstock.engine.reader import columns_of, slices_at_hand
from penstock.engine.reading import Reading
from penstock.engine.saying import first_line
from penstock.engine.stages import Stage
from penstock.engine.values import COST
from penstock.log.event import Event
from penstock.stream.steps import Filter, FlatMap, Map, Retries, Step

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
    found = infer(after_callables(spark, cut, sample), wanted)
    if time_field in wanted and found.get(time_field) == NUMBER:
        found[time_field] = pa.int64() if _all_whole(sample, time_field) else pa.float64()
    types: dict[str, pa.DataType] = {}
    numbers = numeric_names(cut.stream)
    for name in names:
        if name in declared:
            types[name] = arrow_type(spark, name, declared[name])
        elif found.get(name) is not None:
            types[name] = found[name]
        elif name in numbers or name.startswith(("__value_", COST)):
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


def resolve_stages(cut: Split, reader: DataFrame, tables: Tables, sample: Sequence[Event]) -> Split:
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
            before = apply_steps(_sample_frame(reader, tables.reading, sample), rest[:place], tables)
            pure = dataclasses.replace(stage, steps=_without_effects(stage.steps))
            found = infer(_stage_lines(reader.sparkSession, pure, before) if pure.steps else [], names)
        numbers = numeric_names(cut.stream)
        types = []
        for name in names:
            kind = arrow_type(reader.sparkSession, name, declared[name]) if name in declared else found.get(name)
            if kind is None and (name in numbers or name.startswith(("__value_", COST))):
                kind = NUMBER
            if kind is not None or _is_field(cut, name):
                types.append((name, pa.string() if kind is None else kind))
        rest[place] = dataclasses.replace(stage, fields=pa.schema(types))
        given = [name for name, _ in types]
    return dataclasses.replace(cut, rest=tuple(rest))


def _stage_lines(spark: SparkSession, stage: Stage, frame: DataFrame) -> list[bytes]:
    try:
        before = frame.toArrow()
    except Exception as error:
        return _none_inferred(error)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            made = [line.decode() for line in stage.run("sample", before)[0]]
            yield pa.RecordBatch.from_arrays([pa.array(made, pa.string())], names=["line"])

    return _in_worker(spark, run)


def _without_effects(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that only compute, each tried once."""
    kept = [step for step in steps if isinstance(step, Map | FlatMap | Filter)]
    return tuple(dataclasses.replace(step, retries=Retries(0, 0.0, 5.0)) for step in kept)


def _sample_frame(reader: DataFrame, reading: Reading, sample: Sequence[Event]) -> DataFrame:
    """The sample as the reader would give it; nothing, if a callable ends its worker."""
    quiet = dataclasses.replace(reading, steps=_without_effects(reading.steps))
    try:
        table = columns_of(reader.sparkSession, quiet, sample)[0]
    except Exception as error:
        _none_inferred(error)
        table = reading.events.empty_table()
    return reader.sparkSession.createDataFrame(table)


def _is_field(cut: Split, name: str) -> bool:
    """Whether a name that no event has shown can only be a field: it stands alone as a key or an argument."""
    plain = [*keys_of(cut.stream), cut.stream.sink_key, *(a.argument for a in cut.stream.aggregates.values())]
    plain += [gate.cost.expression for gate in cut.stream.gates]
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


def after_callables(spark: SparkSession, cut: Split, sample: Sequence[Event]) -> list[bytes]:
    """The sample as Spark will see it. Calls to the outside are left out: a sample must not have effects."""
    if not cut.first:
        return [event.raw for event in sample]
    steps = _without_effects(cut.first)
    queues = dict(enumerate(cut.stream.sources))
    slices = slices_at_hand(queues, sample)
    meta = Meta(slices, len(slices))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            items = [Item(place, json.decode(piece.columns.data)) for place, piece in enumerate(slices)]
            batch = Batch("sample", items, meta.where, lambda place: meta.describe(place, queues))
            run_steps(steps, batch)
            made = [line.decode() for line in encode_items(batch, "sample")[0]]
            yield pa.RecordBatch.from_arrays([pa.array(made, pa.string())], names=["line"])

    return _in_worker(spark, run)


def _in_worker(spark: SparkSession, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[bytes]:
    """Lines that callables give, run where they cannot harm the driver; none, if they end their worker."""
    try:
        table = spark.range(0, 1, 1, 1).mapInArrow(run, "line string").toArrow()
    except Exception as error:
        return _none_inferred(error)
    return [line.encode() for line in table.column(0).to_pylist()]


def _none_inferred(error: Exception) -> list[bytes]:
    _logger.warning("types could not be inferred from a sample, because a function failed: %s", first_line(error))
    return []


def arrow_type(spark: SparkSession, name: str, kind: str) -> pa.DataType:
    """A type as Arrow has it, by its name in Spark."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed: Any = StructType.fromDDL(f"`{name}` {kind}")
        return to_arrow_type(parsed[0].dataType, timezone="UTC")
    except PySparkException as error:
        raise InvalidRequest(f"the type {kind!r} of field {name!r} is none that Spark knows: {error}") from error
