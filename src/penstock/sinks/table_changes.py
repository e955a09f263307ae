"""Changes of rows for the table sink: how events describe them, and how those of one key are merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.core import json
from penstock.core.errors import SinkRejected
from penstock.sinks.target_table import TargetTable

_OPERATIONS = {"insert": (False, True), "update": (True, True), "delete": (True, False)}


class RowChange(NamedTuple):
    """A row before and after a change; None if it did not exist, or does not any more."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class KeyedChange(NamedTuple):
    """The changes of a table by an event: first it deletes the row with a key, then it writes a row."""

    deleted_key: dict[str, Any] | None
    row: dict[str, Any] | None


def read_change(data: object) -> RowChange:
    """Return the change that an event is: ``{"op": "update", "before": {...}, "after": {...}}``."""
    if isinstance(data, Mapping) and data.get("op") in _OPERATIONS:
        rows = data.get("before"), data.get("after")
        has_rows = tuple(isinstance(row, Mapping) for row in rows)
        if has_rows == _OPERATIONS[data["op"]]:
            return RowChange(*rows)
    raise SinkRejected(
        "the event is no change of a row: the changes of a materialized view have op (insert, update or delete), "
        "before and after"
    )


def key_of(row: Mapping[str, Any], target: TargetTable) -> dict[str, Any]:
    """Return the row's values of the table's key. Raise SinkRejected if one is missing."""
    key = {name: row.get(name) for name in target.key}
    missing = [name for name, value in key.items() if value is None]
    if missing:
        raise SinkRejected(f"the row has no value for the column {missing[0]!r} of the table's key")
    return key


def merge_by_key(
    changes: Sequence[KeyedChange], target: TargetTable
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the keys to delete, and then one row for each key, because a statement can update a row only once.

    The last row of a key wins. Optional columns that it does not have come from the rows before it, as if the rows had
    been written one by one.
    """
    deleted: dict[object, dict[str, Any]] = {}
    merged: dict[object, dict[str, Any]] = {}
    for i, (deleted_key, row) in enumerate(changes):
        if deleted_key is not None:
            identity: object = json.encode(list(deleted_key.values()))
            deleted[identity] = deleted_key
            merged.pop(identity, None)
        if row is None:
            continue
        identity = json.encode([row.get(name) for name in target.key]) if target.has_key_of(row) else i
        earlier = merged.pop(identity, {})
        merged[identity] = {name: value for name, value in earlier.items() if name in target.optional} | row
    return list(deleted.values()), list(merged.values())
