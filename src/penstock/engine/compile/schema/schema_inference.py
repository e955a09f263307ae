"""Infers the types of fields from a sample of JSON events."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.engine.worker.json_columns import DEFAULT_NUMBER

_decode_exact = msgspec.json.Decoder(float_hook=decimal.Decimal).decode


def infer_types(lines: Iterable[bytes], names: Sequence[str]) -> dict[str, pa.DataType | None]:
    """The type that most events have in each field; None if no event has the field."""
    #: By field and family of types.
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    types: dict[tuple[str, str], pa.DataType] = {}
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
                family = _family(kind)
                counts[name][family] += 1
                types[name, family] = _merge_types(types.get((name, family), kind), kind)
    families = {name: max(count, key=count.__getitem__, default=None) for name, count in counts.items()}
    return {
        name: None if family is None else _replace_unknown(types[name, family]) for name, family in families.items()
    }


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
