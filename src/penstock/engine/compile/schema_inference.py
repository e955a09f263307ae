"""The types of the fields that a stream reads: declared, remembered from before, or inferred from a sample."""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from penstock.core import json
from penstock.core.errors import InvalidRequest
from penstock.engine.compile.compile import Split, Tables, apply_steps, fields_read, keys_of, numeric_names
from penstock.engine.spark.errors import first_line
from penstock.engine.worker.chunk_reader import Slice
from penstock.engine.worker.decode import Meta
from penstock.engine.worker.json_columns import NUMBER, infer
from penstock.engine.worker.json_values import COST
from penstock.engine.worker.read_config import Reading
from penstock.engine.worker.reader import columns_of, slices_at_hand
from penstock.engine.worker.udf import Batch, Item, encode_items, run_steps
from penstock.engine.worker.udf_stage import Stage
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.steps import Filter, FlatMap, Map, Retries, Step

_logger = logging.getLogger("penstock.engine")

#: How many of the newest events types are inferred from.
SAMPLE = 1000
#: How long those are looked for that functions survive, if there are others.
_PATIENCE_SECONDS = 10.0
#: What Spark says of a function that has ended its worker; other failures are no event's fault.
_ENDED = re.compile(r"Python worker exited|worker crashed|SystemExit")


def resolve_fields(
    spark: SparkSession, cut: Split, known: Mapping[str, str], sample: Sequence[Event]
) -> tuple[pa.Schema, dict[str, str]]:
    """The columns that the reader gives, and their types as Spark spells them, to be remembered."""
    names = fields_read(cut)
    time_field = _time_field(cut)
    if time_field is not None and time_field not in names:
        names.append(time_field)
    declared = {**known, **declared_types(cut.stream, cut.first)}
    wanted = [name for name in names if name not in declared]
    found = infer(after_callables(spark, cut, sample), wanted) if wanted else {}
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
            taken_for_text(name)
    return pa.schema(list(types.items())), {name: from_arrow_type(kind).simpleString() for name, kind in types.items()}


def taken_for_text(name: str) -> None:
    """Say so of a field whose type nothing tells."""
    _logger.warning(
        "field %r is in none of the newest events: it is taken for text; declare it with "
        "Stream.from_(..., schema={%r: 'double'})",
        name,
        name,
    )


def declared_types(stream: Definition, steps: Iterable[Step]) -> dict[str, str]:
    """The types that were given with the queue and with what functions return, the last one said."""
    declared = dict(stream.schema)
    for step in steps:
        declared.update(getattr(step, "returns", None) or {})
    return declared


def resolve_stages(
    cut: Split, reader: DataFrame, tables: Tables, known: Mapping[str, str], sample: Sequence[Event]
) -> tuple[Split, dict[str, str]]:
    """The stream with the types of what each Python stage gives, as before or as the sample shows them.

    Those to be remembered are the ones that the sample shows, and all of which tables are made.
    """
    rest = list(cut.rest)
    remembered: dict[str, str] = {}
    given = tables.reading.fields.names
    for part, (stage, _) in enumerate(cut.parts()):
        if stage is None:
            continue
        place = rest.index(stage)
        stage = rest[place] = dataclasses.replace(stage, copies=frozenset(given))
        prefix = f"{stage.name}."
        before = {name.removeprefix(prefix): kind for name, kind in known.items() if name.startswith(prefix)}
        declared = {**before, **declared_types(cut.stream, stage.steps)}
        names = fields_read(cut, part)
        found: dict[str, pa.DataType | None] = {}
        if sample and any(name not in declared for name in names):
            found = infer(_stage_lines(stage, rest[:place], reader, tables, sample), names)
        numbers = numeric_names(cut.stream)
        types: dict[str, pa.DataType] = {}
        for name in names:
            kind = arrow_type(reader.sparkSession, name, declared[name]) if name in declared else found.get(name)
            if kind is None and (name in numbers or name.startswith(("__value_", COST))):
                kind = NUMBER
            if kind is None and _is_field(cut, name):
                kind = pa.string()
                _logger.warning(
                    "field %r comes out of stage %r for none of the newest events: it is taken for text; declare it "
                    "with .map(..., returns={%r: 'double'})",
                    name,
                    stage.steps[-1].name,
                    name,
                )
            if kind is not None:
                types[name] = kind
        shown = [name for name in types if cut.stream.windows or found.get(name) is not None]
        remembered.update({f"{prefix}{name}": from_arrow_type(types[name]).simpleString() for name in shown})
        rest[place] = dataclasses.replace(stage, fields=pa.schema(list(types.items())))
        given = list(types)
    return dataclasses.replace(cut, rest=tuple(rest)), remembered


