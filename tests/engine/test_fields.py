"""Fields of JSON as columns: exact, typed, and whatever does not fit told apart from its neighbours."""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.engine.worker.json_columns import NUMBER, Parser, infer

KINDS = {
    "n": NUMBER,
    "i": pa.int64(),
    "d": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "o": pa.struct([("x", NUMBER), ("y", pa.string())]),
    "l": pa.list_(pa.string()),
}
SCHEMA = pa.schema(list(KINDS.items()))


def parse(lines: list[bytes], schema: pa.Schema = SCHEMA) -> tuple[list[dict[str, Any]], dict[int, str]]:
    table, problems = Parser(schema).parse(b"\n".join(lines), len(lines))
    assert table.num_rows == len(lines)
    return table.to_pylist(), problems


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
def test_a_line_means_the_same_whatever_its_neighbours_are(lines: list[bytes]) -> None:
    together, problems = parse(lines)
    for place, line in enumerate(lines):
        (alone,), problem = parse([line])
        assert (place in problems) == bool(problem), line
        assert together[place] == alone, line


@given(st.lists(_numerals, min_size=1, max_size=5))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_number_is_exactly_what_the_json_spells_or_it_does_not_fit(numerals: list[str]) -> None:
    rows, problems = parse([f'{{"n": {numeral}}}'.encode() for numeral in numerals], pa.schema([("n", NUMBER)]))
    for place, numeral in enumerate(numerals):
        value = Decimal(numeral)
        fits = abs(value) < 10**20 and value == value.quantize(Decimal("1e-18"), context=Context(prec=100))
        assert (place not in problems) == fits, numeral
        assert rows[place]["n"] == (value if fits else None)


def test_a_number_that_would_look_small_after_128_bits_does_not_fit_either() -> None:
    # What is left of n * 10**18 is k * 2**18: a little under 10**15, as a number with 18 digits after the point.
    lines = []
    for k in range(38 * 10**26 + 1, 38 * 10**26 + 20):
        n = k * pow(5**18, -1, 2**110) % 2**110
        assert n * 10**18 % 2**128 == k * 2**18
        lines.append(f'{{"n": {n}}}'.encode())
    for line in lines:
        (row,), problems = parse([line], pa.schema([("n", NUMBER)]))
        assert row == {"n": None}
        assert "larger than a decimal(38,18) holds" in problems[0]
    _, problems = parse([b'{"n": 123456789012}', b'{"n": 5}'], pa.schema([("n", pa.decimal128(38, 30))]))
    assert list(problems) == [0]


def test_what_is_wrong_is_said_with_the_field_and_the_value() -> None:
    lines = [b'{"n": "much"}', b'{"o": {"x": true}}', b'{"l": [1]}', b"5", b'{"n": 1e-19}', b'{"s": 5}', b'{"i": 1.5}']
    _, problems = parse(lines)
    said = [problems[place] for place in range(len(lines))]
    for problem, part in zip(
        said,
        ["'n': text (much)", "'o': in 'x'", "'l': a number (1)", "a number (5)", "18 digits", "'s'", "'i'"],
        strict=True,
    ):
        assert part in problem


@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        (["1", "2.5"], NUMBER),
        (['"a"', "1", '"b"'], pa.string()),
        (["true"], pa.bool_()),
        (["null", "null"], None),
        (["[]", "[1]"], pa.list_(NUMBER)),
        (['{"x": 1}', '{"y": "z"}'], pa.struct([("x", NUMBER), ("y", pa.string())])),
        (['{"x": null}'], pa.struct([])),
    ],
)
def test_types_are_those_that_most_of_the_sample_has(samples: list[str], kind: Any) -> None:
    assert infer([f'{{"f": {text}}}'.encode() for text in samples], ["f"]) == {"f": kind}


def test_what_was_inferred_can_be_read_back() -> None:
    samples = [b'{"f": {"x": [], "y": {"z": null}, "w": []}}', b'{"f": {"x": [{"a": 1}]}}', b'{"f": {}}']
    kind = infer(samples, ["f"])["f"]
    assert kind is not None
    _, problems = parse(samples, pa.schema([("f", kind)]))
    assert problems == {}
