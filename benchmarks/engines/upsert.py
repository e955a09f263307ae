"""Upsert of a batch in ``foreachBatch``: merges the groups into a table in one transaction.

Rows go to the driver as Arrow and from there by COPY. Windows behind the watermark move to a second table.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Any, Self

import psycopg
import pyarrow as pa
import pyarrow.csv as pc


class Upsert:
    """The tables ``<name>_live`` and ``<name>_closed``, the view ``<name>_all`` of both, and a connection.

    The state store has the total of a group, so a newer row replaces the older one.
    """

    def __init__(self, url: str, name: str, columns: dict[str, str]) -> None:
        self._conn = psycopg.connect(url, autocommit=True)
        self._name, self._columns = name, list(columns)
        values = ", ".join(f"{column} {kind} NOT NULL" for column, kind in columns.items())
        keys = "key text NOT NULL, window_start timestamptz NOT NULL"
        self._run(f"CREATE TABLE {name}_live ({keys}, {values}, PRIMARY KEY (key, window_start))")
        self._run(f"CREATE TABLE {name}_closed ({keys}, {values}, PRIMARY KEY (key, window_start))")
        self._run(
            f"""CREATE VIEW {name}_all AS
            SELECT *, true AS is_open FROM {name}_live UNION ALL SELECT *, false FROM {name}_closed"""  # noqa: S608
        )
        self._run(f"CREATE TEMP TABLE fresh ({keys}, {values}) ON COMMIT DELETE ROWS")

    def merge(self, groups: Any, closed_before_ms: int | None) -> None:
        """Merge an Arrow table of groups, and close windows that start before a time."""
        text = io.BytesIO()
        pc.write_csv(pa.table(groups), text, pc.WriteOptions(include_header=False, quoting_style="none"))
        changes = ", ".join(f"{column} = excluded.{column}" for column in self._columns)
        with self._conn.transaction(), self._conn.cursor() as cursor:
            with cursor.copy("COPY fresh FROM STDIN (FORMAT csv)") as copy:
                copy.write(text.getbuffer())
            cursor.execute(
                f"""INSERT INTO {self._name}_live SELECT * FROM fresh
                ON CONFLICT (key, window_start) DO UPDATE SET {changes}""".encode()  # noqa: S608
            )
            if closed_before_ms is not None:
                self._move(cursor, closed_before_ms)

    def close_windows(self, closed_before_ms: int) -> None:
        """Close windows that start before a time."""
        with self._conn.transaction(), self._conn.cursor() as cursor:
            self._move(cursor, closed_before_ms)

    def _move(self, cursor: psycopg.Cursor, closed_before_ms: int) -> None:
        cursor.execute(
            f"""WITH moved AS (DELETE FROM {self._name}_live WHERE window_start < to_timestamp(%s) RETURNING *)
            INSERT INTO {self._name}_closed SELECT * FROM moved""".encode(),  # noqa: S608
            (closed_before_ms / 1000,),
        )

    def _run(self, statement: str) -> None:
        self._conn.execute(statement.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conn.close()
