"""Converts Spark values to JSON values, and drops the fields that streams add internally."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from penstock.core import json

#: Fields that the functions of a stream add to events: the key in the sink queue, and the cost at a gate. The index of
#: the gate follows the prefix.
SINK_KEY = "__sink_key"
COST_PREFIX = "__cost_"
#: Holds an event that is not an object, so that fields can be added.
NON_OBJECT = "__whole"

#: More precision than any column has; Python's default would round at 28 digits.
_EXACT = Context(prec=100)


def to_json_value(value: Any) -> Any:
    """Convert decimals, also nested ones, to an int or float where that is exact; leave other values unchanged."""
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < 2**63:
            return int(value)
        nearest = float(value)
        return nearest if Decimal(repr(nearest)) == value else value.normalize(_EXACT)
    if isinstance(value, dict):
        return {name: to_json_value(inner) for name, inner in value.items()}
    return [to_json_value(inner) for inner in value] if isinstance(value, list) else value


def decode_rows(
    table: pa.Table | pa.RecordBatch, fields: Sequence[str], lines: Iterable[str | bytes] | None
) -> list[Any]:
    """The fields of each row as JSON values; with ``lines``, the whole events with these fields merged in."""
    if fields:
        rows = [to_json_value(row) for row in table.select(fields).to_pylist()]
    else:
        rows = [{} for _ in range(table.num_rows)]
    if lines is None:
        return rows
    return [
        {**event, **row} if row and isinstance(event, dict) else event
        for event, row in zip(map(json.decode, lines), rows, strict=True)
    ]


def strip_internal_fields(line: bytes) -> bytes:
    """Remove the fields that the functions of a stream added to an event."""
    event = json.decode(line)
    if not isinstance(event, dict):
        return line
    if NON_OBJECT in event:
        return json.encode(event[NON_OBJECT])
    return json.encode({name: value for name, value in event.items() if not name.startswith((SINK_KEY, COST_PREFIX))})
