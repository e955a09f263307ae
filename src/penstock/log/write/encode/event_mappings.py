"""Validates and encodes events that are pushed as mappings, into pieces by partition.

All errors in events are found here, before the database is used, so that a push is stored completely or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.log.partitioner import Partitioner
from penstock.log.storage.chunk import ChunkColumns
from penstock.log.write.encode.piece import Piece, add_pieces
from penstock.log.write.encode.validation import (
    EVENT_FIELDS,
    MAX_ID_BYTES,
    check_headers,
    check_ids,
    check_shape,
    micros_of,
)

_FIELD_SET = frozenset(EVENT_FIELDS)
_SIMPLE_FIELDS = frozenset(("data", "key", "id"))


class EventFieldColumns(NamedTuple):
    """The fields of events beside the data, column by column. A field that no event has is None."""

    keys: list[Any] | None = None
    ids: list[Any] | None = None
    times: list[Any] | None = None
    headers: list[Any] | None = None


#: Picks the values of one partition's events from a column.
Picker: TypeAlias = Callable[[list[Any]], list[Any]]


def encode_events(
    partitioner: Partitioner, items: Sequence[Any], *, key: str | None = None, max_bytes: int
) -> list[Piece]:
    """Validate and encode mappings with ``data`` and optionally key, id, time and headers."""
    if len(items) == 1:
        piece = _encode_simple(partitioner, items[0], key, max_bytes)
        if piece is not None:
            return [piece]
    data, fields = _to_columns(items)
    return build_pieces(partitioner, data, fields, _encode_data, key=key, max_bytes=max_bytes)


def build_pieces(
    partitioner: Partitioner,
    data: list[Any],
    fields: EventFieldColumns,
    encode: Callable[[list[Any], Sequence[Picker]], list[bytes]],
    *,
    key: str | None,
    max_bytes: int,
) -> list[Piece]:
    """Validate the fields of events and return the pieces of each partition.

    ``encode`` returns the NDJSON of each partition's events, from the data of all events and the pickers of the
    partitions. ``key`` is the key of events without one.
    """
    keys, ids, times, headers = fields
    if ids is not None:
        ids = check_ids(ids)
    if keys is not None and key is not None:
        keys = [key if own_key is None else own_key for own_key in keys]
    by_partition = _group_by_partition(partitioner, key, keys, ids, len(data))
    micros = None if times is None else [micros_of(time, i) for i, time in enumerate(times)]
    if headers is not None:
        headers = [check_headers(header, i) for i, header in enumerate(headers)]
    if keys is None and key is not None:
        keys = [key] * len(data)
    pickers = [_picker(indices, len(data)) for indices in by_partition.values()]
    texts = encode(data, pickers)
    pieces: list[Piece] = []
    for (partition, indices), pick, text in zip(by_partition.items(), pickers, texts, strict=True):
        columns = [None if column is None else pick(column) for column in (ids, micros, headers)]
        stored_keys = partitioner.queue.stored_keys(partition, None if keys is None else pick(keys))
        add_pieces(pieces, partitioner.queue, partition, indices, text, [stored_keys, *columns], max_bytes)
    return pieces


def _encode_simple(partitioner: Partitioner, item: Any, key: str | None, max_bytes: int) -> Piece | None:
    """Encode one event without time and headers, in 2.5 µs in place of 6 µs. Return None if it needs all checks."""
    if type(item) is not dict or "data" not in item or not item.keys() <= _SIMPLE_FIELDS:
        return None
    event_id = item.get("id")
    if event_id is not None and not (
        type(event_id) is str and event_id.isascii() and 0 < len(event_id) <= MAX_ID_BYTES and "\x00" not in event_id
    ):
        return None
    try:
        text = json.encode(item["data"])
    except json.JSONProblem:
        return None
    if len(text) > max_bytes:
        return None
    own_key = item.get("key")
    if own_key is None:
        own_key = key
    elif type(own_key) is not str:
        return None
    if own_key is None and event_id is not None and partitioner.queue.dedup_window_seconds > 0:
        return None
    partition = partitioner.partition_for_key(own_key, 0)
    keys = None if own_key is None else partitioner.queue.stored_keys(partition, (own_key,))
    columns = ChunkColumns(text, 1, keys, None if event_id is None else (event_id,))
    return Piece(partitioner.queue, partition, (0,), columns)


def _to_columns(items: Sequence[Any]) -> tuple[list[Any], EventFieldColumns]:
    uniform = _uniform_columns(items)
    if uniform is not None:
        return uniform
    try:
        data = [item["data"] for item in items]
        optional = [[item.get(name) for item in items] for name in EVENT_FIELDS[1:]]
    except (KeyError, TypeError, AttributeError):
        for i, item in enumerate(items):
            check_shape(item, i)
        raise InvalidRequest("events must be mappings with 'data'") from None
    field_count = len(items)
    columns: list[list[Any] | None] = []
    for column in optional:
        filled = len(column) - column.count(None)
        field_count += filled
        columns.append(column if filled else None)
    if sum(map(len, items)) != field_count:
        for i, item in enumerate(items):
            check_shape(item, i)
    return data, EventFieldColumns(*columns)


def _uniform_columns(items: Sequence[Any]) -> tuple[list[Any], EventFieldColumns] | None:
    """Return the columns of events that all have the fields of the first: the common case, without a Python loop."""
    first = items[0]
    if type(first) is not dict or "data" not in first or not first.keys() <= _FIELD_SET:
        return None
    try:
        if sum(map(len, items)) != len(first) * len(items):
            return None
        columns = {name: list(map(itemgetter(name), items)) for name in first}
    except (KeyError, TypeError, IndexError):
        return None
    data = columns.pop("data")
    if any(None in column for column in columns.values()):
        return None
    return data, EventFieldColumns(*(columns.get(name) for name in EVENT_FIELDS[1:]))


def _group_by_partition(
    partitioner: Partitioner, key: str | None, keys: Sequence[Any] | None, ids: Sequence[Any] | None, count: int
) -> dict[str, Sequence[int]]:
    if keys is None and (key is not None or ids is None):
        return {partitioner.partition_for_key(key, 0): range(count)}
    if keys is None:
        partitions = [partitioner.partition_without_key()] * count
    else:
        partitions = partitioner.partitions_for_keys(keys)
    if ids is not None and key is None:
        partitioner.assign_by_id(partitions, keys, ids)
    if len(set(partitions)) == 1:
        return {partitions[0]: range(count)}
    by_partition: defaultdict[str, list[int]] = defaultdict(list)
    for i, partition in enumerate(partitions):
        by_partition[partition].append(i)
    return cast("dict[str, Sequence[int]]", by_partition)


def _picker(indices: Sequence[int], count: int) -> Picker:
    """Return a function that picks the values at these positions of a column with ``count`` values."""
    if len(indices) == count:
        return lambda column: column
    if len(indices) == 1:
        (only,) = indices
        return lambda column: [column[only]]
    pick = itemgetter(*indices)
    return lambda column: list(pick(column))


def _encode_data(data: list[Any], pickers: Sequence[Picker]) -> list[bytes]:
    """Encode the data as NDJSON, or raise InvalidEvent for the first event that JSON cannot express."""
    try:
        return json.encode_lines([pick(data) for pick in pickers])
    except json.JSONProblem:
        for i, value in enumerate(data):
            try:
                json.encode(value)
            except json.JSONProblem as problem:
                raise InvalidEvent(str(problem), index=i, field="data") from None
        raise
