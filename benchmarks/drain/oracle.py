"""The oracle: DuckDB asks the files the same question, and holds every row of a result against its own."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb

from benchmarks.drain.events import WINDOW_MS
from benchmarks.drain.stock import Stock

_END_OF_TIME = 1 << 62

_ANSWER = f"""
CREATE OR REPLACE TABLE answer AS
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

# For those who do not count a maximum.
_KNOWN_MAX = """
UPDATE result SET max = answer.max FROM answer WHERE answer.key = result.key AND answer.start_ms = result.start_ms
"""

_MISSING = """
SELECT count(*), min(key || ' at ' || start_ms) FROM (
    SELECT key, start_ms, count, total, max, start_ms < $closed_before AS closed FROM answer
    WHERE NOT $only_closed OR start_ms < $closed_before
    EXCEPT ALL FROM result)
"""

_UNEXPECTED = """
SELECT count(*), min(key || ' at ' || start_ms) FROM (
    FROM result EXCEPT ALL
    SELECT key, start_ms, count, total, max, start_ms < $closed_before AS closed FROM answer
    WHERE NOT $only_closed OR start_ms < $closed_before)
"""


class Oracle:
    """What the windows of a stock hold, to the cent; ``times`` is what a pipeline multiplies the amounts by.

    ``bounded``: to whom the end of the files is the end of time, so that all windows are closed.
    """

    def __init__(self, stock: Stock, *, times: int = 1, bounded: bool = False) -> None:
        self._db = duckdb.connect()
        self._db.execute("SET threads = 2")
        self._db.execute(_ANSWER, [times, times, [str(path) for path in stock.files]])
        self._closed_before = _END_OF_TIME if bounded else stock.closed_before_ms()
        events, total = self._row("SELECT sum(count), sum(total) FROM answer")
        if events != stock.events or total != Decimal(stock.cents * times) / 100:
            raise RuntimeError(f"the oracle saw {events} events of {total}: it does not read what the generator wrote")

    @property
    def rows(self) -> int:
        return int(str(self._row("SELECT count(*) FROM answer")[0]))

    @property
    def closed_rows(self) -> int:
        where = f"SELECT count(*) FROM answer WHERE start_ms < {self._closed_before}"  # noqa: S608
        return int(str(self._row(where)[0]))

    def problems(self, result: Path, *, only_closed: bool = False, without_max: bool = False) -> list[str]:
        """Return the problems of a result with rows of key, window start in ms, count, total, max, closed."""
        self._db.execute(_RESULT, [str(result)])
        if without_max:
            self._db.execute(_KNOWN_MAX)
        given = {"closed_before": self._closed_before, "only_closed": only_closed}
        (missing, first_missing) = self._row(_MISSING, given)
        (unexpected, first_unexpected) = self._row(_UNEXPECTED, given)
        problems = []
        if missing:
            problems.append(f"{missing} rows are missing or wrong, such as {first_missing}")
        if unexpected:
            problems.append(f"{unexpected} rows should not be there like this, such as {first_unexpected}")
        return problems

    def close(self) -> None:
        self._db.close()

    def _row(self, query: str, given: object = None) -> tuple[object, ...]:
        row = self._db.execute(query, given).fetchone()
        return tuple(row) if row is not None else ()
