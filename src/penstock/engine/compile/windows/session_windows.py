"""Session windows: assigns events to sessions, starting from the open sessions.

The sessions of a key are the union of its events' intervals, each from the event's time to the gap after it. A session
closes only when no event in time can overlap with it any more (``close_delay_us``). So the sessions of a key
are disjoint, and they do not depend on how events are divided into cycles. A late event that is to count joins closed
sessions as well, and corrects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from psycopg.rows import args_row
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.spark_task import translate_database_errors, worker_connection
from penstock.stream.time_rules import TimeRules

_sql = Statements("penstock.engine.compile.windows", "session_windows.sql")

_Array = np.ndarray[Any, Any]

#: The columns that are added to each event. A row with ``__old_start`` is not an event, but a session that was
#: extended, merged or corrected.
SESSION_COLUMNS = pa.schema(
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
    schema = StructType([*frame.schema.fields, *from_arrow_schema(SESSION_COLUMNS).fields])
    return frame.mapInArrow(SessionAssigner(gap_us, rules, config, to_arrow_schema(schema, timezone="UTC")), schema)


def late_events(times: _Array, watermarks: _Array, gap_us: int, rules: TimeRules) -> _Array:
    """Which events are late. An event that is not late does not overlap with a session that the watermark closed."""
    if rules.event_time is None:
        late: _Array = times + rules.grace_us < watermarks
    else:
        late = times + (gap_us + rules.grace_us) <= watermarks
    return late


def merge_intervals(keys: _Array, starts: _Array, ends: _Array) -> tuple[_Array, _Array, _Array]:
    """Merge the intervals of each key that overlap. Intervals that only touch are not merged.

    Returns the merged interval that each one belongs to, and the starts and ends of the merged intervals.
    """
    order = np.lexsort((starts, keys))
    keys, starts = keys[order], starts[order]
    # The highest end so far within each key: ends are replaced by their ranks, which leave room for the key.
    values, ranks = np.unique(ends, return_inverse=True)
    base = keys * len(values)
    highest = values[np.maximum.accumulate(base + ranks[order]) - base]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (keys[1:] != keys[:-1]) | (starts[1:] >= highest[:-1])
    merged = np.empty(len(order), dtype=np.int64)
    merged[order] = np.cumsum(is_first) - 1
    # The first interval of all is always the start of one, so the last of all is an end.
    is_last = np.roll(is_first, -1)
    return merged, starts[is_first], highest[is_last]


class _SessionRow(NamedTuple):
    key: str
    start: int
    end: int


class _StoredSessions(NamedTuple):
    """Sessions as the last cycle left them."""

    #: Indexes of the keys.
    keys: _Array
    starts: _Array
    ends: _Array
    is_closed: _Array

    def overlaps(self, keys: _Array, starts: _Array, ends: _Array) -> _Array:
        """Which of the intervals overlap with a closed session."""
        closed: dict[int, list[tuple[int, int]]] = {}
        for key, start, end, is_closed in zip(*(column.tolist() for column in self), strict=True):
            if is_closed:
                closed.setdefault(key, []).append((start, end))
        result = np.zeros(len(keys), dtype=bool)
        for row in np.flatnonzero(np.isin(keys, list(closed))):
            result[row] = any(starts[row] < end and start < ends[row] for start, end in closed[keys[row]])
        return result


@dataclass(frozen=True)
class SessionAssigner:
    """The function that Spark calls in a worker."""

    gap_us: int
    rules: TimeRules
    config: ReadConfig
    #: The columns of the result.
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled_batches = [batch for batch in batches if batch.num_rows]
        if filled_batches:
            yield from self._assign(pa.Table.from_batches(filled_batches).combine_chunks()).to_batches()

    def _assign(self, table: pa.Table) -> pa.Table:
        encoded = table.column("__group_key").combine_chunks().dictionary_encode()
        names, keys = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
        starts, watermarks = (table.column(name).to_numpy() for name in ("__time", "__watermark"))
        ends = starts + self.gap_us
        late = late_events(starts, watermarks, self.gap_us, self.rules)
        always_counts = np.full(len(keys), True)
        if self.rules.late != "include":
            always_counts = table.column("__redriven").to_numpy()
        stored = self._load_sessions(names, keys, starts, ends, late, late & ~always_counts)
        if stored.is_closed.any():
            # After a change of the partitioning, a key's new partition can be behind its old one.
            late |= stored.overlaps(keys, starts, ends)
        rejected = late & ~always_counts
        counted = np.flatnonzero(~rejected)
        merged, merged_starts, merged_ends = merge_intervals(
            np.concatenate([keys[counted], stored.keys]),
            np.concatenate([starts[counted], stored.starts]),
            np.concatenate([ends[counted], stored.ends]),
        )
        of_event, of_stored = merged[: len(counted)], merged[len(counted) :]
        starts, ends = starts.copy(), ends.copy()
        starts[counted], ends[counted] = merged_starts[of_event], merged_ends[of_event]
        corrects_closed = np.zeros(len(merged_starts), dtype=bool)
        corrects_closed[of_stored[stored.is_closed]] = True
        is_late = rejected.copy()
        is_late[counted] = corrects_closed[of_event]
        partitions = np.full(len(merged_starts), -1, dtype=np.int64)
        np.maximum.at(partitions, of_event, table.column("__partition").to_numpy()[counted])
        spans = (merged_starts[of_stored], merged_ends[of_stored])
        # A closed session that keeps its span is reported too: the commit may have to open it again.
        is_moved = (spans[0] != stored.starts) | (spans[1] != stored.ends) | stored.is_closed
        is_moved &= partitions[of_stored] >= 0
        events = self._to_rows(
            table,
            {
                "__window_start": starts,
                "__window_end": ends,
                "__is_late": is_late,
                "__late_partition": pa.array(table.column("__partition").to_numpy(), mask=~rejected),
                "__late_offset": pa.array(table.column("__offset").to_numpy(), mask=~rejected),
            },
        )
        moves = self._to_rows(
            None,
            {
                "__group_key": pa.array([names[key] for key in stored.keys[is_moved].tolist()], pa.string()),
                "__partition": partitions[of_stored][is_moved],
                "__window_start": spans[0][is_moved],
                "__window_end": spans[1][is_moved],
                "__is_late": np.zeros(is_moved.sum(), dtype=bool),
                "__old_start": stored.starts[is_moved],
                "__old_end": stored.ends[is_moved],
                "__old_is_closed": stored.is_closed[is_moved],
            },
        )
        return pa.concat_tables([events, moves])

    def _to_rows(self, table: pa.Table | None, added: dict[str, Any]) -> pa.Table:
        """Rows of the result: the columns of a table and others, and nulls."""
        rows = len(added["__window_start"])
        names = [] if table is None else table.column_names
        arrays = [
            pa.array(added[field.name], field.type)
            if field.name in added
            else (table.column(field.name) if table is not None and field.name in names else pa.nulls(rows, field.type))
            for field in self.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _load_sessions(
        self, names: list[str], keys: _Array, starts: _Array, ends: _Array, late: _Array, rejected: _Array
    ) -> _StoredSessions:
        """Load the open sessions of the keys, and the closed ones that events could overlap with."""
        rows: list[tuple[_SessionRow, bool]] = []
        if self.config.query_id:  # a preview has no state
            rows += [(row, False) for row in self._query("open_sessions", {"keys": sorted(names)})]
            # One range for all events of a key that are in time, and one for each late event.
            in_time = np.flatnonzero(~late)
            lowest, highest = np.full(len(names), 2**62), np.full(len(names), -(2**62))
            np.minimum.at(lowest, keys[in_time], starts[in_time])
            np.maximum.at(highest, keys[in_time], ends[in_time])
            ranges = np.flatnonzero(lowest < highest)
            single = np.flatnonzero(late & ~rejected)
            params = {
                "keys": [names[key] for key in np.concatenate([ranges, keys[single]]).tolist()],
                "starts": int_array(np.concatenate([lowest[ranges], starts[single]]).tolist()),
                "ends": int_array(np.concatenate([highest[ranges], ends[single]]).tolist()),
            }
            rows += [(row, True) for row in self._query("closed_sessions", params)]
        codes = {name: code for code, name in enumerate(names)}
        return _StoredSessions(
            np.array([codes[row.key] for row, _ in rows], dtype=np.int64),
            np.array([row.start for row, _ in rows], dtype=np.int64),
            np.array([row.end for row, _ in rows], dtype=np.int64),
            np.array([is_closed for _, is_closed in rows], dtype=bool),
        )

    def _query(self, name: str, params: dict[str, Any]) -> list[_SessionRow]:
        statement = fill_placeholders(_sql[name], id=int(self.config.query_id))
        with translate_database_errors():
            cursor = worker_connection(self.config.conninfo).cursor(row_factory=args_row(_SessionRow))
            return cursor.execute(statement, params).fetchall()
