"""Compiles a stream without windows: Spark computes one row for each output event."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.compile import exact_decimals
from penstock.engine.compile.key_text import to_key
from penstock.engine.compile.spark_steps import apply_steps, lookup_columns
from penstock.engine.compile.split_stream import SplitStream
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.worker.json_values import COST_PREFIX, NON_OBJECT, SINK_KEY
from penstock.engine.worker.read_config import EMPTY_SCHEMA, EVENT_JSON, METADATA, SYSTEM_COLUMNS


def compile_events(
    split: SplitStream, events: DataFrame, references: ReferenceTables
) -> Callable[[DataFrame, bool], DataFrame]:
    """Compile a stream without windows. ``events`` is a frame with the columns that the reader returns."""

    sink_key = split.stream.sink_key
    fields = split.stages[-1].fields or EMPTY_SCHEMA if split.stages else references.read_config.fields
    copied_fields = {*fields.names} - lookup_columns(events.sparkSession, split.by_stage()[-1].steps, references)

    def transform(frame: DataFrame, is_single_partition: bool) -> DataFrame:
        frame = apply_steps(frame, split.spark_steps, references)
        if sink_key is not None:
            key = exact_decimals.column(frame.sparkSession, sink_key)
            frame = frame.withColumn("__output_key", to_key(frame, [key]))
        else:
            frame = frame.withColumn("__output_key", F.col("__key"))
        costs: list[str] = []
        for index, gate in enumerate(split.stream.gates):
            if gate.cost.expression is not None:
                costs.append(f"{COST_PREFIX}{index}")
                cost = exact_decimals.column(frame.sparkSession, gate.cost.expression)
                frame = frame.withColumn(costs[-1], cost.cast("double"))
        internal = {*SYSTEM_COLUMNS.names, "__output_key", EVENT_JSON, METADATA, SINK_KEY, NON_OBJECT, *costs}
        event_json: list[str] = []
        if split.outputs_event and EVENT_JSON in frame.columns:
            # The whole event, and columns that steps added.
            event_json = [EVENT_JSON]
            internal |= copied_fields
        columns = [f"`{name}`" for name in frame.columns if name not in internal]
        return frame.select("__partition", "__offset", "__output_key", *costs, *event_json, *columns)

    transform(events, True)  # raises errors in expressions now and not in a cycle
    return transform
