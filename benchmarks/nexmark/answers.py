"""Oracle: DuckDB's answers over the events that a query has read, and the comparison with its rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.dataset import Dataset
from benchmarks.nexmark.events import KEYS, TABLES
from benchmarks.nexmark.plan import DUCKDB
from penstock.log.queue import hash_partition

#: The next offset to read by table and partition.
Positions = Mapping[tuple[str, int], int]

_COLUMNS = {
    "person": {
        "id": "bigint",
        "name": "varchar",
        "emailAddress": "varchar",
        "creditCard": "varchar",
        "city": "varchar",
        "state": "varchar",
        "dateTime": "timestamptz",
        "extra": "varchar",
    },
    "auction": {
        "id": "bigint",
        "itemName": "varchar",
        "description": "varchar",
        "initialBid": "bigint",
        "reserve": "bigint",
        "dateTime": "timestamptz",
        "expires": "timestamptz",
        "seller": "bigint",
        "category": "bigint",
        "extra": "varchar",
    },
    "bid": {
        "auction": "bigint",
        "bidder": "bigint",
        "price": "bigint",
        "channel": "varchar",
        "url": "varchar",
        "dateTime": "timestamptz",
        "extra": "varchar",
    },
}
_LOAD = """
CREATE TABLE all_{table} AS
WITH events AS (
    SELECT *, row_number() OVER () AS line
    FROM read_json(?, format = 'newline_delimited', columns = {columns})
)
SELECT events.*, partitions.partition,
    row_number() OVER (PARTITION BY partitions.partition ORDER BY line) - 1 AS "offset"
FROM events JOIN partitions ON events.{key} = partitions.key
"""
_READ = """
CREATE OR REPLACE TEMP VIEW {table} AS
SELECT events.* EXCLUDE (line), events.partition * (1::bigint << 40) + events."offset" AS arrival, appended.appended_at
FROM all_{table} events
JOIN positions ON positions.queue = '{table}' AND positions.partition = events.partition
    AND events."offset" < positions.next_offset
ASOF LEFT JOIN appended ON appended.queue = '{table}' AND appended.partition = events.partition
    AND events."offset" >= appended.first_offset
