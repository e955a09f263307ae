"""Rows that are encoded column by column equal those that are encoded one by one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import json
from penstock.engine.worker.json_rows import encode_rows
from penstock.engine.worker.json_values import decode_rows

_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
_DECIMALS = st.decimals(-(10**19), 10**19, places=18)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), st.text(max_size=8)),
    "quoted": (pa.string(), st.text('a"\\\n\x00\x1fé', max_size=4)),
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "number": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "price": (pa.decimal128(38, 18), _DECIMALS | st.sampled_from([Decimal("0.000000000000000001"), Decimal("2.50")])),
    "count": (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    "flag": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us", "UTC"), _TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    "second": (pa.timestamp("us"), _TIMES.map(lambda time: time.replace(microsecond=0))),
    "elsewhere": (pa.timestamp("us", "Asia/Kathmandu"), st.just(datetime(2026, 1, 1, tzinfo=UTC))),
    "day": (pa.date32(), st.dates(date(1, 1, 1))),
    "list": (pa.list_(pa.string()), st.lists(st.text(max_size=2), max_size=2)),
    "struct": (pa.struct([("a", pa.decimal128(10, 2))]), st.just({"a": Decimal("1.50")})),
}


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_rows_equal_those_that_are_encoded_one_by_one(data: st.DataObject, name: str) -> None:
    kind, values = KINDS[name]
    column = data.draw(st.lists(st.none() | values, max_size=4))
    table = pa.table({'a"b': pa.array(column, kind), "n": pa.array(range(len(column)))})
    for part in (table, table.slice(1)):
        for fields in (['a"b'], ["n", 'a"b'], []):
            encoded = encode_rows(part, fields).to_pylist()
            expected = [json.encode(row) for row in decode_rows(part, fields, None)]
            assert list(map(_parse, encoded)) == list(map(_parse, expected))


def _parse(text: str | bytes) -> Any:
    """The value with exact numbers: 1E-7 and 0.0000001 are equal, 1 and 1.0 are not."""
    value = json.decode_decimals(text)
    assert "\n" not in (text if isinstance(text, str) else text.decode())
    return value


def test_columns_of_json_text_are_taken_as_they_are() -> None:
    table = pa.table({"name": ["a", None], "tags": ['["x", 1]', None]})
    assert encode_rows(table, ["name", "tags"], {"tags"}).to_pylist() == [
        '{"name":"a","tags":["x", 1]}',
        '{"name":null,"tags":null}',
    ]


def test_what_json_cannot_express_is_refused() -> None:
    with pytest.raises(json.JSONProblem, match="not a JSON number"):
        encode_rows(pa.table({"x": [1.0, float("nan")]}), ["x"])
