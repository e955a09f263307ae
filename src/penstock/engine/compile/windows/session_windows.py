"""Session windows: assigns events to sessions, starting from the open sessions.

Events of a key are processed in the order of their offsets. An event joins every session that it overlaps with and that
was still open when it came. These sessions are merged. So the result does not depend on how events are divided into
cycles. A late event that is to count joins closed sessions if it overlaps with no open one, and corrects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.task import translate_database_errors, worker_connection
from penstock.stream.time_rules import TimeRules

_sql = Statements("penstock.engine.compile.windows", "session_windows.sql")

#: The columns that are added to each event. A row with ``__old_start`` is not an event, but a session that was
#: extended or merged.
_SESSION_COLUMNS = pa.schema(
    [
        ("__window_start", pa.int64()),
        ("__window_end", pa.int64()),
        ("__is_late", pa.bool_()),
        ("__late_partition", pa.int64()),
        ("__late_offset", pa.int64()),
        ("__old_start", pa.int64()),
        ("__old_end", pa.int64()),
        ("__old_is_closed", pa.bool_()),
    ]
)


def assign_sessions(
    frame: DataFrame, gap_us: int, rules: TimeRules, config: ReadConfig, *, is_single_partition: bool
) -> DataFrame:
    if not is_single_partition:
        frame = frame.repartition("__group_key")
    ordered = frame.sortWithinPartitions("__group_key", "__partition", "__offset")
    schema = StructType([*frame.schema.fields, *from_arrow_schema(_SESSION_COLUMNS).fields])
    assigner = _SessionAssigner(gap_us, rules.grace_us, rules.late, config, to_arrow_schema(schema, timezone="UTC"))
    return ordered.mapInArrow(assigner, schema)


class _StoredSession(NamedTuple):
    """A session as the last cycle left it."""

    start: int
    end: int
    is_closed: bool


@dataclass(eq=False)
class _Session:
    start: int
    end: int
    #: The stored sessions that this one contains.
    stored: list[_StoredSession] = field(default_factory=list)
    #: True for a closed session that no event has joined yet.
    is_closed: bool = False
    #: The partition of the last event that joined.
    partition: int | None = None
    merged_into: _Session | None = None

    @property
    def corrects_closed(self) -> bool:
        return any(stored.is_closed for stored in self.stored)

    def resolve(self) -> _Session:
        """The session that this one was merged into, or itself."""
        session = self
        while session.merged_into is not None:
            session = session.merged_into
        return session


@dataclass(frozen=True)
class _SessionAssigner:
    """The function that Spark calls in a worker."""

    gap_us: int
    grace_us: int
    late: str
    config: ReadConfig
    #: The columns of the result.
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled_batches = [batch for batch in batches if batch.num_rows]
        if not filled_batches:
            return
        table = pa.Table.from_batches(filled_batches).combine_chunks()
        keys = table.column("__group_key").to_pylist()
        times, watermarks = (table.column(name).to_numpy() for name in ("__time", "__watermark"))
        late = times + (self.gap_us + self.grace_us) <= watermarks
        rejected = np.zeros(len(keys), dtype=bool)
        if self.late != "include":
            rejected = late & ~table.column("__redriven").to_numpy()
        sessions = self._load_sessions(keys, times, late & ~rejected)
        partitions = table.column("__partition").to_pylist()
        assigned: list[_Session] = []
        for key, partition, time, watermark, is_late, is_rejected in zip(
            keys, partitions, times.tolist(), watermarks.tolist(), late.tolist(), rejected.tolist(), strict=True
        ):
            if is_rejected:
                session = _Session(time, time + self.gap_us)
            else:
                session = self._join_session(sessions.setdefault(key, []), time, watermark, is_late)
                session.partition = partition
            assigned.append(session)
        yield from self._to_event_rows(table, assigned, rejected).to_batches()
        yield from self._to_merge_rows(sessions).to_batches()

    def _load_sessions(self, keys: list[str], times: Any, corrects: Any) -> dict[str, list[_Session]]:
        """Load the open sessions of the keys, and the closed ones that late events correct."""
        if not self.config.query_id:
            return {}  # a preview has no state
        sessions: dict[str, list[_Session]] = {}
        for key, start, end in self._query("open_sessions", {"keys": sorted(set(keys))}):
            sessions.setdefault(key, []).append(_Session(start, end, [_StoredSession(start, end, False)]))
        if corrects.any():
            starts = times[corrects]
            params = {
                "keys": [key for key, is_corrected in zip(keys, corrects.tolist(), strict=True) if is_corrected],
                "starts": int_array(starts.tolist()),
                "ends": int_array((starts + self.gap_us).tolist()),
            }
            for key, start, end in self._query("closed_sessions", params):
                stored = [_StoredSession(start, end, True)]
                sessions.setdefault(key, []).append(_Session(start, end, stored, is_closed=True))
        return sessions

    def _query(self, name: str, params: dict[str, Any]) -> list[tuple[str, int, int]]:
        """The key, start and end of stored sessions."""
        statement = fill_placeholders(_sql[name], id=int(self.config.query_id))
        with translate_database_errors():
            return worker_connection(self.config.conninfo).execute(statement, params).fetchall()

    def _join_session(self, sessions: list[_Session], time: int, watermark: int, is_late: bool) -> _Session:
        end = time + self.gap_us
        overlapping = [session for session in sessions if time < session.end and end > session.start]
        joined = [s for s in overlapping if not s.is_closed and s.end + self.grace_us > watermark]
        if is_late and not joined:
            joined = overlapping
        if len(joined) == 1:
            session = joined[0]
            session.start, session.end, session.is_closed = min(session.start, time), max(session.end, end), False
            return session
        session = _Session(time, end)
        for other in joined:
            session.start, session.end = min(session.start, other.start), max(session.end, other.end)
            session.stored += other.stored
            other.merged_into = session
            sessions.remove(other)
        sessions.append(session)
        return session

    def _to_event_rows(self, table: pa.Table, assigned: list[_Session], rejected: Any) -> pa.Table:
        """The events with their sessions. An event is late for the merge if its session may be in the history."""
        sessions = [session.resolve() for session in assigned]
        added = {
            "__window_start": pa.array([session.start for session in sessions], pa.int64()),
            "__window_end": pa.array([session.end for session in sessions], pa.int64()),
            "__is_late": pa.array(rejected | np.array([session.corrects_closed for session in sessions])),
            "__late_partition": pa.array(table.column("__partition").to_numpy(), mask=~rejected),
            "__late_offset": pa.array(table.column("__offset").to_numpy(), mask=~rejected),
        }
        nulls = {f.name: pa.nulls(len(sessions), f.type) for f in _SESSION_COLUMNS if f.name not in added}
        columns = {**{name: table.column(name) for name in table.column_names}, **added, **nulls}
        return pa.Table.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _to_merge_rows(self, sessions: dict[str, list[_Session]]) -> pa.Table:
        """The stored sessions that were extended or merged."""
        rows = [
            {
                "__group_key": key,
                "__window_start": session.start,
                "__window_end": session.end,
                "__is_late": False,
                "__partition": session.partition,
                "__old_start": stored.start,
                "__old_end": stored.end,
                "__old_is_closed": stored.is_closed,
            }
            for key, of_key in sessions.items()
            for session in of_key
            for stored in session.stored
            if (stored.start, stored.end) != (session.start, session.end)
        ]
        columns: list[Any] = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.schema]
        return pa.Table.from_arrays(columns, schema=self.schema)
