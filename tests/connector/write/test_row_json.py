"""Rows encoded by column have the same JSON as rows encoded one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connector.write.row_json import encode_rows
from penstock.core import json
from penstock.core.errors import InvalidEvent

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"', "\\", "\n", "\x00", "\x7f", "é", "😀"]
)
plain_texts = st.from_regex(r"[a-z 0-9]{0,8}", fullmatch=True)
longs = st.integers(-(2**63), 2**63 - 1)
decimals = st.decimals(min_value=-(10**15), max_value=10**15, places=6, allow_nan=False, allow_infinity=False)
times = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))
kinds: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "plain": (pa.string(), plain_texts),
    'odd "name"': (pa.string(), texts),
    "n": (pa.int64(), longs),
    "small": (pa.int8(), st.integers(-128, 127)),
    "yes": (pa.bool_(), st.booleans()),
    "amount": (pa.decimal128(38, 6), decimals),
    "share": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "at": (pa.timestamp("us", tz="UTC"), times),
    "some": (pa.list_(pa.string()), st.lists(texts, max_size=3)),
    "inside": (pa.struct([("a", pa.int64()), ("b", pa.string())]), st.fixed_dictionaries({"a": longs, "b": texts})),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Some columns, some rows, of some columns with nulls, and perhaps cut out of more."""
    names = draw(st.lists(st.sampled_from(list(kinds)), min_size=1, unique=True))
    rows = draw(st.integers(1, 6))
    arrays = []
    for name in names:
        kind, values = kinds[name]
        some = values | st.none() if draw(st.booleans()) else values
        arrays.append(pa.array(draw(st.lists(some, min_size=rows, max_size=rows)), kind))
    return pa.RecordBatch.from_arrays(arrays, names).slice(draw(st.integers(0, rows - 1)))


@given(batches())
@settings(max_examples=80, deadline=None)
def test_rows_are_encoded_as_by_the_json_codec(batch: pa.RecordBatch) -> None:
    assert encode_rows(batch) == [json.encode(row) for row in batch.to_pylist()]


def test_maps_and_rows_without_columns_are_objects() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.map_(pa.int64(), pa.bool_())))
    batch = pa.RecordBatch.from_arrays([pa.array([[("a", [[(1, True)]])], None], kind)], ["m"])
    assert encode_rows(batch) == [b'{"m":{"a":[{"1":true}]}}', b'{"m":null}']
    assert encode_rows(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))) == [b"{}", b"{}"]


def test_batch_too_large_for_arrow_is_encoded_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    join = pc.binary_join_element_wise

    def join_much(*parts: Any, **options: Any) -> Any:
        """As if the batch had 4,096 rows, each with a name of a mebibyte; Arrow counts before it writes any."""
        return join(pa.nulls(4096, pa.string()), "x" * 2**20, "", null_handling="replace")

    monkeypatch.setattr(pc, "binary_join_element_wise", join_much)
    assert encode_rows(pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", '"']})) == [
        b'{"a":1,"b":"x"}',
        b'{"a":null,"b":"\\""}',
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_error_names_the_row_that_json_cannot_represent(value: float) -> None:
    batch = pa.RecordBatch.from_pydict({"a": [Decimal(1), Decimal(2), None], "x": [1.5, value, None]})
    with pytest.raises(InvalidEvent, match="data: ") as refused:
        encode_rows(batch)
    assert refused.value.index == 1
