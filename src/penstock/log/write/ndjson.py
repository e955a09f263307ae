"""Events that come as JSON text: checked and placed without decoding them, but for the fields that were named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.log.write.encode import Piece, Placer, add_pieces, check_headers, check_ids, micros_of, picker, places_of


class Lines(msgspec.Struct, frozen=True):
    """Events whose data is JSON text, a value each, and column by column what goes with it."""

    data: list[bytes]
    keys: list[Any] | None = None
    ids: list[Any] | None = None
    times: list[Any] | None = None
    headers: list[Any] | None = None
    #: Where each stands in what was pushed, if some of that is left out.
    places: list[int] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def pick(self, which: Sequence[int]) -> Lines:
        """Some of them."""
        columns = (self.keys, self.ids, self.times, self.headers)
        picked = (None if column is None else [column[i] for i in which] for column in columns)
        return Lines([self.data[i] for i in which], *picked)


def prepare_lines(placer: Placer, lines: Lines, *, key: str | None = None, max_bytes: int) -> list[Piece]:
    """Check events whose data is text already, and place them without decoding it."""
    try:
        data = json.check_lines(lines.data)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=problem.index, field="data") from None
    headers = lines.headers
    if headers is not None:
        headers = [check_headers(header, i) for i, header in enumerate(headers)]
    return _pieces(placer, data, key, (lines.keys, lines.ids, lines.times, headers), max_bytes)


def prepare_ndjson(
    placer: Placer,
    text: bytes,
    *,
    key: str | None = None,
    key_field: str | None = None,
    id_field: str | None = None,
    time_field: str | None = None,
    max_bytes: int,
) -> list[Piece]:
    """Check events that are already encoded, a JSON value a line, and place them without decoding them."""
    for option, name in (("key_field", key_field), ("id_field", id_field), ("time_field", time_field)):
        _check_field_name(option, name)
    try:
        lines = json.split_lines(text)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=problem.index, field="data") from None
    if not lines:
        return []
    named = _named_fields(lines, key_field, id_field, time_field)
    return _pieces(placer, lines, key, (*named, None), max_bytes)


def _pieces(
    placer: Placer,
    lines: list[bytes],
    key: str | None,
    given: tuple[list[Any] | None, list[Any] | None, list[Any] | None, list[Any] | None],
    max_bytes: int,
) -> list[Piece]:
    """The events of each partition; ``given`` are their keys, ids, times and headers."""
    keys, ids, times, headers = given
    if not lines:
        return []
    if ids is not None:
        ids = check_ids(ids)
    if keys is not None and key is not None:
        keys = [key if k is None else k for k in keys]
    places = places_of(placer, key, keys, ids, len(lines))
    if keys is None and key is not None:
        keys = [key] * len(lines)
    micros = None if times is None else [micros_of(t, i) for i, t in enumerate(times)]
    pieces: list[Piece] = []
    queue, beside = placer.queue, [column for column in (ids, micros, headers) if column is not None]
    for name, indices in places.items():
        if len(indices) == 1 and not beside:
            # Alone in its lane, as most events of a push to many lanes are.
            place = indices[0]
            alone = queue.kept_keys(name, None if keys is None else (keys[place],))
            add_pieces(pieces, queue, name, indices, lines[place], (alone,), max_bytes)
            continue
        pick = picker(indices, len(lines))
        columns = [None if column is None else pick(column) for column in (ids, micros, headers)]
        kept = queue.kept_keys(name, None if keys is None else pick(keys))
        add_pieces(pieces, queue, name, indices, b"\n".join(pick(lines)), [kept, *columns], max_bytes)
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
# What reads the fields of these names; None where their names are too odd for it.
_extractors: dict[tuple[str, ...], msgspec.json.Decoder[Any] | None] = {}


def _named_fields(
    lines: Sequence[bytes], *fields: str | None
) -> tuple[list[Any] | None, list[Any] | None, list[Any] | None]:
    """The values of named top-level fields, read without building the events."""
    names = tuple(dict.fromkeys(name for name in fields if name is not None))
    if not names:
        return None, None, None
    found = _extract(lines, names) or _extract_carefully(lines, names)
    keys, ids, times = (None if name is None else found[name] for name in fields)
    if keys is not None:
        # Numbers are common keys; anything else that is not text is refused with the others.
        keys = [str(k) if type(k) is int else k for k in keys]
    return keys, ids, times


def _extract(lines: Sequence[bytes], names: tuple[str, ...]) -> dict[str, list[Any]] | None:
    """The fields as the parser picks them out; None if it cannot."""
    if names not in _extractors:
        if len(_extractors) >= 256:
            _extractors.clear()
        _extractors[names] = _extractor(names)
    decoder = _extractors[names]
    if decoder is None:
        return None
    try:
        rows = decoder.decode_lines(b"\n".join(lines))
    except msgspec.ValidationError:
        return None
    return {name: [getattr(row, f"field{i}") for row in rows] for i, name in enumerate(names)}


def _extractor(names: tuple[str, ...]) -> msgspec.json.Decoder[Any] | None:
    wanted = [(f"field{i}", Any, None) for i in range(len(names))]
    rename = {f"field{i}": name for i, name in enumerate(names)}
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Named", wanted, rename=rename))
    except ValueError:
        return None


def _extract_carefully(lines: Sequence[bytes], names: tuple[str, ...]) -> dict[str, list[Any]]:
    """The same for names of any kind, and for what the parser refused: it may be a line, or a number in a field."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for i, line in enumerate(lines):
        if not line.startswith(b"{"):
            raise InvalidEvent("must be an object, because fields of it were named", index=i, field="data")
        members = _members.decode(line)
        for name in names:
            value = members.get(name)
            try:
                found[name].append(None if value is None else json.decode(bytes(value)))
            except json.JSONProblem as problem:
                raise InvalidEvent(str(problem), index=i, field="data") from None
    return found
