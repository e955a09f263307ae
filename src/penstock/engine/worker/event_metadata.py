"""The metadata of the events of some chunk slices, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.clock import from_micros
from penstock.engine.cycle_plan import PartitionRange
from penstock.engine.worker.chunk_slices import ChunkSlice
from penstock.engine.worker.task_reports import EventRef
from penstock.log.queue import DEFAULT_KEY

_Array = np.ndarray[Any, Any]


class EventMetadata:
    """Partition, offset, key and times of each event."""

    def __init__(self, slices: Sequence[ChunkSlice]) -> None:
        self._slices = slices
        self._counts = np.array([piece.columns.count for piece in slices], dtype=np.int64)
        self._ends = self._counts.cumsum()
        self.partition_ids = self._repeat([piece.partition.partition_id for piece in slices], np.int64)
        starts = np.array([piece.start_offset for piece in slices], dtype=np.int64)
        rows = int(self._counts.sum())
        self.offsets = np.arange(rows, dtype=np.int64) + np.repeat(starts - self._ends + self._counts, self._counts)

    @cached_property
    def keys(self) -> pa.Array:
        """The keys, null for events without one."""
        return _read_keys(self._slices, self._counts)

    def event_ref(self, row: int) -> EventRef:
        return EventRef(int(self.partition_ids[row]), int(self.offsets[row]))

    def partition_runs(self) -> Iterator[tuple[PartitionRange, int, int]]:
        """Consecutive rows of one partition: the partition, their number, and when the last one was appended."""
        for _, group in groupby(self._slices, key=lambda piece: piece.partition.partition_id):
            pieces = list(group)
            rows = sum(piece.columns.count for piece in pieces)
            yield pieces[0].partition, rows, pieces[-1].appended_us

    def is_redriven(self) -> _Array:
        return self._repeat([piece.is_redriven for piece in self._slices], bool)

    def appended_times(self) -> _Array:
        return self._repeat([piece.appended_us for piece in self._slices], np.int64)

    def producer_times(self) -> _Array:
        """The times that producers gave, or else the times of appending."""
        times = self.appended_times()
        start = 0
        for piece in self._slices:
            if piece.columns.times is not None:
                for row, time in enumerate(piece.columns.times, start):
                    if time is not None:
                        times[row] = time
            start += piece.columns.count
        return times

    def to_dict(self, row: int, queues: Mapping[int, str]) -> dict[str, Any]:
        """The metadata of one event, as user-defined functions get it."""
        index = int(np.searchsorted(self._ends, row, side="right"))
        piece = self._slices[index]
        columns, position = piece.columns, row - int(self._ends[index] - self._counts[index])
        event_id = None if columns.ids is None else columns.ids[position]
        time = None if columns.times is None else columns.times[position]
        appended_at = from_micros(piece.appended_us)
        partition, offset = piece.partition, piece.start_offset + position
        return {
            "queue": queues.get(partition.queue_id),
            "partition": partition.name,
            "partition_id": partition.partition_id,
            "offset": offset,
            "key": self.keys[row].as_py(),
            "id": event_id or f"{partition.partition_id}-{offset}",
            "time": appended_at if time is None else from_micros(time),
            "appended_at": appended_at,
            "headers": (columns.headers[position] if columns.headers else None) or {},
            "is_redriven": piece.is_redriven,
        }

    def _repeat(self, values: Sequence[Any], dtype: Any) -> _Array:
        """One value for each event from one value for each slice."""
        return np.repeat(np.array(values, dtype=dtype), self._counts)


def _read_keys(slices: Sequence[ChunkSlice], counts: _Array) -> pa.Array:
    """A partition that belongs to one key has the key as its name; others store the keys in the chunk."""
    partition_keys = [
        piece.partition.name if piece.partition.is_keyed and piece.partition.name != DEFAULT_KEY else None
        for piece in slices
    ]
    if all(key is not None for key in partition_keys):
        return pa.array(partition_keys, pa.string()).take(pa.array(np.repeat(np.arange(len(slices)), counts)))
    arrays: list[pa.Array] = []
    pending: list[str | None] = []
    for partition_key, piece in zip(partition_keys, slices, strict=True):
        keys: Any = piece.columns.keys
        if partition_key is not None or keys is None:
            pending += [partition_key] * piece.columns.count
        elif isinstance(keys, pa.Array):
            arrays += [pa.array(pending, pa.string()), keys]
            pending = []
        else:
            pending += keys
    return pa.concat_arrays([*arrays, pa.array(pending, pa.string())])
