"""Validates and encodes events that are pushed as JSON text. The text is stored as it is, without decoding it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.log.partitioner import Partitioner
from penstock.log.write.encode.event_mappings import EventFieldColumns, Picker, build_pieces
from penstock.log.write.encode.piece import Piece

_MAX_CACHED_DECODERS = 256


class JsonEvent(NamedTuple):
    """An event whose data is JSON text."""

    data: bytes
    key: str | None
    id: str | None
    time: datetime | str | None
    headers: dict[str, str] | None


class JsonEvents(msgspec.Struct, frozen=True):
    """Events whose data is JSON text, column by column."""

    data: list[bytes]
    keys: list[Any] | None = None
    ids: list[Any] | None = None
    times: list[Any] | None = None
    headers: list[Any] | None = None
    #: The position of each event in the push, if some of the push were rejected before.
    indices: list[int] | None = None

    @classmethod
    def of(cls, events: Sequence[Any]) -> JsonEvents:
        """Return objects with the fields of :class:`JsonEvent` column by column. A column without values is None."""
        return cls(
            [bytes(event.data) for event in events],
            _column([event.key for event in events]),
            _column([event.id for event in events]),
            _column([event.time for event in events]),
            _column([event.headers for event in events]),
        )

    def __len__(self) -> int:
        return len(self.data)

    def pick(self, which: Sequence[int]) -> JsonEvents:
        columns = (self.keys, self.ids, self.times, self.headers)
        picked = (None if column is None else [column[i] for i in which] for column in columns)
        return JsonEvents([self.data[i] for i in which], *picked)


def _column(values: list[Any]) -> list[Any] | None:
    return values if any([value is not None for value in values]) else None


def encode_json_events(
    partitioner: Partitioner, events: JsonEvents, *, key: str | None = None, max_bytes: int
) -> list[Piece]:
    """Validate and encode events whose data is JSON text."""
    try:
        lines = json.check_lines(events.data)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=problem.index, field="data") from None
    fields = EventFieldColumns(events.keys, events.ids, events.times, events.headers)
    return build_pieces(partitioner, lines, fields, _join_lines, key=key, max_bytes=max_bytes) if lines else []


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
    return build_pieces(partitioner, lines, fields, _join_lines, key=key, max_bytes=max_bytes)


def _join_lines(lines: list[bytes], pickers: Sequence[Picker]) -> list[bytes]:
    return [b"\n".join(pick(lines)) for pick in pickers]


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


def _extract_fields(lines: Sequence[bytes], *fields: str | None) -> EventFieldColumns:
    """Return the values of the top-level fields that hold key, id and time, without decoding the rest."""
    names = tuple(dict.fromkeys(name for name in fields if name is not None))
    if not names:
        return EventFieldColumns()
    values = _decode_fields(lines, names) or _decode_fields_slowly(lines, names)
    keys, ids, times = (None if name is None else values[name] for name in fields)
    if keys is not None:
        # Integers are common keys. Other types are refused by the partitioner.
        keys = [str(key) if type(key) is int else key for key in keys]
    return EventFieldColumns(keys, ids, times)


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
