"""Arrow tables are written as CSV for COPY."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.results.arrow_csv import to_csv


def test_an_empty_chunk_writes_no_bytes() -> None:
    column = pa.chunked_array([pa.array([], pa.int64()), pa.array([7])])
    assert to_csv(pa.table({"key": column, "n": [1]})) == b"7,1\n"


def test_empty_text_is_distinguished_from_null() -> None:
    assert to_csv(pa.table({"text": pa.array(["", None, 'a"b'])})) == b'""\n\n"a""b"\n'
