"""Match the events of a stream-stream join, in a Spark worker.

A task joins the events of its cycle with each other and with the stored rows. A pair is found when the second of its
events is read. A row stays in the state until the watermark excludes further matches. So each pair is found exactly
once, however the events are divided into cycles.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.db.pg_arrays import int_array
from penstock.engine.joins.join_state import JOIN_ROW_SCHEMA, LEFT, RIGHT, JoinState, encode_rows
from penstock.engine.worker.json_columns import JsonColumnDecoder
from penstock.engine.worker.read_config import EVENT_JSON, SYSTEM_COLUMNS, ReadConfig
from penstock.engine.worker.spark_task import (
    current_task,
    load_plan,
    send_stage_report,
    translate_database_errors,
    worker_connection,
)
from penstock.engine.worker.task_reports import EventRef, TaskReport

#: The stage numbers of the reports, after those of the inputs' stages.
_MATCH_STAGE, _EXPIRED_STAGE = 900, 901
#: An event of either input, with its join key.
INPUT_SCHEMA = pa.schema(
    [
        *SYSTEM_COLUMNS,
        ("__side", pa.int32()),
        # The join key as text; null if the event cannot match.
        ("__k", pa.string()),
        ("__line", pa.string()),
    ]
)
#: A batch of pairs is complete at so many pairs or characters.
_BATCH_PAIRS, _BATCH_CHARACTERS = 20_000, 16 << 20
_decode_pair = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw] | None]).decode


class _JoinRow(NamedTuple):
    """An event of this cycle, or a stored row, which has an id."""

    side: int
    #: The empty text stands for no key. A join key is a JSON list, so it is never empty.
    key: str
    time: int
    line: str
    event_key: str | None
    partition: int
    offset: int
    id: int | None = None


@dataclass
class _KeyRows:
    """The rows of one join key: new and stored ones, each by side and ordered by time."""

    new: tuple[list[_JoinRow], list[_JoinRow]] = field(default_factory=lambda: ([], []))
    stored: tuple[list[_JoinRow], list[_JoinRow]] = field(default_factory=lambda: ([], []))


@dataclass(frozen=True)
class JoinMatcher:
    """The function with which Spark joins the events of a task."""

    read_config: ReadConfig
    state: JoinState
    #: The structs ``left`` and ``right``, with the fields that later steps use.
    fields: pa.Schema
    with_event_json: bool

    @property
    def output_schema(self) -> pa.Schema:
        event_json = [pa.field(EVENT_JSON, pa.string())] if self.with_event_json else []
        return pa.schema([*SYSTEM_COLUMNS, *event_json, *self.fields])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs, and report the rows to store and the late events."""
        inputs = [batch for batch in batches if batch.num_rows]
        if not inputs:
            return
        report = TaskReport([], [], {})
        keys, without_key = self._group_by_key(pa.Table.from_batches(inputs), report)
        self._load_partners(keys)
        pairs = _PairBatch(self)
        matched: set[int] = set()
        for key, rows in keys.items():
            for left, right in self._find_pairs(rows):
                pairs.add(left, right)
                if left.id is None:
                    matched.add(id(left))
                elif self.state.is_outer:
                    report.matched_rows.append((key, left.time, left.id))
            if pairs.is_full:
                yield from pairs.take()
        yield from pairs.take()
        report.matched_rows = sorted(set(report.matched_rows))
        report.added_rows = encode_rows(self._new_rows(keys, without_key, matched))
        send_stage_report(self.read_config, _MATCH_STAGE, report)

    def _group_by_key(self, table: pa.Table, report: TaskReport) -> tuple[dict[str, _KeyRows], list[_JoinRow]]:
        """Return the events by join key, and the left events without one. Late events go to the report."""
        keys: dict[str, _KeyRows] = {}
        without_key: list[_JoinRow] = []
        names = ("__side", "__k", "__time", "__line", "__key", "__partition", "__offset", "__watermark", "__redriven")
        columns = [table.column(name).to_pylist() for name in names]
        for side, key, time, line, event_key, partition, offset, watermark, redriven in zip(*columns, strict=True):
            row = _JoinRow(side, key or "", time, line, event_key, partition, offset)
            if time < watermark and not redriven:
                report.late.append(EventRef(partition, offset))
            elif key is not None:
                keys.setdefault(key, _KeyRows()).new[side].append(row)
            elif side == LEFT and self.state.is_outer:
                without_key.append(row)
        return keys, without_key

    def _load_partners(self, keys: dict[str, _KeyRows]) -> None:
        """Load the stored rows of the other side, within the time range of each key's events."""
        if not keys or not self.read_config.query_id:
            return  # a preview has no state
        before, after = self.state.before_us, self.state.after_us
        ranges: list[tuple[str, int, int, int]] = []
        for key, rows in keys.items():
            left, right = rows.new
            if left:
                ranges.append((key, RIGHT, left[0].time - before, left[-1].time + after))
            if right:
                ranges.append((key, LEFT, right[0].time - after, right[-1].time + before))
        range_keys, *numbers = zip(*ranges, strict=True)
        sides, lows, highs = map(int_array, numbers)
        params = self.state.params(keys=list(range_keys), sides=sides, lows=lows, highs=highs)
        with translate_database_errors():
            conn = worker_connection(self.read_config.conninfo)
            for side, key, time, row_id, event_key, line in conn.execute(self.state.statement("find_partners"), params):
                keys[key].stored[side].append(_JoinRow(side, key, time, line, event_key, 0, 0, row_id))

    def _find_pairs(self, rows: _KeyRows) -> Iterator[tuple[_JoinRow, _JoinRow]]:
        """Yield the pairs of one key that include at least one new row."""
        before, after = self.state.before_us, self.state.after_us
        for rights in (rows.new[RIGHT], rows.stored[RIGHT]):
            times = [row.time for row in rights]
            for left in rows.new[LEFT]:
                for index in range(bisect_left(times, left.time - before), bisect_right(times, left.time + after)):
                    yield left, rights[index]
        lefts = rows.stored[LEFT]
        times = [row.time for row in lefts]
        for right in rows.new[RIGHT]:
            for index in range(bisect_left(times, right.time - after), bisect_right(times, right.time + before)):
                yield lefts[index], right

    def _new_rows(self, keys: dict[str, _KeyRows], without_key: list[_JoinRow], matched: set[int]) -> pa.Table:
        new = [row for rows in keys.values() for side in (LEFT, RIGHT) for row in rows.new[side]]
        new += without_key
        columns = [
            [row.side for row in new],
            [row.key for row in new],
            [row.time for row in new],
            [row.partition for row in new],
            [row.offset for row in new],
            [row.event_key for row in new],
            [row.line for row in new],
            [id(row) in matched for row in new],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, JOIN_ROW_SCHEMA, strict=True)]
        return pa.table(arrays, schema=JOIN_ROW_SCHEMA)


