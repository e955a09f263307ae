"""Encodes rows as JSON objects, one column at a time.

The result is that of ``core.json`` for a dict per row. Only text with special characters and nested values need Python
objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import json
from penstock.core.errors import InvalidEvent


def encode_rows(batch: pa.RecordBatch) -> list[bytes]:
    if not batch.num_columns:
        return [b"{}"] * batch.num_rows
    try:
        return _encode_columns(batch)
    except (json.JSONProblem, pa.ArrowInvalid, pa.ArrowCapacityError):
        # Row by row, the error names the row that cannot be encoded, and large batches fit.
        return [_encode_row(row, index) for index, row in enumerate(_to_dicts(batch))]


def _encode_columns(batch: pa.RecordBatch) -> list[bytes]:
    parts: list[Any] = []
    separator = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        separator += f"{json.encode(name).decode()}:"
        if _is_plain(column) and not column.null_count:
            parts += [separator + '"', column.cast(pa.string())]
            separator = '",'
        else:
            parts += [separator, _encode_values(column)]
            separator = ","
    parts.append(separator[:-1] + "}")
    joined = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")
    rows: list[bytes] = joined.cast(pa.binary()).to_pylist()
    return rows


def _encode_values(column: pa.Array) -> pa.Array:
    """Return the JSON of each value; null for null."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if _is_plain(column):
        return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    values: list[Any] = column.to_pylist()
    if _has_maps(kind):
        values = [_with_objects(value, kind) for value in values]
    return pa.array(json.encode_lines([values])[0].split(b"\n"), pa.string())


def _is_plain(column: pa.Array) -> bool:
    """Return whether a column is text that needs no escapes in JSON."""
    if not pa.types.is_string(column.type):
        return False
    _, offsets, data = column.buffers()
    if data is None:
        return True
    ends = np.frombuffer(offsets, np.int32, count=len(column) + 1, offset=4 * column.offset)
    characters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return not bool(((characters < 0x20) | (characters == 0x22) | (characters == 0x5C)).any())


def _encode_row(row: dict[str, Any], index: int) -> bytes:
    try:
        return json.encode(row)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=index, field="data") from None


def _to_dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name, kind in zip(batch.schema.names, batch.schema.types, strict=True):
        if _has_maps(kind):
            for row in rows:
                row[name] = _with_objects(row[name], kind)
    return rows


def _has_maps(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_maps(inner.type) for inner in kind)
    if pa.types.is_list(kind):
        return _has_maps(kind.value_type)
    return bool(pa.types.is_map(kind))


def _with_objects(value: Any, kind: pa.DataType) -> Any:
    """Return a value with objects for its maps, which Arrow returns as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(name): _with_objects(inner, kind.item_type) for name, inner in value}
    if pa.types.is_list(kind):
        return [_with_objects(inner, kind.value_type) for inner in value]
    if pa.types.is_struct(kind):
        return {inner.name: _with_objects(value[inner.name], inner.type) for inner in kind}
    return value
