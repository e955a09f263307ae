"""The fields of events as typed columns: inferring types from a sample, and decoding JSON into Arrow.

A number is a decimal unless it is declared otherwise, so that sums are those of the literals in the JSON. What does
not fit its type is told apart from its neighbours.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from penstock.engine.worker.uniform_json import Alike

#: Every number that is not declared: 20 digits before the point and 18 after it.
NUMBER = pa.decimal128(38, 18)
_BLOCK = 1 << 20
_decode = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
#: The digits of the largest decimals.
_ROOM = 76
_NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
#: A fifth faster here than Arrow's own.
_MEMORY = pa.system_memory_pool()


def infer(samples: Iterable[bytes], names: Sequence[str]) -> dict[str, pa.DataType | None]:
    """The type of each named field as the samples show it; None if none of them has it."""
    seen: dict[str, dict[str, tuple[int, pa.DataType]]] = {name: {} for name in names}
    for line in samples:
        try:
            value = _decode(line)
        except msgspec.DecodeError:
            continue
        if not isinstance(value, dict):
            continue
        for name in names:
            if value.get(name) is not None:
                kind = _type_of(value[name])
                count, before = seen[name].get(_family(kind), (0, kind))
                seen[name][_family(kind)] = (count + 1, _wider(before, kind))
    most = {name: max(kinds.values(), key=lambda found: found[0])[1] if kinds else None for name, kinds in seen.items()}
    return {name: None if kind is None else _settled(kind) for name, kind in most.items()}


def _type_of(value: Any) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int | decimal.Decimal):
        return NUMBER
    if isinstance(value, dict):
        inside = [(name, _type_of(v)) for name, v in value.items() if v is not None]
        return pa.struct(inside)
    if isinstance(value, list):
        inner: pa.DataType = pa.null()
        for item in value:
            if item is not None:
                inner = _wider(inner, _type_of(item))
        return pa.list_(inner)
    return pa.string()


def _settled(kind: pa.DataType) -> pa.DataType:
    """The type, with text for what no sample has shown: the items of lists that were all empty."""
    if pa.types.is_struct(kind):
        return pa.struct([(inner.name, _settled(inner.type)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if kind == pa.null() else kind


def _family(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct"
    return "list" if pa.types.is_list(kind) else str(kind)


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """A type that holds what both hold, where there is one; else the first."""
    if a == b or b == pa.null():
        return a
    if a == pa.null():
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        fields = {f.name: f.type for f in a}
        for f in b:
            fields[f.name] = _wider(fields[f.name], f.type) if f.name in fields else f.type
        return pa.struct(list(fields.items()))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_wider(a.value_type, b.value_type))
    return a


class Parser:
    """Decodes lines of JSON into the columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._alike = Alike(schema)
        #: As Arrow reads it.
        self._read_as = pa.schema([(field.name, _with_room(field.type)) for field in schema])
        self._options = pj.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior="ignore")

    def parse(self, data: bytes, count: int) -> tuple[pa.Table, dict[int, str]]:
        """The columns of ``count`` lines, and why some lines do not fit; those have nulls in every column."""
        if not len(self.schema):
            return pa.table({"": pa.nulls(count)}).select([]), {}
        if (alike := self._alike.read(data, count)) is not None:
            return alike, {}
        try:
            # A line that is nothing but null ends Arrow's reader, and the process with it.
            if not data.startswith(b"null") and b"\nnull" not in data:
                table = self._read(data)
                if table.num_rows == count:
                    return table, {}
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
        return self._carefully(data.split(b"\n"))

    def _read(self, data: bytes) -> pa.Table:
        try:
            return self._read_blocks(data, _BLOCK)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            return self._read_blocks(data, len(data) + 1)  # a line is longer than a block

    def _read_blocks(self, data: bytes, size: int) -> pa.Table:
        options = pj.ReadOptions(use_threads=False, block_size=size)
        table = pj.read_json(
            pa.BufferReader(data), read_options=options, parse_options=self._options, memory_pool=_MEMORY
        )
        return table.select(self.schema.names).cast(self.schema)

    def _carefully(self, lines: list[bytes]) -> tuple[pa.Table, dict[int, str]]:
        problems: dict[int, str] = {}
        for place, line in enumerate(lines):
            problem = self._problem(line)
            if problem is not None:
                problems[place] = problem
        good = [place for place in range(len(lines)) if place not in problems]
        table = self._halving(lines, good, problems)
        return table, problems

    def _halving(self, lines: list[bytes], places: list[int], problems: dict[int, str]) -> pa.Table:
        """All lines as a table, the bad ones as nulls; what Arrow alone finds wrong is looked for by halves."""
        pending, good = [places], []
        while pending:
            some = pending.pop()
            if not some:
                continue
            try:
                if self._read(b"\n".join(lines[place] for place in some)).num_rows == len(some):
                    good += some
                    continue
                reason = "it is not one JSON value"
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                reason = str(error)
            if len(some) == 1:
                problems[some[0]] = f"it does not fit the types of its fields: {reason}"
            else:
                middle = len(some) // 2
                pending += [some[:middle], some[middle:]]
        kept = set(good)
        # An empty object stands in for each bad line, so that places stay what they are.
        return self._read(b"\n".join(line if place in kept else b"{}" for place, line in enumerate(lines)))

    def _problem(self, line: bytes) -> str | None:
        try:
            value = _decode(line)
        except msgspec.DecodeError as error:
            return f"it is not JSON: {error}"
        if not isinstance(value, dict):
            return f"its data is {_named(value)}, and fields are read from an object"
        for field in self.schema:
            found = value.get(field.name)
            if found is not None and (problem := _misfit(found, field.type)):
                return f"field {field.name!r}: {problem}"
        return None


