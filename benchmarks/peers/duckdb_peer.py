"""DuckDB: the upper bound. One statement over the files without streaming, state or recovery, then one COPY."""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.peers.windows import WINDOW_MS, WindowJob, serve

_QUERY = f"""
SELECT customer, ts - ts % {WINDOW_MS}, count(*), sum(amount), max(amount)
FROM read_json(?, format = 'newline_delimited',
    columns = {{customer: 'VARCHAR', amount: 'DECIMAL(18, 2)', ts: 'BIGINT'}})
GROUP BY ALL
"""  # noqa: S608


def drain(job: WindowJob) -> None:
    rows = Path(job.directory) / "rows.csv"
    duckdb.connect().sql(_QUERY, params=[job.files]).write_csv(str(rows), header=False)
    with rows.open() as lines:
        job.copy(lines)


if __name__ == "__main__":
    serve(["duckdb"], drain)
