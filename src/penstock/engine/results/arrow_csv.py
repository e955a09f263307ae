"""Writes Arrow tables as CSV, the input format of COPY."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv


def to_csv(table: pa.Table) -> bytes:
    """Encode a table for COPY. Text is quoted, which distinguishes an empty text from NULL."""
    buffer = io.BytesIO()
    # Arrow writes uninitialized memory for a chunk without rows.
    pyarrow.csv.write_csv(table.combine_chunks(), buffer, pyarrow.csv.WriteOptions(include_header=False))
    return buffer.getvalue()
