"""Infers the types of fields from a sample of JSON events."""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.engine.worker.json_columns import DEFAULT_NUMBER

_decode_exact = msgspec.json.Decoder(float_hook=decimal.Decimal).decode


class _TypeCount(NamedTuple):
    events: int
    type: pa.DataType


def infer_types(lines: Iterable[bytes], names: Sequence[str]) -> dict[str, pa.DataType | None]:
    """The type that most events have in each field; None if no event has the field."""
    counts: dict[str, dict[str, _TypeCount]] = {name: {} for name in names}
    for line in lines:
        try:
            event = _decode_exact(line)
        except msgspec.DecodeError:
            continue
        if not isinstance(event, dict):
            continue
        for name in names:
            if event.get(name) is not None:
                kind = _infer_type(event[name])
                known = counts[name].get(_family(kind), _TypeCount(0, kind))
                counts[name][_family(kind)] = _TypeCount(known.events + 1, _merge_types(known.type, kind))
    return {name: _most_frequent(families.values()) for name, families in counts.items()}


def _most_frequent(counts: Iterable[_TypeCount]) -> pa.DataType | None:
    most_frequent = max(counts, key=lambda entry: entry.events, default=None)
    return None if most_frequent is None else _replace_unknown(most_frequent.type)


def _infer_type(value: Any) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int | decimal.Decimal):
        return DEFAULT_NUMBER
    if isinstance(value, dict):
        return pa.struct([(name, _infer_type(member)) for name, member in value.items() if member is not None])
    if isinstance(value, list):
        item_type: pa.DataType = pa.null()
        for item in value:
            if item is not None:
                item_type = _merge_types(item_type, _infer_type(item))
        return pa.list_(item_type)
    return pa.string()


def _replace_unknown(kind: pa.DataType) -> pa.DataType:
    """Replace the unknown item type of lists that were always empty with string."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _replace_unknown(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_replace_unknown(kind.value_type))
    return pa.string() if kind == pa.null() else kind


def _family(kind: pa.DataType) -> str:
    """Structs are counted as one type, and so are lists."""
    if pa.types.is_struct(kind):
        return "struct"
    return "list" if pa.types.is_list(kind) else str(kind)


def _merge_types(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """A type for the values of both; the first if there is none."""
    if a == b or b == pa.null():
        return a
    if a == pa.null():
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        fields = {field.name: field.type for field in a}
        for field in b:
            known = fields.get(field.name)
            fields[field.name] = field.type if known is None else _merge_types(known, field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_merge_types(a.value_type, b.value_type))
    return a