"""
_PG_TYPES = {"VARCHAR": "text", "DOUBLE": "double precision", "TIMESTAMP WITH TIME ZONE": "timestamptz"}


class Answers:
    """The events in DuckDB, with their partitions and offsets."""

    def __init__(self, dataset: Dataset, partitions: Mapping[str, int]) -> None:
        self._conn = duckdb.connect()
        self._conn.execute("SET TimeZone = 'UTC'")
        self._conn.execute("CREATE TABLE positions (queue varchar, partition bigint, next_offset bigint)")
        self._conn.execute(
            "CREATE TABLE appended (queue varchar, partition bigint, first_offset bigint, appended_at timestamptz)"
        )
        self._conn.execute(
            "CREATE TABLE side_input AS SELECT * FROM read_csv(?, header = false, names = ['key', 'value'])",
            [str(dataset.side_input)],
        )
        for table in TABLES:
            self._load(table, [str(path) for path in dataset.files(table)], partitions[table])
        self.read_all()

    def _load(self, table: str, files: list[str], partitions: int) -> None:
        columns = _struct(_COLUMNS[table])
        key = KEYS[table]
        keys = self._conn.execute(
            f"SELECT DISTINCT {key} FROM read_json(?, format = 'newline_delimited', columns = {columns})",  # noqa: S608
            [files],
        ).fetchall()
        rows = [(number, int(hash_partition(str(number), partitions))) for (number,) in keys]
        self._conn.register("partitions", pa.table(list(zip(*rows, strict=True)), names=["key", "partition"]))
        self._conn.execute(_LOAD.format(table=table, columns=columns, key=key), [files])
        self._conn.unregister("partitions")

    def set_append_times(self, table: str, times: list[tuple[int, int, Any]]) -> None:
        """Set the append times: partition, first offset, time."""
        rows = [(table, *row) for row in times]
        self._conn.executemany("INSERT INTO appended VALUES (?, ?, ?, ?)", rows)
        self._create_views()

    def ends(self) -> Positions:
        """Return the positions after all events."""
        ends: dict[tuple[str, int], int] = {}
        for table in TABLES:
            rows = self._conn.execute(f"SELECT partition, count(*) FROM all_{table} GROUP BY ALL").fetchall()  # noqa: S608
            ends |= {(table, partition): count for partition, count in rows}
        return ends

    def read_all(self) -> None:
        """Answer over all events."""
        self.read_until(self.ends())

    def read_until(self, positions: Positions) -> None:
        """Answer over the events before the positions."""
        self._conn.execute("DELETE FROM positions")
        rows = [(queue, partition, offset) for (queue, partition), offset in positions.items()]
        self._conn.executemany("INSERT INTO positions VALUES (?, ?, ?)", rows)
        self._create_views()

    def _create_views(self) -> None:
        for table in TABLES:
            self._conn.execute(_READ.format(table=table))

    def columns(self, query: str) -> dict[str, str]:
        """Return the columns of a query and their types."""
        rows = self._conn.execute(f"DESCRIBE {DUCKDB[query]}").fetchall()
        return {name: kind for name, kind, *_ in rows}

    def postgresql_columns(self, query: str) -> dict[str, str]:
        """Return the columns of a query and their types in PostgreSQL."""
        return {name: _PG_TYPES.get(kind, kind) for name, kind in self.columns(query).items()}

    def count(self, query: str) -> int:
        """Return the number of rows of a query."""
        rows = self._conn.execute(f"SELECT count(*) FROM ({DUCKDB[query]})").fetchall()  # noqa: S608
        return int(rows[0][0])

    def csv_problems(self, query: str, path: Path, compared: str = "SELECT * FROM {rows}") -> list[str]:
        """Compare with rows as CSV, in the order of the columns."""
        columns = _struct(self.columns(query))
        return self._problems(
            query,
            f"SELECT * FROM read_csv('{path}', header = false, auto_detect = false, columns = {columns})",  # noqa: S608
            compared,
        )

    def json_problems(self, query: str, path: Path) -> list[str]:
        """Compare with rows as NDJSON."""
        columns = self.columns(query)
        names = ", ".join(f'"{name}"' for name in columns)
        rows = f"SELECT {names} FROM read_json('{path}', format = 'newline_delimited', columns = {_struct(columns)})"  # noqa: S608
        return self._problems(query, rows)

    def parquet_problems(self, query: str, directory: Path) -> list[str]:
        """Compare with the Parquet files of a directory."""
        names = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in self.columns(query).items())
        return self._problems(query, f"SELECT {names} FROM read_parquet('{directory}/**/*.parquet')")  # noqa: S608

    def partitioned_csv_problems(self, query: str, directory: Path, partitions: tuple[str, ...]) -> list[str]:
        """Compare with CSV files in directories that are named for the values of the last columns."""
        columns = self.columns(query)
        stored = _struct({name: kind for name, kind in columns.items() if name not in partitions})
        values = ", ".join(
            f"url_decode(regexp_extract(filename, '{name}=([^/]*)', 1)) AS {name}" for name in partitions
        )
        return self._problems(
            query,
            f"SELECT * EXCLUDE (filename), {values} FROM read_csv('{directory}/**/part-*', header = false, "  # noqa: S608
            f"auto_detect = false, hive_partitioning = false, filename = true, columns = {stored})",
        )

    def _problems(self, query: str, rows: str, compared: str = "SELECT * FROM {rows}") -> list[str]:
        """Return how the rows differ, as multisets."""
        self._conn.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {DUCKDB[query]}")
        self._conn.execute(f"CREATE OR REPLACE TEMP TABLE actual AS {rows}")
        problems = []
        for problem, first, second in (("missing", "expected", "actual"), ("unexpected", "actual", "expected")):
            difference = f"{compared.format(rows=first)} EXCEPT ALL {compared.format(rows=second)}"
            found = self._conn.execute(f"SELECT count(*) FROM ({difference})").fetchall()[0][0]  # noqa: S608
            if found:
                example = self._conn.execute(f"{difference} LIMIT 1").fetchone()
                problems.append(f"{found:,} {problem}, such as {_shorten(example)}")
        return problems

    def close(self) -> None:
        self._conn.close()


def _struct(columns: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items()) + "}"


def _shorten(row: object) -> str:
    text = str(row)
    return text if len(text) <= 200 else f"{text[:200]}..."
