"""Decodes chunk slices into typed columns, and runs the user-defined functions at the start of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core import json
from penstock.engine.worker.chunk_slices import ChunkSlice
from penstock.engine.worker.event_metadata import EventMetadata
from penstock.engine.worker.event_time import (
    NO_TIME,
    EventTimes,
    check_producer_times,
    parse_event_time,
    parse_event_times,
)
from penstock.engine.worker.json_columns import DEFAULT_NUMBER, JsonColumnDecoder
from penstock.engine.worker.read_config import EVENT_JSON, METADATA, ReadConfig
from penstock.engine.worker.task_reports import EventFailure, PartitionReport
from penstock.engine.worker.udf.call_timeout import UdfWatchdog
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem
from penstock.engine.worker.udf.udf_steps import run_udf_steps
from penstock.stream.expression import takes_context
from penstock.stream.steps import Retries

_Array = np.ndarray[Any, Any]


class _DecodedFields(NamedTuple):
    """The fields of the events that did not fail, and the times of all events."""

    table: pa.Table
    #: The event that each row of the table comes from; None: row by row the same.
    sources: _Array | None
    times: _Array


class EventDecoder:
    def __init__(
        self, config: ReadConfig, reports: Mapping[int, PartitionReport], failures: list[EventFailure]
    ) -> None:
        self._config = config
        self._reports = reports
        self._failures = failures
        #: Events that user-defined filters dropped, by stage.
        self.dropped: Counter[str] = Counter()
        self._time_path = config.event_time.split(".") if isinstance(config.event_time, str) else None
        if self._time_path is not None and not config.steps and self._time_path[0] not in config.fields.names:
            raise ValueError(f"the type of {self._time_path[0]!r} is not known")
        self._decoder = JsonColumnDecoder(pa.schema([*config.fields, *config.validated_fields]), config.stored_fields)
        self._time_decoder: JsonColumnDecoder | None = None
        if config.is_time_only and self._time_path is not None and not config.steps:
            self._time_decoder = _fractional_time_decoder(self._decoder, self._time_path[0])

    def decode(self, slices: Sequence[ChunkSlice]) -> pa.Table:
        """Decode the events of the slices, without those that fail."""
        data = b"\n".join(piece.columns.data for piece in slices)
        metadata = EventMetadata(slices)
        if self._config.steps or callable(self._config.event_time):
            fields = self._decode_through_udfs(metadata, data.split(b"\n"))
        else:
            fields = self._decode_columns(metadata, data)
        return self._to_table(metadata, fields, self._advance_watermarks(metadata, fields.times))

    def _decode_columns(self, metadata: EventMetadata, data: bytes) -> _DecodedFields:
        rows = len(metadata.offsets)
        table, errors = self._decoder.decode(data, rows)
        if errors and self._time_decoder is not None:
            table, errors = self._time_decoder.decode(data, rows)
        for row, error in errors.items():
            self._add_failure(metadata, row, "parse", error)
        times, time_errors = self._read_times(metadata, table)
        for row, error in time_errors.items():
            if row not in errors:
                self._add_failure(metadata, row, "event time", self._name_time_field(error))
        if table.schema != self._decoder.schema:
            # Spark does not read the field of the event time.
            table = table.cast(self._decoder.schema, safe=False)
        if self._config.with_event_json:
            table = table.append_column(EVENT_JSON, pa.array(data.decode().split("\n"), pa.string()))
        failed = errors.keys() | time_errors.keys()
        if not failed:
            return _DecodedFields(table, None, times)
        sources = np.array([row for row in range(rows) if row not in failed], dtype=np.int64)
        return _DecodedFields(table.take(sources), sources, times)

    def _decode_through_udfs(self, metadata: EventMetadata, lines: list[bytes]) -> _DecodedFields:
        """Decode each event, run the functions, and decode their results into columns."""
        values = [json.decode(line) for line in lines]
        batch = UdfBatch(
            self._config.query_name,
            [],
            metadata.event_ref,
            lambda row: metadata.to_dict(row, self._config.queues),
            reload_event=lambda row: json.decode(lines[row]),
            read_line=lines.__getitem__,
        )
        metadata_times = self._metadata_times(metadata)
        if metadata_times is None:
            times = self._compute_times(batch, values)
        else:
            times, time_errors = metadata_times
            for row, error in time_errors.items():
                batch.add_failure(row, "event time", ValueError(error), 1)
        batch.items = [UdfItem(row, value) for row, value in enumerate(values)]
        batch.drop_failed_events()
        run_udf_steps(self._config.steps, batch)
        last_stage = self._config.steps[-1].name if self._config.steps else "event time"
        output = batch.decode_items(last_stage, self._decoder)
        self._failures += batch.failures
        self.dropped.update(batch.dropped)
        table = output.table
        if self._config.with_event_json:
            table = table.append_column(EVENT_JSON, pa.array([line.decode() for line in output.lines], pa.string()))
        return _DecodedFields(table, np.array(output.sources, dtype=np.int64), times)

    def _compute_times(self, batch: UdfBatch, values: list[Any]) -> _Array:
        """Read the event times from decoded events, with a path or a user-defined function."""
        times = np.full(len(values), NO_TIME, dtype=np.int64)
        event_time, path = self._config.event_time, self._time_path
        with_context = path is None and takes_context(event_time)
        with UdfWatchdog(Retries().timeout_seconds) as watchdog:
            for row, value in enumerate(values):
                try:
                    watchdog.start_call()
                    if path is not None:
                        time = _read_path(value, path)
                    elif with_context:
                        time = event_time(value, batch.context("event time", row))
                    else:
                        time = event_time(value)
                    times[row] = parse_event_time(time)
                except Exception as error:
                    named = error if path is None else ValueError(self._name_time_field(str(error)))
                    batch.add_failure(row, "event time", named, 1)
                finally:
                    watchdog.end_call()
        return times

    def _name_time_field(self, error: str) -> str:
        return error if self._time_path is None else f"field {self._config.event_time!r}: {error}"

    def _metadata_times(self, metadata: EventMetadata) -> EventTimes | None:
        """The event times if they are not in the data."""
        if self._config.event_time is None:
            return metadata.appended_times(), {}
        return check_producer_times(metadata.producer_times()) if self._config.event_time is True else None

    def _read_times(self, metadata: EventMetadata, table: pa.Table) -> EventTimes:
        times = self._metadata_times(metadata)
        if times is not None:
            return times
        path = self._time_path or []
        column = table.column(path[0])
        for name in path[1:]:
            column = pa.compute.struct_field(column, name)
        return parse_event_times(column)

    def _advance_watermarks(self, metadata: EventMetadata, times: _Array) -> _Array:
        """The watermark of its partition before each event. It does not depend on how events are batched."""
        watermarks = np.empty(len(times), dtype=np.int64)
        start = 0
        for partition, rows, last_appended_us in metadata.partition_runs():
            stop = start + rows
            report = self._reports[partition.partition_id]
            # Events without a time do not count: a partition that has no others is idle.
            if times[start:stop].max(initial=NO_TIME) != NO_TIME:
                report.last_appended_us = last_appended_us
            high_us = NO_TIME if report.high_us is None else report.high_us
            highest = np.maximum.accumulate(np.concatenate(([high_us], times[start:stop])))
            floor = NO_TIME if partition.floor_us is None else partition.floor_us
            watermarks[start:stop] = np.maximum(highest[:-1] - self._config.lateness_us, floor)
            report.high_us = None if highest[-1] == NO_TIME else int(highest[-1])
            start = stop
        return watermarks

    def _to_table(self, metadata: EventMetadata, fields: _DecodedFields, watermarks: _Array) -> pa.Table:
        sources = fields.sources
        columns: dict[str, Any] = {
            "__partition": metadata.partition_ids,
            "__offset": metadata.offsets,
            "__time": fields.times,
            "__watermark": watermarks,
            "__redriven": metadata.is_redriven(),
        }
        columns = {name: pa.array(array if sources is None else array[sources]) for name, array in columns.items()}
        columns["__key"] = metadata.keys if sources is None else metadata.keys.take(pa.array(sources))
        if self._config.with_metadata:
            rows = range(len(metadata.offsets)) if sources is None else sources.tolist()
            lines = [json.encode(metadata.to_dict(row, self._config.queues)).decode() for row in rows]
            columns[METADATA] = pa.array(lines, pa.string())
        schema = self._config.event_schema
        arrays = [columns[name] if name in columns else fields.table.column(name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema).combine_chunks()

    def _add_failure(self, metadata: EventMetadata, row: int, stage: str, error: str) -> None:
        self._failures.append(EventFailure(*metadata.event_ref(row), stage, error))


def _fractional_time_decoder(decoder: JsonColumnDecoder, name: str) -> JsonColumnDecoder | None:
    """A decoder that accepts decimals in an integer field; None if the field is not one."""
    index = decoder.schema.get_field_index(name)
    if decoder.schema.field(index).type != pa.int64():
        return None
    return JsonColumnDecoder(decoder.schema.set(index, pa.field(name, DEFAULT_NUMBER)), decoder.stored_fields)


def _read_path(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