def _with_room(kind: pa.DataType) -> pa.DataType:
    """The type with room for every number that Arrow does not refuse.

    It counts the digits of a number as they are spelled, and then moves the point: what is too large for its decimal is
    taken for another number.
    """
    if pa.types.is_decimal128(kind):
        return pa.decimal256(_ROOM - kind.scale, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([(inner.name, _with_room(inner.type)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_room(kind.value_type))
    return kind


def _misfit(value: Any, kind: pa.DataType) -> str | None:
    """Why a value does not fit a type, or None."""
    if pa.types.is_boolean(kind):
        fits = isinstance(value, bool)
    elif pa.types.is_decimal(kind):
        # Arrow takes a number in quotes for a number, so it is one here too.
        if isinstance(value, str) and _NUMERAL.fullmatch(value):
            value = decimal.Decimal(value)
        if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            return f"{_named(value)} is no number; declare the field as string, or mend the event"
        number = decimal.Decimal(value)
        if number.as_tuple().exponent < -kind.scale and number != number.quantize(
            decimal.Decimal(1).scaleb(-kind.scale), context=decimal.Context(prec=200)
        ):
            return (
                f"{value} has more than {kind.scale} digits after the point: declare the field as double, "
                "or as decimal(38,n) with a larger n"
            )
        if number and number.adjusted() >= kind.precision - kind.scale:
            return f"{value} is larger than a decimal({kind.precision},{kind.scale}) holds: declare the field as double"
        return None
    elif pa.types.is_integer(kind):
        fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    elif pa.types.is_floating(kind):
        fits = isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)
    elif pa.types.is_string(kind):
        fits = isinstance(value, str)
    elif pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return f"{_named(value)} is no object"
        for inner in kind:
            found = value.get(inner.name)
            if found is not None and (problem := _misfit(found, inner.type)):
                return f"in {inner.name!r}: {problem}"
        return None
    elif pa.types.is_list(kind):
        if not isinstance(value, list):
            return f"{_named(value)} is no list"
        return next((p for item in value if item is not None and (p := _misfit(item, kind.value_type))), None)
    else:
        return None
    return None if fits else f"{_named(value)} does not fit the type {kind}"


def _named(value: Any) -> str:
    kinds: Mapping[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    text = str(value)
    named = kinds.get(type(value), "null" if value is None else "a number")
    return f"{named} ({text[:60]}{'...' if len(text) > 60 else ''})"
