"""Decodes the fields of JSON events into typed Arrow columns.

A number is a decimal unless its field is declared otherwise, so that sums equal those of the literals in the JSON.
An event that does not fit the types is reported with a reason, and its neighbours are decoded.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.engine.worker.uniform_json import UniformJsonReader

#: The type of numbers whose field is not declared: 20 digits before the point and 18 after it.
DEFAULT_NUMBER = pa.decimal128(38, 18)
_MAX_DECIMAL_DIGITS = 76
_decode_exact = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
_NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
#: A fifth faster here than Arrow's default pool.
_MEMORY_POOL = pa.system_memory_pool()
_ESCAPED_NUL = rb"\u0000"


class DecodedColumns(NamedTuple):
    """The columns of a batch. A row that does not fit has an error and nulls in every column."""

    table: pa.Table
    errors: dict[int, str]


class JsonColumnDecoder:
    def __init__(self, schema: pa.Schema, stored_fields: Mapping[str, int | None] | None = None) -> None:
        self.schema = schema
        #: Fields whose text goes to PostgreSQL, which cannot store the character U+0000, and the most bytes of a key.
        self.stored_fields = stored_fields or {}
        self._uniform = UniformJsonReader(schema)
        read_schema = pa.schema([(field.name, _widen_decimals(field.type)) for field in schema])
        self._parse_options = pj.ParseOptions(explicit_schema=read_schema, unexpected_field_behavior="ignore")

    def decode(self, data: bytes, count: int) -> DecodedColumns:
        decoded = self._decode(data, count)
        self._find_long_keys(decoded)
        # Most data has no escapes, and one byte is found ten times as fast as several.
        if self.stored_fields and b"\\" in data and _ESCAPED_NUL in data:
            self._find_unstorable(data, decoded)
        return decoded

    def _decode(self, data: bytes, count: int) -> DecodedColumns:
        if not len(self.schema):
            return DecodedColumns(pa.table({"": pa.nulls(count)}).select([]), {})
        if not count:
            # Without lines the data is empty, and would be taken for one empty line.
            return DecodedColumns(self.schema.empty_table(), {})
        if (uniform := self._uniform.read(data, count)) is not None:
            return DecodedColumns(uniform, {})
        try:
            # Arrow's reader crashes the process on a line that is only null.
            if not data.startswith(b"null") and b"\nnull" not in data:
                table = self._read(data)
                if table.num_rows == count:
                    return DecodedColumns(table, {})
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
        return self.decode_lines(data.split(b"\n"))

    def decode_lines(self, lines: list[bytes]) -> DecodedColumns:
        """Decode lines of which some do not fit, and find those."""
        errors: dict[int, str] = {}
        for row, line in enumerate(lines):
            error = self._find_error(line)
            if error is not None:
                errors[row] = error
        self._find_arrow_errors(lines, errors)
        # An empty object stands for each bad line, so that rows keep their numbers.
        table = self._read(b"\n".join(b"{}" if row in errors else line for row, line in enumerate(lines)))
        return DecodedColumns(table, errors)

    def _read(self, data: bytes) -> pa.Table:
        table = pj.read_json(
            pa.BufferReader(data),
            # Arrow rejects a line that is longer than a block.
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=self._parse_options,
            memory_pool=_MEMORY_POOL,
        )
        return table.select(self.schema.names).cast(self.schema)

    def _find_arrow_errors(self, lines: list[bytes], errors: dict[int, str]) -> None:
        """Bisect the lines that only Arrow rejects, and add their errors."""
        pending = [[row for row in range(len(lines)) if row not in errors]]
        while pending:
            rows = pending.pop()
            if not rows:
                continue
            try:
                if self._read(b"\n".join(lines[row] for row in rows)).num_rows == len(rows):
                    continue
                reason = "it is not one JSON value"
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                reason = str(error)
            if len(rows) == 1:
                errors[rows[0]] = f"the event does not fit the types of its fields: {reason}"
            else:
                middle = len(rows) // 2
                pending += [rows[:middle], rows[middle:]]

    def _find_unstorable(self, data: bytes, decoded: DecodedColumns) -> None:
        """Add the errors of events with the character U+0000 in a stored field. JSON can only contain its escape."""
        rows = [row for row, line in enumerate(data.split(b"\n")) if _ESCAPED_NUL in line]
        events = decoded.table.take(pa.array(rows, pa.int64()))
        for name in sorted(self.stored_fields.keys() & set(self.schema.names)):
            for row, value in zip(rows, events.column(name).to_pylist(), strict=True):
                if _contains_nul(value):
                    reason = "contains the character U+0000, which PostgreSQL cannot store; remove it"
                    decoded.errors.setdefault(row, f"field {name!r}: {reason}")

    def _find_long_keys(self, decoded: DecodedColumns) -> None:
        for name, limit in self.stored_fields.items():
            if limit is None or name not in self.schema.names or not pa.types.is_string(self.schema.field(name).type):
                continue
            sizes = pc.binary_length(decoded.table.column(name))
            if (pc.max(sizes).as_py() or 0) <= limit:
                continue
            for row in pc.indices_nonzero(pc.fill_null(pc.greater(sizes, limit), False)).to_pylist():
                reason = f"a key may have up to {limit:,} bytes; this one has {sizes[row].as_py():,}"
                decoded.errors.setdefault(row, f"field {name!r}: {reason}")

    def _find_error(self, line: bytes) -> str | None:
        try:
            value = _decode_exact(line)
        except msgspec.DecodeError as problem:
            return f"the event is not JSON: {problem}"
        if not isinstance(value, dict):
            return f"the event is {_describe(value)}; fields can only be read from an object"
        return _find_member_error(value, self.schema, "field")


def _widen_decimals(kind: pa.DataType) -> pa.DataType:
    """The type with decimals that hold every number that Arrow accepts.

    Arrow checks the digits as they are written and then shifts the point: a number that is too large for its decimal
    becomes a different number. The cast from the wider decimal detects this.
    """
    if pa.types.is_decimal128(kind):
        return pa.decimal256(_MAX_DECIMAL_DIGITS - kind.scale, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([(inner.name, _widen_decimals(inner.type)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(_widen_decimals(kind.value_type))
    return kind


def _find_type_error(value: Any, kind: pa.DataType) -> str | None:
    if pa.types.is_decimal(kind):
        return _find_decimal_error(value, kind)
    if pa.types.is_struct(kind):
        return (
            _find_member_error(value, kind, "in") if isinstance(value, dict) else f"{_describe(value)} is not an object"
        )
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            return f"{_describe(value)} is not a list"
        items = (item for item in value if item is not None)
        return next((error for item in items if (error := _find_type_error(item, kind.value_type))), None)
    if pa.types.is_boolean(kind):
        fits = isinstance(value, bool)
    elif pa.types.is_integer(kind):
        fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    elif pa.types.is_floating(kind):
        fits = isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)
    elif pa.types.is_string(kind):
        fits = isinstance(value, str)
    else:
        fits = True
    return None if fits else f"{_describe(value)} does not fit the type {kind}"


def _find_decimal_error(value: Any, kind: pa.DataType) -> str | None:
    # Arrow accepts a number in quotes.
    if isinstance(value, str) and _NUMERAL.fullmatch(value):
        value = decimal.Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        return f"{_describe(value)} is not a number; declare the field as string, or correct the event"
    number = decimal.Decimal(value)
    if number.as_tuple().exponent < -kind.scale and number != number.quantize(
        decimal.Decimal(1).scaleb(-kind.scale), context=decimal.Context(prec=200)
    ):
        return (
            f"{value} has more than {kind.scale} digits after the point: declare the field as double, "
            "or as decimal(38,n) with a larger n"
        )
    if number and number.adjusted() >= kind.precision - kind.scale:
        return f"{value} does not fit a decimal({kind.precision},{kind.scale}): declare the field as double"
    return None


def _find_member_error(value: dict[str, Any], fields: Iterable[pa.Field], location: str) -> str | None:
    for field in fields:
        member = value.get(field.name)
        if member is not None and (error := _find_type_error(member, field.type)):
            return f"{location} {field.name!r}: {error}"
    return None


def _contains_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_contains_nul, value.values()))
    if isinstance(value, list):
        return any(map(_contains_nul, value))
    return isinstance(value, str) and "\0" in value


def _describe(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    text = str(value)
    return f"{names.get(type(value), 'a number')} ({text[:60]}{'...' if len(text) > 60 else ''})"
