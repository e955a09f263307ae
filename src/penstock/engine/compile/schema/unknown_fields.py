"""Fields that a stream uses and that no event of a sample has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from penstock.core.errors import UnknownField
from penstock.core.suggestions import closest_names, describe_known
from penstock.log.event import Event


def field_names(lines: Iterable[bytes]) -> set[str]:
    """The names of the fields of events in JSON."""
    names: set[str] = set()
    for line in lines:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(event, dict):
            names |= event.keys()
    return names


def find_missing_path(sample: Sequence[Event], path: str) -> UnknownField | None:
    """The error for the path of a nested field, 'meta.at', that no event has; None if an event has it."""
    values: list[Any] = [event.data for event in sample]
    for name in path.split("."):
        objects = [value for value in values if isinstance(value, dict)]
        if objects and not any(name in each for each in objects):
            return unknown_field(path, set().union(*objects), last=name)
        values = [each[name] for each in objects if name in each]
    return None


def unknown_field(name: str, fields: Collection[str], last: str | None = None) -> UnknownField:
    """The error for a field that none of the events has. ``last`` is the unknown part of a nested field."""
    part = last or name
    return UnknownField(
        f"none of the newest events has the field {name!r} ({describe_known(part, fields)}). If later events will have "
        f"it, declare its type, Stream.from_(..., schema={{{name.split('.')[0]!r}: 'double'}}), or start the query "
        "with strict=False (penstock run --no-strict)",
        field=name,
        suggestions=closest_names(part, fields),
    )
