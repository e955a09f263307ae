"""Events that a cycle appends to the sink queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import json
from penstock.core.errors import WindowKeyFailed
from penstock.core.names import MAX_KEY_BYTES, find_key_problem
from penstock.engine.kernels.arrays import IntArray, one_chunk
from penstock.engine.results.output_rows import OutputEvent, OutputRows, to_lines
from penstock.engine.worker.json_rows import encode_rows
from penstock.engine.worker.json_values import COST_PREFIX, decode_rows, strip_internal_fields
from penstock.engine.worker.read_config import EVENT_JSON
from penstock.engine.worker.task_reports import EventFailure, EventRef
from penstock.log.queue import Queue
from penstock.log.storage import chunk
from penstock.log.write.encode.piece import PIECE_EVENTS, Piece

#: A window that a commit closed or corrected: its key, how often late events corrected it, the JSON of its event (None
#: if it is not emitted), and its end if the JSON may lack it. A plain tuple, because a cycle can close very many.
ClosedWindow: TypeAlias = tuple[str, int, str | None, datetime | None]


def windows_to_outputs(windows: Iterable[ClosedWindow]) -> list[OutputEvent]:
    return [
        (key or None, (event if not revision else f'{event[:-1]}, "revision" : {revision}}}').encode())
        for key, revision, event, _ in windows
        if event is not None
    ]


def reject_invalid_keys(table: pa.Table) -> tuple[pa.Table, list[EventFailure]]:
    """Separate the events for which the stream computes a key that no event can have."""
    keys = table.column("__output_key")
    is_invalid = pc.or_(pc.greater(pc.binary_length(keys), MAX_KEY_BYTES), pc.match_substring(keys, "\0"))
    if not pc.any(is_invalid).as_py():
        return table, []
    failures: dict[EventRef, EventFailure] = {}
    events = list(map(EventRef, table.column("__partition").to_pylist(), table.column("__offset").to_pylist()))
    for event, key, is_wrong in zip(events, keys.to_pylist(), is_invalid.to_pylist(), strict=True):
        if is_wrong:
            failures[event] = EventFailure(*event, "to", f"the key of the result {find_key_problem(key)}")
    return table.filter(pa.array([event not in failures for event in events])), list(failures.values())


def table_to_outputs(table: pa.Table, has_internal_fields: bool) -> OutputRows:
    """The output events of a stream without windows, one for each row."""
    keys = table.column("__output_key")
    internal = ("__partition", "__offset", "__output_key", EVENT_JSON)
    fields = [name for name in table.column_names if name not in internal and not name.startswith(COST_PREFIX)]
    if EVENT_JSON not in table.column_names:
        return OutputRows(keys, to_lines(encode_rows(table, fields)))
    lines = table.column(EVENT_JSON)
    if has_internal_fields:
        stripped = [strip_internal_fields(line.encode()).decode() for line in lines.to_pylist()]
        lines = pa.chunked_array([stripped], pa.string())
    if fields:
        merged = [json.encode(row).decode() for row in decode_rows(table, fields, lines.to_pylist())]
        lines = pa.chunked_array([merged], pa.string())
    return OutputRows(keys, to_lines(lines))


def rekey_window(line: bytes, window_key: Any) -> OutputEvent:
    """The event of a closed window with a key from a function of the window, or from one of its fields."""
    window = json.decode(line)
    try:
        key = window_key(window) if callable(window_key) else window.get(window_key)
    except Exception as error:
        raise WindowKeyFailed(
            f".to(..., partition=...) failed for the window {line[:200].decode(errors='replace')}: "
            f"{type(error).__name__}: {error}; correct the function and start the query again"
        ) from error
    return None if key is None else str(key), line


def partition_outputs(
    queue: Queue,
    outputs: OutputRows,
    ids: Sequence[str] | None = None,
    headers: Sequence[dict[str, str] | None] | None = None,
) -> list[Piece]:
    """Divide events into pieces for the partitions of a queue, in order."""
    partitions, numbers = _partition_numbers(queue, outputs.keys)
    order = np.argsort(numbers, kind="stable")
    keys = one_chunk(outputs.keys).take(pa.array(order)).to_pylist()
    ends, text = _line_ends(one_chunk(outputs.lines), order)
    indexes = order.tolist()
    pieces = []
    first = 0
    for partition, count in zip(partitions, np.bincount(numbers).tolist(), strict=True):
        for start in range(first, first + count, PIECE_EVENTS):
            stop = min(start + PIECE_EVENTS, first + count)
            part = indexes[start:stop]
            columns = chunk.ChunkColumns(
                bytes(text[ends[start] : ends[stop] - 1]),
                len(part),
                queue.stored_keys(partition, keys[start:stop]),
                None if ids is None else [ids[index] for index in part],
                headers=None if headers is None else [headers[index] for index in part],
            )
            pieces.append(Piece(queue, partition, part, columns))
        first += count
    return pieces


def _partition_numbers(queue: Queue, keys: pa.ChunkedArray) -> tuple[list[str], IntArray]:
    """The partitions in the order of their first events, and the number of the partition of each event."""
    encoded = one_chunk(keys).dictionary_encode(null_encoding="encode")
    names = [queue.partition_for_event(key, None) for key in encoded.dictionary.to_pylist()]
    partitions = list(dict.fromkeys(names))
    number_of = {name: number for number, name in enumerate(partitions)}
    return partitions, np.array([number_of[name] for name in names], np.int64)[encoded.indices.to_numpy()]


def _line_ends(lines: pa.Array[Any], order: IntArray) -> tuple[list[int], memoryview]:
    """The text of all lines in an order, the position of each of them, and that of the end."""
    if len(order) and not np.array_equal(order, np.arange(len(order))):
        lines = lines.take(pa.array(order))
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return ends.tolist(), memoryview(text)
