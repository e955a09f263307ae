"""Changes of rows, as the queue of a materialized view's changes has them, for the table sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.core.errors import SinkRejected

_OPERATIONS = {"insert": (False, True), "update": (True, True), "delete": (True, False)}


class RowChange(NamedTuple):
    """A row before and after a change; None if it did not exist, or does not any more."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


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
