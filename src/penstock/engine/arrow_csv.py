"""Arrow tables as CSV, the input format of COPY."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv


def as_csv(table: pa.Table) -> bytes:
    """Rows as COPY takes them: text is quoted, so that an empty one is told from none."""
    buffer = io.BytesIO()
    # Of a chunk without rows, Arrow writes whatever is in its memory.
    pyarrow.csv.write_csv(table.combine_chunks(), buffer, pyarrow.csv.WriteOptions(include_header=False))
    return buffer.getvalue()
