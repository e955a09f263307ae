"""Events that a cycle appends to the sink queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import json
from penstock.core.errors import WindowKeyFailed
from penstock.core.names import MAX_KEY_BYTES, find_key_problem
from penstock.engine.worker.json_values import COST_PREFIX, decode_rows, strip_internal_fields
from penstock.engine.worker.read_config import EVENT_JSON
from penstock.engine.worker.reports import EventFailure, EventRef
from penstock.log.queue import Queue
from penstock.log.storage import chunk
from penstock.log.write.piece import PIECE_EVENTS, Piece

#: Key and JSON. A plain pair, because a cycle can have very many.
OutputEvent: TypeAlias = tuple[str | None, bytes]


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


def table_to_outputs(table: pa.Table, has_internal_fields: bool) -> list[OutputEvent]:
    """The output events of a stream without windows, one for each row."""
    keys = table.column("__output_key").to_pylist()
    lines = None
    if EVENT_JSON in table.column_names:
        lines = [line.encode() for line in table.column(EVENT_JSON).to_pylist()]
        if has_internal_fields:
            lines = [strip_internal_fields(line) for line in lines]
    internal = ("__partition", "__offset", "__output_key", EVENT_JSON)
    fields = [name for name in table.column_names if name not in internal and not name.startswith(COST_PREFIX)]
    if lines is not None and not fields:
        return list(zip(keys, lines, strict=True))
    return [(key, json.encode(row)) for key, row in zip(keys, decode_rows(table, fields, lines), strict=True)]


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
    events: Sequence[OutputEvent],
    ids: Sequence[str] | None = None,
    headers: Sequence[dict[str, str] | None] | None = None,
) -> list[Piece]:
    """Divide events into pieces for the partitions of a queue, in order."""
    by_partition: dict[str, list[int]] = {}
    for index, (key, _) in enumerate(events):
        by_partition.setdefault(queue.partition_for_event(key, None), []).append(index)
    pieces = []
    for partition, indexes in by_partition.items():
        for start in range(0, len(indexes), PIECE_EVENTS):
            part = indexes[start : start + PIECE_EVENTS]
            keys = queue.stored_keys(partition, [events[index][0] for index in part])
            lines = b"\n".join([events[index][1] for index in part])
            part_ids = None if ids is None else [ids[index] for index in part]
            part_headers = None if headers is None else [headers[index] for index in part]
            columns = chunk.ChunkColumns(lines, len(part), keys, part_ids, headers=part_headers)
            pieces.append(Piece(queue, partition, part, columns))
    return pieces
