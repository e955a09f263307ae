"""User-defined functions after a Spark step: they run over Arrow batches in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core import json
from penstock.engine.worker.json_columns import JsonColumnDecoder
from penstock.engine.worker.json_values import decode_rows
from penstock.engine.worker.read_config import (
    EMPTY_SCHEMA,
    EVENT_JSON,
    METADATA,
    SYSTEM_COLUMNS,
    ReadConfig,
    event_schema,
)
from penstock.engine.worker.spark_task import send_stage_report
from penstock.engine.worker.task_reports import EventRef, TaskReport
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem
from penstock.engine.worker.udf.udf_steps import run_udf_steps
from penstock.stream.expression import is_python, takes_context
from penstock.stream.steps import (
    EnrichCall,
    FilterStep,
    FlatMapStep,
    ForeachStep,
    MapStep,
    Step,
    makes_columns,
    runs_in_python,
)


@dataclass(frozen=True)
class UdfStage:
    """Consecutive user-defined functions in the middle of a stream."""

    name: str
    #: The number under which the tasks report. Stage 0 is the reader.
    number: int
    steps: tuple[Step, ...]
    #: True if the stage gets whole events, perhaps with added fields. Otherwise it gets only columns.
    reads_event_json: bool
    #: True if a later step needs whole events.
    writes_event_json: bool
    #: The fields that later steps need, with their types; None until the types are resolved.
    fields: pa.Schema | None = None
    #: True if a later stage needs the metadata of the events.
    writes_metadata: bool = False
    #: Input columns that are copies of fields of the whole event.
    copied_fields: frozenset[str] = frozenset()
    #: Fields that a later step extracts from the whole event. The stage decodes them to find events of another type.
    validated_fields: pa.Schema = EMPTY_SCHEMA
    #: Fields of keys and aggregates, whose text is stored in PostgreSQL. A key has a limit in bytes.
    stored_fields: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def output_schema(self) -> pa.Schema:
        return event_schema(self.fields or [], self.writes_event_json, self.writes_metadata)

    @property
    def reads_metadata(self) -> bool:
        return any(uses_metadata(step) for step in self.steps)

    def apply(self, frame: DataFrame, config: ReadConfig) -> DataFrame:
        return frame.mapInArrow(partial(self._run_task, config), from_arrow_schema(self.output_schema))

    def run(self, query_name: str, table: pa.Table | pa.RecordBatch) -> UdfBatch:
        partitions = table.column("__partition").to_pylist()
        offsets = table.column("__offset").to_pylist()
        metadata = table.column(METADATA) if self.reads_metadata else None
        batch = UdfBatch(
            query_name,
            [UdfItem(row, event) for row, event in enumerate(self._events(table))],
            lambda row: EventRef(partitions[row], offsets[row]),
            lambda row: {} if metadata is None else _decode_metadata(metadata[row].as_py()),
            reload_event=lambda row: self._events(table.slice(row, 1))[0],
            read_line=(lambda row: table.column(EVENT_JSON)[row].as_py().encode()) if self.reads_event_json else None,
        )
        run_udf_steps(self.steps, batch)
        return batch

    def _events(self, table: pa.Table | pa.RecordBatch) -> list[Any]:
        internal = {*SYSTEM_COLUMNS.names, EVENT_JSON, METADATA}
        if self.reads_event_json:
            internal |= self.copied_fields
        fields = [name for name in table.schema.names if name not in internal]
        return decode_rows(table, fields, table.column(EVENT_JSON).to_pylist() if self.reads_event_json else None)

    def _run_task(self, config: ReadConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = JsonColumnDecoder(pa.schema([*(self.fields or []), *self.validated_fields]), self.stored_fields)
        schema = self.output_schema
        copied = [name for name in schema.names if name in SYSTEM_COLUMNS.names or name == METADATA]
        report = TaskReport([], [], {})
        for batch in align_to_events(batches):
            result = self.run(config.query_name, batch)
            output = result.decode_items(self.steps[-1].name, decoder)
            report.failures += result.failures
            report.add_dropped(result.dropped)
            events = batch.select(copied).take(pa.array(output.sources, pa.int64()))
            columns = {**_by_name(output.table), **_by_name(events)}
            if self.writes_event_json:
                columns[EVENT_JSON] = pa.array([line.decode() for line in output.lines], pa.string())
            yield from pa.table([columns[name] for name in schema.names], schema).combine_chunks().to_batches()
        send_stage_report(config, self.number, report)


def _by_name(table: pa.Table | pa.RecordBatch) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def align_to_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rebatch rows so that all rows of an event are in one batch: if one of them fails, all of them fail."""
    pending: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = batch if pending is None else pa.concat_batches([pending, batch])
        partitions, offsets = (rows.column(name).to_numpy() for name in ("__partition", "__offset"))
        other_events = np.flatnonzero((partitions != partitions[-1]) | (offsets != offsets[-1]))
        end = int(other_events[-1]) + 1 if len(other_events) else 0
        if end:
            yield rows.slice(0, end)
        pending = rows.slice(end)
    if pending is not None:
        yield pending


def _decode_metadata(text: str) -> dict[str, Any]:
    metadata: dict[str, Any] = json.decode(text)
    return {**metadata, **{name: datetime.fromisoformat(metadata[name]) for name in ("time", "appended_at")}}


def group_udf_stages(steps: Sequence[Step], outputs_event: bool) -> tuple[Step | UdfStage, ...]:
    """Replace consecutive user-defined functions with stages. ``outputs_event``: the stream's end needs whole events.

    The functions at the start of the stream run in the reader and are not among the steps.
    """
    grouped: list[Step | UdfStage] = []
    has_event_json, number, end = True, 0, 0
    for is_udf, group in groupby(steps, runs_in_python):
        run = tuple(group)
        end += len(run)
        if not is_udf:
            has_event_json = has_event_json and not any(map(makes_columns, run))
            grouped += run
            continue
        number += 1
        stage = UdfStage(
            f"stage {number}",
            number,
            run,
            reads_event_json=has_event_json,
            writes_event_json=needs_event_json(steps[end:], outputs_event),
            writes_metadata=any(map(uses_metadata, steps[end:])),
        )
        grouped.append(stage)
        has_event_json = True
    return tuple(grouped)


def uses_metadata(step: Step) -> bool:
    """True if the step's function takes a context."""
    match step:
        case MapStep(expression=function) | FlatMapStep(expression=function) | FilterStep(condition=function):
            pass
        case ForeachStep(function=function) | EnrichCall(function=function):
            pass
        case _:
            return False
    return is_python(function) and getattr(function, "uses_context", True) and takes_context(function)


def needs_event_json(steps: Sequence[Step], outputs_event: bool) -> bool:
    """True if a step, or the stream's end, needs whole events before a step replaces them with columns."""
    for step in steps:
        if runs_in_python(step):
            return True
        if makes_columns(step):
            return False
    return outputs_event
