"""Infers the types of fields from a sample of JSON events."""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from penstock.engine.worker.json_columns import DEFAULT_NUMBER

_decode_exact = msgspec.json.Decoder(float_hook=decimal.Decimal).decode


def infer_types(lines: Iterable[bytes], names: Sequence[str]) -> dict[str, pa.DataType | None]:
    """The type that most events have in each field; None if no event has a value in it."""
    events = []
    for line in lines:
        try:
            event = _decode_exact(line)
        except msgspec.DecodeError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return {name: _common_type(event.get(name) for event in events) for name in names}


def _common_type(values: Iterable[Any]) -> pa.DataType | None:
    """The type of most of the values, and inside objects and lists that of most members and items; None without any."""
    by_type: dict[type, list[Any]] = {}
    for value in values:
        if value is not None:
            by_type.setdefault(decimal.Decimal if type(value) is int else type(value), []).append(value)
    if not by_type:
        return None
    common, of_type = max(by_type.items(), key=lambda item: len(item[1]))
    if common is dict:
        members: dict[str, list[Any]] = {}
        for name, member in chain.from_iterable(value.items() for value in of_type):
            members.setdefault(name, []).append(member)
        types = {name: _common_type(inside) for name, inside in members.items()}
        return pa.struct([(name, kind) for name, kind in types.items() if kind is not None])
    if common is list:
        return pa.list_(_common_type(chain.from_iterable(of_type)) or pa.string())
    return {bool: pa.bool_(), decimal.Decimal: DEFAULT_NUMBER}.get(common, pa.string())
