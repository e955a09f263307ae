"""Oracle: DuckDB runs the same query over the files, and every row of a result is compared with its rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb

from benchmarks.drain.dataset import Dataset
from benchmarks.drain.events import WINDOW_MS

_END_OF_TIME = 1 << 62

_EXPECTED = f"""
CREATE OR REPLACE TABLE expected AS
SELECT customer AS key, ts - ts % {WINDOW_MS} AS start_ms, count(*)::BIGINT AS count,
    (sum(amount) * ?)::DECIMAL(18, 2) AS total, (max(amount) * ?)::DECIMAL(18, 2) AS max
FROM read_json(?, format = 'newline_delimited',
    columns = {{customer: 'VARCHAR', amount: 'DECIMAL(18, 2)', ts: 'BIGINT'}})
GROUP BY ALL
"""  # noqa: S608

_RESULT = """
CREATE OR REPLACE TABLE result AS FROM read_csv(?, header = false, columns = {key: 'VARCHAR', start_ms: 'BIGINT',
    count: 'BIGINT', total: 'DECIMAL(18, 2)', max: 'DECIMAL(18, 2)', closed: 'BOOLEAN'})
"""

# For peers without a maximum.
_COPY_MAX = """
UPDATE result SET max = expected.max FROM expected
WHERE expected.key = result.key AND expected.start_ms = result.start_ms
"""

_MISSING = """
SELECT count(*), min(key || ' at ' || start_ms) FROM (
    SELECT key, start_ms, count, total, max, start_ms < $closed_before AS closed FROM expected
    WHERE NOT $only_closed OR start_ms < $closed_before
    EXCEPT ALL FROM result)
"""

_UNEXPECTED = """
SELECT count(*), min(key || ' at ' || start_ms) FROM (
    FROM result EXCEPT ALL
    SELECT key, start_ms, count, total, max, start_ms < $closed_before AS closed FROM expected
    WHERE NOT $only_closed OR start_ms < $closed_before)
"""


class Oracle:
    """The expected windows of a dataset.

    ``times`` is the factor by which the query multiplies the amounts. ``bounded`` is for engines that close all windows
    at the end of the files.
    """

    def __init__(self, dataset: Dataset, *, times: int = 1, bounded: bool = False) -> None:
        self._db = duckdb.connect()
        self._db.execute("SET threads = 2")
        self._db.execute(_EXPECTED, [times, times, [str(path) for path in dataset.files]])
        self._closed_before = _END_OF_TIME if bounded else dataset.closed_before_ms()
        events, total = self._row("SELECT sum(count), sum(total) FROM expected")
        if events != dataset.events or total != Decimal(dataset.cents * times) / 100:
            raise RuntimeError(f"the oracle read {events} events with a total of {total}, unlike the generator")

    @property
    def rows(self) -> int:
        return int(str(self._row("SELECT count(*) FROM expected")[0]))

    @property
    def closed_rows(self) -> int:
        where = f"SELECT count(*) FROM expected WHERE start_ms < {self._closed_before}"  # noqa: S608
        return int(str(self._row(where)[0]))

    def problems(self, result: Path, *, only_closed: bool = False, without_max: bool = False) -> list[str]:
        """Compare a CSV file with rows of key, window start in ms, count, total, max, closed. Return the problems."""
        self._db.execute(_RESULT, [str(result)])
        if without_max:
            self._db.execute(_COPY_MAX)
        parameters = {"closed_before": self._closed_before, "only_closed": only_closed}
        (missing, first_missing) = self._row(_MISSING, parameters)
        (unexpected, first_unexpected) = self._row(_UNEXPECTED, parameters)
        problems = []
        if missing:
            problems.append(f"{missing} rows are missing or wrong, such as {first_missing}")
        if unexpected:
            problems.append(f"{unexpected} rows are unexpected, such as {first_unexpected}")
        return problems

    def close(self) -> None:
        self._db.close()

    def _row(self, query: str, parameters: object = None) -> tuple[object, ...]:
        row = self._db.execute(query, parameters).fetchone()
        return tuple(row) if row is not None else ()
