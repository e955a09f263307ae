"""Rows as JSON objects, a column at a time: what a row would cost in Python is paid for its texts alone.

The text is the same as if each row were a dict that the one codec encodes, and what that refuses is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import json
from penstock.core.errors import InvalidEvent


def objects(batch: pa.RecordBatch) -> list[bytes]:
    """Each row as a JSON object."""
    if not batch.num_columns:
        return [b"{}"] * batch.num_rows
    try:
        return _joined(batch)
    except (json.JSONProblem, pa.ArrowInvalid, pa.ArrowCapacityError):
        # Something of it is no JSON, or it is too much at once: row by row it is found out which.
        return [_encoded(row, place) for place, row in enumerate(_rows(batch))]


def _joined(batch: pa.RecordBatch) -> list[bytes]:
    parts: list[Any] = []
    before = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        before += f"{json.encode(name).decode()}:"
        if _is_plain(column) and not column.null_count:
            parts += [before + '"', column.cast(pa.string())]
            before = '",'
        else:
            parts += [before, _texts(column)]
            before = ","
    parts.append(before[:-1] + "}")
    whole = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")
    found: list[bytes] = whole.cast(pa.binary()).to_pylist()
    return found


def _texts(column: pa.Array) -> pa.Array:
    """The JSON of each value; null where that is null."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if _is_plain(column):
        return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    values: list[Any] = column.to_pylist()
    if _has_maps(kind):
        values = [_plain(value, kind) for value in values]
    return pa.array(json.encode_lines([values])[0].split(b"\n"), pa.string())


def _is_plain(column: pa.Array) -> bool:
    """Whether it is text that JSON has as it is, between quotes."""
    if not pa.types.is_string(column.type):
        return False
    _, offsets, data = column.buffers()
    if data is None:
        return True
    ends = np.frombuffer(offsets, np.int32, count=len(column) + 1, offset=4 * column.offset)
    signs = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return not bool(((signs < 0x20) | (signs == 0x22) | (signs == 0x5C)).any())


def _encoded(row: dict[str, Any], place: int) -> bytes:
    try:
        return json.encode(row)
    except json.JSONProblem as problem:
        raise InvalidEvent(str(problem), index=place, field="data") from None


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name, kind in zip(batch.schema.names, batch.schema.types, strict=True):
        if _has_maps(kind):
            for row in rows:
                row[name] = _plain(row[name], kind)
    return rows


def _has_maps(kind: pa.DataType) -> bool:
    """Whether a type has a map somewhere in it."""
    if pa.types.is_struct(kind):
        return any(_has_maps(inner.type) for inner in kind)
    if pa.types.is_list(kind):
        return _has_maps(kind.value_type)
    return bool(pa.types.is_map(kind))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value with its maps, which Arrow gives as pairs, as objects."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(name): _plain(inner, kind.item_type) for name, inner in value}
    if pa.types.is_list(kind):
        return [_plain(inner, kind.value_type) for inner in value]
    if pa.types.is_struct(kind):
        return {inner.name: _plain(value[inner.name], inner.type) for inner in kind}
    return value
