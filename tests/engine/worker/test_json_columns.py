"""JSON fields are decoded exactly, and an event that does not fit does not affect its neighbours."""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.engine.worker.json_columns import DEFAULT_NUMBER, JsonColumnDecoder

KINDS = {
    "n": DEFAULT_NUMBER,
    "i": pa.int64(),
    "d": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "o": pa.struct([("x", DEFAULT_NUMBER), ("y", pa.string())]),
    "l": pa.list_(pa.string()),
}
SCHEMA = pa.schema(list(KINDS.items()))


def decode(lines: list[bytes], schema: pa.Schema = SCHEMA) -> tuple[list[dict[str, Any]], dict[int, str]]:
    table, errors = JsonColumnDecoder(schema).decode(b"\n".join(lines), len(lines))
    assert table.num_rows == len(lines)
    return table.to_pylist(), errors


_numerals = st.one_of(
    st.integers(-(10**22), 10**22).map(str),
    st.decimals(-(10**6), 10**6, places=20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.integers(1, 999), st.integers(0, 60)).map(lambda parts: f"{parts[0]}e{parts[1]}"),
    st.sampled_from(["1e3", "1E-18", "-0", "-0.0", "0e0", "100e-2", "99999999999999999999", "1e20", "1e-19", "5e400"]),
)
_texts = st.one_of(st.text(st.characters(codec="utf-8"), max_size=5), st.sampled_from(["1", "1e3", "", "\x00", "é"]))
_values = st.one_of(
    st.just("null"),
    st.sampled_from(
        ["true", "false", "[]", "{}", '{"x": 1, "y": "z"}', '{"x": "a"}', '["a", null]', "[1]", '{"q": 1}']
    ),
    _numerals,
    _texts.map(json.dumps),
)
_lines = st.one_of(
    st.dictionaries(st.sampled_from([*KINDS, "other"]), _values, max_size=3).map(
        lambda fields: ("{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}").encode()
    ),
    _values.map(str.encode),
)


@example([b'{"n": 5}', b'{"n": "x"}'])
@example([b'{"a": 1, "n": 1, "n": 2}', b'{"n": 3}'])
@given(st.lists(_lines, min_size=1, max_size=6))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_line_is_decoded_independently_of_its_neighbours(lines: list[bytes]) -> None:
    rows, errors = decode(lines)
    for index, line in enumerate(lines):
        (row,), error = decode([line])
        assert (index in errors) == bool(error), line
        assert rows[index] == row, line


@given(st.lists(_numerals, min_size=1, max_size=5))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_number_equals_its_literal_or_is_rejected(numerals: list[str]) -> None:
    rows, errors = decode([f'{{"n": {numeral}}}'.encode() for numeral in numerals], pa.schema([("n", DEFAULT_NUMBER)]))
    for index, numeral in enumerate(numerals):
        value = Decimal(numeral)
        fits = abs(value) < 10**20 and value == value.quantize(Decimal("1e-18"), context=Context(prec=100))
        assert (index not in errors) == fits, numeral
        assert rows[index]["n"] == (value if fits else None)


def test_a_number_that_overflows_128_bits_to_a_small_one_is_rejected() -> None:
    # The lower 128 bits of n * 10**18 are k * 2**18: a little under 10**15, as a number with 18 decimals.
    lines = []
    for k in range(38 * 10**26 + 1, 38 * 10**26 + 20):
        n = k * pow(5**18, -1, 2**110) % 2**110
        assert n * 10**18 % 2**128 == k * 2**18
        lines.append(f'{{"n": {n}}}'.encode())
    for line in lines:
        (row,), errors = decode([line], pa.schema([("n", DEFAULT_NUMBER)]))
        assert row == {"n": None}
        assert "does not fit a decimal(38,18)" in errors[0]
    _, errors = decode([b'{"n": 123456789012}', b'{"n": 5}'], pa.schema([("n", pa.decimal128(38, 30))]))
    assert list(errors) == [0]


def test_an_error_names_the_field_and_the_value() -> None:
    lines = [b'{"n": "much"}', b'{"o": {"x": true}}', b'{"l": [1]}', b"5", b'{"n": 1e-19}', b'{"s": 5}', b'{"i": 1.5}']
    _, errors = decode(lines)
    for error, part in zip(
        [errors[row] for row in range(len(lines))],
        ["'n': text (much)", "'o': in 'x'", "'l': a number (1)", "a number (5)", "18 digits", "'s'", "'i'"],
        strict=True,
    ):
        assert part in error


def test_a_line_longer_than_a_block_is_decoded() -> None:
    text = "x" * (3 << 20)
    lines = [b'{"s": "a"}', f'{{"s": "{text}"}}'.encode(), b'{"s": "b"}']
    rows, errors = decode(lines, pa.schema([("s", pa.string())]))
    assert errors == {}
    assert [row["s"] for row in rows] == ["a", text, "b"]
