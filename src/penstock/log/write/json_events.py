"""Validates and encodes events that are pushed as JSON text. The text is stored as it is, without decoding it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.log.partitioner import Partitioner
from penstock.log.write.encode import group_by_partition, picker
from penstock.log.write.piece import Piece, add_pieces
from penstock.log.write.validation import check_headers, check_ids, micros_of

_MAX_CACHED_DECODERS = 256


class JsonEvents(msgspec.Struct, frozen=True):
    """Events whose data is JSON text, column by column."""

    data: list[bytes]
    keys: list[Any] | None = None
    ids: list[Any] | None = None
    times: list[Any] | None = None
    headers: list[Any] | None = None
    #: The position of each event in the push, if some of the push were rejected before.
    indices: list[int] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def pick(self, which: Sequence[int]) -> JsonEvents:
        columns = (self.keys, self.ids, self.times, self.headers)
        picked = (None if column is None else [column[i] for i in which] for column in columns)
        return JsonEvents([self.data[i] for i in which], *picked)


class _NamedFields(NamedTuple):
    keys: list[Any] | None = None
    ids: list[Any] | None = None
    times: list[Any] | None = None


def encode_json_events(
    partitioner: Partitioner, events: JsonEvents, *, key: str | None = None, max_bytes: int
) -> list[Piece]:
    """Validate and encode events whose data is JSON text."""
    try:
        lines = json.check_lines(events.data)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=problem.index, field="data") from None
    headers = events.headers
    if headers is not None:
        headers = [check_headers(header, i) for i, header in enumerate(headers)]
    fields = _NamedFields(events.keys, events.ids, events.times)
    return _encode_lines(partitioner, lines, key, fields, headers, max_bytes)


def encode_ndjson(
    partitioner: Partitioner,
    text: bytes,
    *,
    key: str | None = None,
    key_field: str | None = None,
    id_field: str | None = None,
    time_field: str | None = None,
    max_bytes: int,
) -> list[Piece]:
    """Validate and encode NDJSON: each line is the data of one event."""
    for option, name in (("key_field", key_field), ("id_field", id_field), ("time_field", time_field)):
        _check_field_name(option, name)
    try:
        lines = json.split_lines(text)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=problem.index, field="data") from None
    if not lines:
        return []
    fields = _extract_fields(lines, key_field, id_field, time_field)
    return _encode_lines(partitioner, lines, key, fields, None, max_bytes)


def _encode_lines(
    partitioner: Partitioner,
    lines: list[bytes],
    key: str | None,
    fields: _NamedFields,
    headers: list[Any] | None,
    max_bytes: int,
) -> list[Piece]:
    if not lines:
        return []
    keys, ids, times = fields
    if ids is not None:
        ids = check_ids(ids)
    if keys is not None and key is not None:
        keys = [key if own_key is None else own_key for own_key in keys]
    by_partition = group_by_partition(partitioner, key, keys, ids, len(lines))
    if keys is None and key is not None:
        keys = [key] * len(lines)
    micros = None if times is None else [micros_of(time, i) for i, time in enumerate(times)]
    pieces: list[Piece] = []
    queue = partitioner.queue
    has_optional_columns = any(column is not None for column in (ids, micros, headers))
    for partition, indices in by_partition.items():
        if len(indices) == 1 and not has_optional_columns:
            # The common case of a push to many key partitions.
            (only,) = indices
            stored_key = queue.stored_keys(partition, None if keys is None else (keys[only],))
            add_pieces(pieces, queue, partition, indices, lines[only], (stored_key,), max_bytes)
            continue
        pick = picker(indices, len(lines))
        columns = [None if column is None else pick(column) for column in (ids, micros, headers)]
        stored_keys = queue.stored_keys(partition, None if keys is None else pick(keys))
        text = b"\n".join(pick(lines))
        add_pieces(pieces, queue, partition, indices, text, [stored_keys, *columns], max_bytes)
    return pieces


def _check_field_name(option: str, name: object) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise InvalidRequest(f"{option} is the name of a field, and so text, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{option} {name!r} holds a lone surrogate, which no field's name does") from None


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Decoders of named fields. None: a Struct cannot have fields of these names.
_field_decoders: dict[tuple[str, ...], msgspec.json.Decoder[Any] | None] = {}


def _extract_fields(lines: Sequence[bytes], *fields: str | None) -> _NamedFields:
    """Return the values of the top-level fields that hold key, id and time, without decoding the rest."""
    names = tuple(dict.fromkeys(name for name in fields if name is not None))
    if not names:
        return _NamedFields()
    values = _decode_fields(lines, names) or _decode_fields_slowly(lines, names)
    keys, ids, times = (None if name is None else values[name] for name in fields)
    if keys is not None:
        # Integers are common keys. Other types are refused by the partitioner.
        keys = [str(key) if type(key) is int else key for key in keys]
    return _NamedFields(keys, ids, times)


def _decode_fields(lines: Sequence[bytes], names: tuple[str, ...]) -> dict[str, list[Any]] | None:
    """Decode the fields with a Struct of these fields. Return None if that is impossible."""
    if names not in _field_decoders:
        if len(_field_decoders) >= _MAX_CACHED_DECODERS:
            _field_decoders.clear()
        _field_decoders[names] = _make_decoder(names)
    decoder = _field_decoders[names]
    if decoder is None:
        return None
    try:
        rows = decoder.decode_lines(b"\n".join(lines))
    except msgspec.ValidationError:
        return None
    return {name: [getattr(row, f"field{i}") for row in rows] for i, name in enumerate(names)}


def _make_decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any] | None:
    fields = [(f"field{i}", Any, None) for i in range(len(names))]
    rename = {f"field{i}": name for i, name in enumerate(names)}
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Named", fields, rename=rename))
    except ValueError:
        return None


def _decode_fields_slowly(lines: Sequence[bytes], names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Decode fields of any name. Raise InvalidEvent for a line that is not an object, or for an invalid value."""
    values: dict[str, list[Any]] = {name: [] for name in names}
    for i, line in enumerate(lines):
        if not line.startswith(b"{"):
            raise InvalidEvent("must be an object, because fields of it were named", index=i, field="data")
        members = _members.decode(line)
        for name in names:
            value = members.get(name)
            try:
                values[name].append(None if value is None else json.decode(bytes(value)))
            except json.JSONProblem as problem:
                raise InvalidEvent(str(problem), index=i, field="data") from None
    return values