def whole_events(cut: Split, reader: DataFrame, tables: Tables, sample: Sequence[Event]) -> list[bytes]:
    """The sample as it is after the last of the stream's callables."""
    stages = [(place, step) for place, step in enumerate(cut.rest) if isinstance(step, Stage)]
    for place, stage in reversed(stages if sample else []):
        if lines := _stage_lines(stage, cut.rest[:place], reader, tables, sample):
            return lines
    return after_callables(reader.sparkSession, cut, sample)


def _stage_lines(
    stage: Stage, steps: Sequence[Step | Stage], reader: DataFrame, tables: Tables, sample: Sequence[Event]
) -> list[bytes]:
    """What a stage gives for the sample, after the steps before it; nothing, if it has effects alone."""
    stage = dataclasses.replace(stage, steps=_without_effects(stage.steps))
    if not stage.steps:
        return []
    frame = apply_steps(_sample_frame(reader, tables.reading, sample), steps, tables)
    try:
        before = frame.toArrow()
    except Exception as error:
        _warn_of(error)
        return []
    lines = _harmless(before, lambda some: _in_worker(reader.sparkSession, lambda: stage.run("sample", some)[0]))
    return list(chain.from_iterable(lines))


def _without_effects(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that only compute, each tried once."""
    kept = [step for step in steps if isinstance(step, Map | FlatMap | Filter)]
    return tuple(dataclasses.replace(step, retries=Retries(0, 0.0, 5.0)) for step in kept)


def _sample_frame(reader: DataFrame, reading: Reading, sample: Sequence[Event]) -> DataFrame:
    """The sample as the reader would give it, without what ends its worker."""
    quiet = dataclasses.replace(reading, steps=_without_effects(reading.steps), failed=None)
    tables = _harmless(sample, lambda some: columns_of(reader.sparkSession, quiet, some))
    return reader.sparkSession.createDataFrame(pa.concat_tables([reading.events.empty_table(), *tables]))


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

    def lines_of(slices: list[Slice]) -> list[bytes]:
        meta = Meta(slices, len(slices))
        items = [Item(place, json.decode(piece.columns.data)) for place, piece in enumerate(slices)]
        batch = Batch("sample", items, meta.where, lambda place: meta.describe(place, queues))
        run_steps(steps, batch)
        return encode_items(batch, "sample")[0]

    lines = _harmless(sample, lambda some: _in_worker(spark, partial(lines_of, slices_at_hand(queues, some))))
    return list(chain.from_iterable(lines))


def _in_worker(spark: SparkSession, run: Callable[[], list[bytes]]) -> list[bytes]:
    """Lines that callables give, run where they cannot harm the driver."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            made = [line.decode() for line in run()]
            yield pa.RecordBatch.from_arrays([pa.array(made, pa.string())], names=["line"])

    table = spark.range(0, 1, 1, 1).mapInArrow(work, "line string").toArrow()
    return [line.encode() for line in table.column(0).to_pylist()]


def _harmless(sample: Any, attempt: Callable[[Any], Any]) -> list[Any]:
    """What is found with half of a sample or more that does not end its worker: what does is halved, and each tried."""
    found, covered = [], 0
    pieces = deque([sample])
    until = time.monotonic() + _PATIENCE_SECONDS
    while pieces and (len(pieces[0]) >= len(sample) // 2 or time.monotonic() < until):
        piece = pieces.popleft()
        try:
            found.append(attempt(piece))
            covered += len(piece)
            if 2 * covered >= len(sample):
                break
        except Exception as error:
            if piece is sample:
                _warn_of(error)
            if not _ENDED.search(str(error)):
                break
            if len(piece) > 1:
                middle = len(piece) // 2
                pieces += [piece[:middle], piece[middle:]]
    return found


def _warn_of(error: Exception) -> None:
    _logger.warning("types are inferred without some of the sample, because a function failed: %s", first_line(error))


def arrow_type(spark: SparkSession, name: str, kind: str) -> pa.DataType:
    """A type as Arrow has it, by its name in Spark."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed: Any = StructType.fromDDL(f"`{name}` {kind}")
        return to_arrow_type(parsed[0].dataType, timezone="UTC")
    except PySparkException as error:
        raise InvalidRequest(f"the type {kind!r} of field {name!r} is none that Spark knows: {error}") from error
