"""Configuration of the tasks that read a query's events, and the columns that they return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator

from penstock.engine.worker.preaggregate import BLOCK_SCHEMA, Preaggregation
from penstock.engine.worker.task_reports import EventFailure
from penstock.stream.steps import Step

#: Columns that every event keeps through all steps.
SYSTEM_COLUMNS = pa.schema(
    [
        ("__partition", pa.int64()),
        ("__offset", pa.int64()),
        ("__key", pa.string()),
        ("__time", pa.int64()),
        # The watermark of the partition before this event.
        ("__watermark", pa.int64()),
        ("__redriven", pa.bool_()),
    ]
)
EMPTY_SCHEMA = pa.schema([])
#: The column of the whole event as JSON, if a step needs it.
EVENT_JSON = "__event_json"
#: The column of the event's metadata as JSON, if a function after a Spark step takes a context.
METADATA = "__metadata"


@dataclass(frozen=True)
class ReadConfig:
    """How the tasks of a query read. Spark sends it to every worker."""

    conninfo: str = field(repr=False)
    #: 0 in a preview, which has no state and no ledger.
    query_id: int
    query_name: str
    #: The fields that are decoded from the events, with their types.
    fields: pa.Schema
    #: Queue names by id.
    queues: dict[int, str]
    #: A field's path, a function, True for the time that producers give, or None for the time of appending.
    event_time: Any
    lateness_us: int
    #: User-defined functions at the start of the stream, which run in the reader.
    steps: tuple[Step, ...]
    with_event_json: bool
    #: The number under which the tasks report. Each reader of a cycle has another one.
    stage: int = 0
    preaggregation: Preaggregation | None = None
    with_metadata: bool = False
    #: Collects failed events in a preview.
    failed_events: Accumulator[list[EventFailure]] | None = None
    #: Fields that a later step extracts from the whole event. The reader decodes them to find events of another type.
    validated_fields: pa.Schema = EMPTY_SCHEMA
    #: Fields of keys and aggregates, whose text is stored in PostgreSQL. A key has a limit in bytes.
    stored_fields: Mapping[str, int | None] = field(default_factory=dict)
    #: True if the field of the event time is used for nothing else. Then it may have decimals if it is an integer.
    is_time_only: bool = False

    @property
    def output_schema(self) -> pa.Schema:
        return self.event_schema if self.preaggregation is None else BLOCK_SCHEMA

    @property
    def event_schema(self) -> pa.Schema:
        return event_schema(self.fields, self.with_event_json, self.with_metadata)


def event_schema(fields: Iterable[pa.Field], with_event_json: bool, with_metadata: bool) -> pa.Schema:
    optional = [name for name, is_there in ((EVENT_JSON, with_event_json), (METADATA, with_metadata)) if is_there]
    return pa.schema([*SYSTEM_COLUMNS, *[(name, pa.string()) for name in optional], *fields])
