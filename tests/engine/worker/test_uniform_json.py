"""Lines with one layout are read with the same result as Arrow's, and other lines are left to Arrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.worker.json_columns import DEFAULT_NUMBER, JsonColumnDecoder
from penstock.engine.worker.uniform_json import UniformJsonReader

SCHEMA = pa.schema(
    [
        ("amount", DEFAULT_NUMBER),
        ("price", pa.decimal128(8, 2)),
        ("n", pa.int64()),
        ("ratio", pa.float64()),
        ("who", pa.string()),
        ("new", pa.bool_()),
        ("absent", pa.string()),
    ]
)
numbers = st.one_of(
    st.integers(-(10**17), 10**17).map(str),
    st.decimals(-(10**6), 10**6, places=3).map(str),
    st.sampled_from(["0", "-0", "-0.0", "0.5", "7.10", "999999999999999999", "0.000000000000000001"]),
)
words = st.text(st.characters(exclude_characters='"\\', exclude_categories=["Cc", "Cs"]), max_size=8)
VALUES = {
    "amount": st.one_of(numbers, st.just("null")),
    "price": st.one_of(st.decimals(-99, 99, places=2).map(str), st.just("null")),
    "n": st.one_of(st.integers(-(10**18) + 1, 10**18 - 1).map(str), st.just("null")),
    "ratio": st.one_of(st.floats(-1e6, 1e6).map(lambda value: f"{value:.9f}"), st.sampled_from(["-0.0", "null"])),
    "who": words.map(lambda value: f'"{value}"'),
    "new": st.sampled_from(["true", "false", "null"]),
    "other": numbers,
    "note": words.map(lambda value: f'"{value}"'),
    "odd": st.sampled_from(["1", "true", "null", "-2.5"]),
}


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Lines with one layout."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    comma, colon = draw(st.sampled_from([",", ", "])), draw(st.sampled_from([":", " : "]))
    front, back = draw(st.sampled_from(["", " "])), draw(st.sampled_from(["", " "]))
    rows = draw(st.lists(st.tuples(*[VALUES[name] for name in names]), min_size=2, max_size=12))
    lines = []
    for row in rows:
        members = comma.join(f'"{name}"{colon}{value}' for name, value in zip(names, row, strict=True))
        lines.append(f"{front}{{{members}{back}}}".encode())
    return lines


def uniform_reader(schema: pa.Schema = SCHEMA) -> UniformJsonReader:
    return UniformJsonReader(schema, min_lines=2)


def read_with_arrow(lines: list[bytes]) -> list[dict[str, Any]]:
    table, errors = JsonColumnDecoder(SCHEMA).decode_lines(lines)
    assert not errors
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@settings(deadline=None)
@given(batches())
def test_uniform_lines_have_the_same_values_as_with_arrow(lines: list[bytes]) -> None:
    table = uniform_reader().read(b"\n".join(lines), len(lines))

    expected = read_with_arrow(lines)
    # Numbers with more than 18 digits are left to Arrow: a thousandth beside a number of 17 digits.
    if table is None:
        assert any(len(line) > 18 for line in lines)
        assert b"amount" in lines[0] or b"other" in lines[0]
    else:
        table.validate(full=True)
        assert table.to_pylist() == expected
        assert str(table.to_pylist()) == str(expected)  # tells 0.0 from -0.0


@settings(deadline=None, max_examples=300)
@given(batches(), st.data())
def test_damaged_lines_are_rejected_or_read_as_with_arrow(lines: list[bytes], data: st.DataObject) -> None:
    text = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(1, 2))):
        position = data.draw(st.integers(0, len(text)))
        piece = data.draw(st.sampled_from([b"", *(bytes([c]) for c in b'"{}:,.-+0e \\\x00\t\r\xff'), b"null", b"1"]))
        text[position : position + data.draw(st.integers(0, 3))] = piece
    lines = bytes(text).split(b"\n")

    table = uniform_reader().read(bytes(text), len(lines))

    if table is not None:
        assert table.to_pylist() == read_with_arrow(lines)


@pytest.mark.parametrize(
    "other",
    [
        '{"n":2,"who":"x","n":3}',
        '{"who":"x","n":2}',
        '{"n":2, "who":"x"}',
        '{"n":2}',
        '{"n":2,"who":"x","more":1}',
        '{"n":2,"who":null}',
        '{"n":"2","who":"x"}',
        '{"n":2.5,"who":"x"}',
        '{"n":02,"who":"x"}',
        '{"n":2e3,"who":"x"}',
        '{"n":+2,"who":"x"}',
        '{"n":,"who":"x"}',
        '{"n":-,"who":"x"}',
        '{"n":1000000000000000000,"who":"x"}',
        '{"n":true,"who":"x"}',
        '{"n":nul,"who":"x"}',
        '{"n":2,"who":"\\u00e9"}',
        '{"n":{"who":2},"who":"x"}',
        '{"m":2,"who":"x"}',
        '{"n":2,"who":"x"',
        "null",
        "",
    ],
)
def test_one_line_with_another_layout_leaves_the_batch_to_arrow(other: str) -> None:
    usual = '{"n":1,"who":"y"}'
    reader = uniform_reader()
    for lines in ([usual, other], [other, usual], [usual, other, usual]):
        assert reader.read("\n".join(lines).encode(), len(lines)) is None
    assert reader.read("\n".join([usual] * 2).encode(), 2) is not None


def test_reader_adopts_a_new_layout() -> None:
    reader = uniform_reader()
    for separators in ((",", ":"), (", ", ": ")):
        lines = [json.dumps({"n": n, "who": "ada"}, separators=separators) for n in range(9)]
        table = reader.read("\n".join(lines).encode(), 9)
        assert table is not None
        assert table.column("n").to_pylist() == list(range(9))


def test_first_number_can_be_shorter_than_later_ones() -> None:
    values: list[Any] = [5, 123456789012345678, -7, 1]
    table = uniform_reader().read("\n".join(f'{{"n":{n}}}' for n in values).encode(), 4)
    assert table is not None
    assert table.column("n").to_pylist() == values


def test_nested_types_are_left_to_arrow() -> None:
    schema = pa.schema([("tags", pa.list_(pa.string()))])
    assert uniform_reader(schema).read(b'{"n":1}\n{"n":2}', 2) is None
