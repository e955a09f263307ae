"""DuckDB: the ceiling. One statement over the files, with no stream, no state and no recovery, then one COPY."""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.peers.windows import WINDOW_MS, Order, serve

_QUESTION = f"""
SELECT customer, ts - ts % {WINDOW_MS}, count(*), sum(amount), max(amount)
FROM read_json(?, format = 'newline_delimited',
    columns = {{customer: 'VARCHAR', amount: 'DECIMAL(18, 2)', ts: 'BIGINT'}})
GROUP BY ALL
"""  # noqa: S608


def drain(order: Order) -> None:
    rows = Path(order.directory) / "rows.csv"
    duckdb.connect().sql(_QUESTION, params=[order.files]).write_csv(str(rows), header=False)
    with rows.open() as lines:
        order.copy(lines)


if __name__ == "__main__":
    serve(["duckdb"], drain)