class _PairBatch:
    def __init__(self, matcher: JoinMatcher) -> None:
        self._schema = matcher.output_schema
        self._decoder = JsonColumnDecoder(matcher.fields)
        self._lines: list[str] = []
        #: The values of ``SYSTEM_COLUMNS`` for each line.
        self._positions: list[tuple[int, int, str | None, int, int, bool]] = []
        self._characters = 0

    @property
    def is_full(self) -> bool:
        return len(self._lines) >= _BATCH_PAIRS or self._characters >= _BATCH_CHARACTERS

    def add(self, left: _JoinRow, right: _JoinRow | None) -> None:
        """Add a pair, or a left row without a match. Its partition and offset are those of the new event in it."""
        new = left if left.id is None or right is None else right
        time = left.time if right is None else max(left.time, right.time)
        line = f'{{"left":{left.line},"right":{"null" if right is None else right.line}}}'
        self._lines.append(line)
        self._positions.append((new.partition, new.offset, left.event_key, time, 0, False))
        self._characters += len(line)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected pairs and start a new batch."""
        if not self._lines:
            return
        count = len(self._lines)
        lines = [line.encode() for line in self._lines]
        decoded = self._decoder.decode(b"\n".join(lines), count)
        if decoded.errors:
            lines = [self._drop_invalid_fields(line) if i in decoded.errors else line for i, line in enumerate(lines)]
            decoded = self._decoder.decode(b"\n".join(lines), count)
        positions = zip(*self._positions, strict=True)
        columns = {
            column.name: pa.array(values, column.type) for column, values in zip(SYSTEM_COLUMNS, positions, strict=True)
        }
        columns[EVENT_JSON] = pa.array(self._lines, pa.string())
        arrays = [columns[f.name] if f.name in columns else decoded.table.column(f.name) for f in self._schema]
        yield from pa.Table.from_arrays(arrays, schema=self._schema).combine_chunks().to_batches()
        self._lines, self._positions, self._characters = [], [], 0

    def _drop_invalid_fields(self, line: bytes) -> bytes:
        """Drop fields that do not match their type. The row may have been stored before a step used these fields."""
        inputs = _decode_pair(line)
        for struct in self._decoder.schema:
            event = inputs[struct.name]
            if event is not None:
                valid = [f.name for f in struct.type if f.name in event and _is_valid(f, event[f.name])]
                inputs[struct.name] = {name: event[name] for name in valid}
        return msgspec.json.encode(inputs)


def _is_valid(field: pa.Field, value: msgspec.Raw) -> bool:
    return not JsonColumnDecoder(pa.schema([field])).decode(msgspec.json.encode({field.name: value}), 1).errors


@dataclass(frozen=True)
class ExpiredRowReader:
    """The function with which Spark emits the expired left rows of an outer join that found no match."""

    matcher: JoinMatcher

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield as many rows as the plan of the cycle allows, and report how many there are."""
        task = current_task()
        for _ in batches:
            if task is not None and (limit := load_plan(self.matcher.read_config, task.job).expired_rows):
                yield from self._read(limit)

    def _read(self, limit: int) -> Iterator[pa.RecordBatch]:
        state, config, count = self.matcher.state, self.matcher.read_config, 0
        rows = _PairBatch(self.matcher)
        with translate_database_errors():
            cursor = worker_connection(config.conninfo).cursor()
            stream = cursor.stream(state.statement("expired_rows"), state.params(limit=limit))
            for partition, offset, event_key, time, line in stream:
                rows.add(_JoinRow(LEFT, "", time, line, event_key, partition, offset), None)
                count += 1
                if rows.is_full:
                    yield from rows.take()
        yield from rows.take()
        if count:
            send_stage_report(config, _EXPIRED_STAGE, TaskReport([], [], {}, expired_rows=count))
