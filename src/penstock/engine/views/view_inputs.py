"""The streams of events that a view reads: each has its own reader, steps and field types."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.core.names import MAX_WINDOW_KEY_BYTES
from penstock.engine.compile.referenced_fields import referenced_fields, stored_fields
from penstock.engine.compile.schema.field_types import resolve_fields, resolve_udf_stages
from penstock.engine.compile.spark_steps import apply_steps
from penstock.engine.compile.split_stream import SplitStream, shift_stages, split_view_input
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.views.operators.net_changes import SEQUENCE
from penstock.engine.worker.event_reader import EventReader
from penstock.engine.worker.read_config import EMPTY_SCHEMA, ReadConfig
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.steps import FilterStep
from penstock.stream.views.names.scope import SYSTEM_COLUMNS
from penstock.stream.views.row_key import key_fields
from penstock.stream.views.view import MaterializedView
from penstock.stream.views.view_plan import Operator, QueueSource, ViewSource, walk

#: The stage numbers of an input's reports begin at a multiple of this.
_STAGES_PER_INPUT = 500
#: The text of a row's key in the changes of another view.
ROW_KEY = "__row_key"


@dataclass(frozen=True)
class ViewInput:
    name: str
    split: SplitStream
    read_config: ReadConfig
    references: ReferenceTables

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """The events of a cycle after the input's steps, read by so many tasks."""
        return self.apply_steps(EventReader(self.read_config).frame(spark, tasks))

    def apply_steps(self, events: DataFrame) -> DataFrame:
        return apply_steps(events, self.split.spark_steps, self.references)


@dataclass(frozen=True)
class ChangesInput(ViewInput):
    """The changes of another view, from its changes queue: an update is a row that disappears and one that appears."""

    #: Spark types of the other view's columns by name.
    types: Mapping[str, str]

    def apply_steps(self, events: DataFrame) -> DataFrame:
        rows = F.array(
            F.struct(F.lit(-1).cast("tinyint").alias(WEIGHT), F.col("before").alias("row")),
            F.struct(F.lit(1).cast("tinyint").alias(WEIGHT), F.col("after").alias("row")),
        )
        changes = events.select("__key", "__offset", F.explode(rows).alias("change")).filter("change.row IS NOT NULL")
        weight = F.col(f"change.{WEIGHT}")
        # The changes of a key are in one partition, in order.
        sequence = F.col("__offset") * 2 + (weight + 1).cast("bigint") / 2
        key = F.coalesce("__key", F.lit("")).alias(ROW_KEY)
        return changes.select(key, sequence.cast("bigint").alias(SEQUENCE), weight, *self._columns("change.row"))

    def frame_of_rows(self, spark: SparkSession, rows: Sequence[str]) -> DataFrame:
        """Rows of the other view, in JSON, as rows that appear."""
        numbered = spark.createDataFrame(pa.table({"row": pa.array(rows, pa.string())}))
        row = F.from_json("row", changes_schema(self.types)["after"]).alias("row")
        numbered = numbered.select(row, F.monotonically_increasing_id().alias(SEQUENCE))
        key, weight = F.col(SEQUENCE).cast("string").alias(ROW_KEY), F.lit(1).cast("tinyint").alias(WEIGHT)
        return numbered.select(key, SEQUENCE, weight, *self._columns("row"))

    def _columns(self, row: str) -> list[Column]:
        return [_from_json(F.col(f"{row}.`{name}`"), kind).alias(name) for name, kind in self.types.items()]


def _from_json(value: Column, kind: str) -> Column:
    return F.unbase64(value) if kind == "binary" else value.cast(kind)


def changes_schema(types: Mapping[str, str]) -> dict[str, str]:
    """The types of the fields of a change, as JSON has them. Times and dates are texts."""
    members = ", ".join(f"`{name}`: {_json_type(kind)}" for name, kind in types.items())
    return {"before": f"struct<{members}>", "after": f"struct<{members}>"}


def with_changes_schemas(view: MaterializedView, types: Mapping[str, Mapping[str, str]]) -> MaterializedView:
    """Return the view with the types of the changes that it reads. ``types`` has the columns of other views."""
    changes = {
        name: dataclasses.replace(view.inputs[name], schema=changes_schema(columns)) for name, columns in types.items()
    }
    return dataclasses.replace(view, inputs={**view.inputs, **changes})


def _json_type(kind: str) -> str:
    return "string" if kind.startswith(("timestamp", "date", "binary")) else kind


def fields_of_source(root: Operator, name: str) -> list[str]:
    """The fields that the operators of a view read from a source, without system columns."""
    if any(isinstance(each, ViewSource) and each.view == name for each in walk(root)):
        return ["before", "after"]
    sources = [each for each in walk(root) if isinstance(each, QueueSource) and each.queue == name]
    fields = [column.field for source in sources for column in source.columns]
    return [field for field in dict.fromkeys(fields) if field not in SYSTEM_COLUMNS]


def _key_fields(view: MaterializedView, name: str) -> set[str]:
    """The fields of a source's events that are columns of the view's key."""
    stream = view.inputs[name]
    return key_fields(view.root, name) if all(isinstance(step, FilterStep) for step in stream.steps) else set()


def has_known_types(view: MaterializedView, name: str, stored_types: Mapping[str, str]) -> bool:
    """True if the types of an input's fields are stored or declared, or if it has none."""
    stream = view.inputs[name]
    fields = referenced_fields(split_view_input(stream, fields_of_source(view.root, name))).names
    return all(field in stream.schema or f"{name}.{field}" in stored_types for field in fields)


def prepare_input(
    spark: SparkSession,
    base: ReadConfig,
    view: MaterializedView,
    name: str,
    sample: Sequence[Event],
    stored_types: Mapping[str, str],
    references: ReferenceTables,
    *,
    strict: bool,
    view_types: Mapping[str, str] | None = None,
) -> tuple[ViewInput, dict[str, str]]:
    """Return an input, and the types of its fields that are to be stored.

    ``base`` has the queues of all inputs. ``stored_types`` has the types of all inputs, prefixed with their names.
    ``view_types`` are the types of the columns if the input is another view.
    """
    stream: Definition = view.inputs[name]
    split = split_view_input(stream, fields_of_source(view.root, name))
    number = list(view.inputs).index(name)
    known = {key.removeprefix(f"{name}."): kind for key, kind in stored_types.items() if key.startswith(f"{name}.")}
    config = dataclasses.replace(
        base,
        fields=EMPTY_SCHEMA,
        queues={queue_id: queue for queue_id, queue in base.queues.items() if queue in stream.sources},
        event_time=True,
        steps=split.reader_steps,
        with_event_json=split.with_event_json,
        with_metadata=split.with_metadata,
        stage=number * _STAGES_PER_INPUT,
        stored_fields=stored_fields(split) | dict.fromkeys(_key_fields(view, name), MAX_WINDOW_KEY_BYTES),
    )
    references = references.with_config(config)
    schema, types = resolve_fields(spark, split, references, known, sample, strict=strict)
    config = dataclasses.replace(config, fields=schema)
    references = references.with_config(config)
    frame = EventReader(config).frame(spark, 1)
    split, stage_types = resolve_udf_stages(split, frame, references, known, sample, strict=strict)
    found = {f"{name}.{field}": kind for field, kind in {**types, **stage_types}.items()}
    split = shift_stages(split, config.stage)
    if view_types is not None:
        return ChangesInput(name, split, config, references, view_types), found
    return ViewInput(name, split, config, references), found
