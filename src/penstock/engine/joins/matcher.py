"""In a Spark worker: the events of a cycle, of both sides of a join, with each other and with what waits.

A pair is found when the second of its events is read, whichever that is. An event waits until nothing can come for it:
time has come too far, on both sides. So each pair is found once, however the cycles fall.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.db.pg_arrays import numbers
from penstock.engine.joins.state import FRESH, LEFT, RIGHT, WaitingTable, pack
from penstock.engine.worker.json_columns import Parser
from penstock.engine.worker.read_config import DATA, META, Reading
from penstock.engine.worker.reports import Report
from penstock.engine.worker.task import asking, connection, current_task, load_plan, report_stage

#: The numbers that their reports go by: after those of both sides' stages.
_PAIRS, _ALONE = 900, 901
#: What comes in: an event of either side, ready to be joined.
EVENT = pa.schema(
    [
        *META,
        ("__side", pa.int32()),
        # What pairs have in common, as text; null: it is in no pair.
        ("__k", pa.string()),
        ("__line", pa.string()),
    ]
)
#: Pairs are handed on when there are so many, or so many characters of them.
_BATCH, _BATCH_BYTES = 20_000, 16 << 20
_decode_pair = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw] | None]).decode


class _Row(NamedTuple):
    """An event: one of this cycle, or one that waits, which has an id."""

    time: int
    line: str
    event_key: str | None
    partition: int
    offset: int
    id: int | None = None


@dataclass
class _Key:
    """The events of one key: those of the cycle, and those that wait, by side; each by time."""

    fresh: tuple[list[_Row], list[_Row]] = field(default_factory=lambda: ([], []))
    waiting: tuple[list[_Row], list[_Row]] = field(default_factory=lambda: ([], []))


@dataclass(frozen=True)
class Pairs:
    """What comes out: pairs as JSON, and of it the columns that are wanted."""

    reading: Reading
    table: WaitingTable
    #: ``left`` and ``right``, as far as something after the join looks into them.
    fields: pa.Schema
    with_data: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        whole = [pa.field(DATA, pa.string())] if self.with_data else []
        return pa.schema([*META, *whole, *self.fields])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the events of a task, and report what begins to wait and what came late."""
        some = [batch for batch in batches if batch.num_rows]
        if not some:
            return
        report = Report([], [], {})
        keys, lonely = self._sorted(pa.Table.from_batches(some), report)
        self._look_up(keys)
        out = _Out(self)
        matched: set[int] = set()
        for key, events in keys.items():
            for left, right in self._pairs(events):
                out.add(left, right)
                if left.id is None:
                    matched.add(id(left))
                elif self.table.sends_alone:
                    report.matched.append((key, left.time, left.id))
            if out.is_full:
                yield from out.take()
        yield from out.take()
        report.matched = sorted(set(report.matched))
        report.fresh = pack(self._fresh(keys, lonely, matched))
        report_stage(self.reading, _PAIRS, report)

    def _sorted(self, table: pa.Table, report: Report) -> tuple[dict[str, _Key], list[_Row]]:
        """The events by key, but for those that came late; and those of the left that have none."""
        keys: dict[str, _Key] = {}
        lonely: list[_Row] = []
        names = ("__side", "__k", "__time", "__line", "__key", "__partition", "__offset", "__bound", "__redriven")
        columns = [table.column(name).to_pylist() for name in names]
        for side, key, time, line, event_key, partition, offset, bound, redriven in zip(*columns, strict=True):
            if time < bound and not redriven:
                report.late.append((partition, offset))
            elif key is not None:
                keys.setdefault(key, _Key()).fresh[side].append(_Row(time, line, event_key, partition, offset))
            elif side == LEFT and self.table.sends_alone:
                lonely.append(_Row(time, line, event_key, partition, offset))
        return keys, lonely

    def _look_up(self, keys: dict[str, _Key]) -> None:
        """What waits on the other side of each key, within reach of its events."""
        if not keys or not self.reading.query:
            return  # only looked at: nothing waits
        before, after = self.table.before_us, self.table.after_us
        ranges: list[tuple[str, int, int, int]] = []
        for key, events in keys.items():
            left, right = events.fresh
            if left:
                ranges.append((key, RIGHT, left[0].time - before, left[-1].time + after))
            if right:
                ranges.append((key, LEFT, right[0].time - after, right[-1].time + before))
        params = self.table.params(
            keys=[key for key, _, _, _ in ranges],
            sides=numbers([side for _, side, _, _ in ranges]),
            lows=numbers([low for _, _, low, _ in ranges]),
            highs=numbers([high for _, _, _, high in ranges]),
        )
        with asking():
            found = connection(self.reading.conninfo).execute(self.table.statement("partners"), params)
            for side, key, time, row, event_key, line in found:
                keys[key].waiting[side].append(_Row(time, line, event_key, 0, 0, row))

    def _pairs(self, events: _Key) -> Iterator[tuple[_Row, _Row]]:
        """The pairs of a key of which at least one event is of this cycle."""
        before, after = self.table.before_us, self.table.after_us
        for others in (events.fresh[RIGHT], events.waiting[RIGHT]):
            times = [row.time for row in others]
            for left in events.fresh[LEFT]:
                for place in range(bisect_left(times, left.time - before), bisect_right(times, left.time + after)):
                    yield left, others[place]
        times = [row.time for row in events.waiting[LEFT]]
        for right in events.fresh[RIGHT]:
            for place in range(bisect_left(times, right.time - after), bisect_right(times, right.time + before)):
                yield events.waiting[LEFT][place], right

    def _fresh(self, keys: dict[str, _Key], lonely: list[_Row], matched: set[int]) -> pa.Table:
        """The events of this cycle, which wait from now on."""
        rows = [
            (side, key, row, id(row) in matched)
            for key, events in keys.items()
            for side in (LEFT, RIGHT)
            for row in events.fresh[side]
        ]
        # No key is the empty text, which no list in JSON is.
        rows += [(LEFT, "", row, False) for row in lonely]
        columns = [
            [side for side, _, _, _ in rows],
            [key for _, key, _, _ in rows],
            [row.time for _, _, row, _ in rows],
            [row.partition for _, _, row, _ in rows],
            [row.offset for _, _, row, _ in rows],
            [row.event_key for _, _, row, _ in rows],
            [row.line for _, _, row, _ in rows],
            [is_matched for _, _, _, is_matched in rows],
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, FRESH, strict=True)], schema=FRESH)


class _Out:
    """Pairs on their way out."""

    def __init__(self, pairs: Pairs) -> None:
        self._schema = pairs.schema
        self._parser = Parser(pairs.fields)
        self.lines: list[str] = []
        self._rows: list[tuple[int, int, str | None, int]] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand them on."""
        return len(self.lines) >= _BATCH or self._size >= _BATCH_BYTES

    def add(self, left: _Row, right: _Row | None) -> None:
        """A pair, or an event of the left without one. It stands where the event stands that came with this cycle."""
        here = left if left.id is None or right is None else right
        time = left.time if right is None else max(left.time, right.time)
        self.lines.append(f'{{"left":{left.line},"right":{"null" if right is None else right.line}}}')
        self._rows.append((here.partition, here.offset, left.event_key, time))
        self._size += len(self.lines[-1])

    def take(self) -> Iterator[pa.RecordBatch]:
        """What is there, as columns."""
        if not self.lines:
            return
        count = len(self.lines)
        lines = [line.encode() for line in self.lines]
        parsed, problems = self._parser.parse(b"\n".join(lines), count)
        if problems:
            lines = [self._fitting(line) if place in problems else line for place, line in enumerate(lines)]
            parsed, _ = self._parser.parse(b"\n".join(lines), count)
        meta = {
            "__partition": pa.array([row[0] for row in self._rows], pa.int64()),
            "__offset": pa.array([row[1] for row in self._rows], pa.int64()),
            "__key": pa.array([row[2] for row in self._rows], pa.string()),
            "__time": pa.array([row[3] for row in self._rows], pa.int64()),
            "__bound": pa.array([0] * count, pa.int64()),
            "__redriven": pa.array([False] * count, pa.bool_()),
            DATA: pa.array(self.lines, pa.string()),
        }
        arrays = [meta[f.name] if f.name in meta else parsed.column(f.name) for f in self._schema]
        yield from pa.Table.from_arrays(arrays, schema=self._schema).combine_chunks().to_batches()
        self.lines, self._rows, self._size = [], [], 0

    def _fitting(self, line: bytes) -> bytes:
        """A pair without the fields that do not fit: of an event that waited when nobody looked into it yet."""
        sides = _decode_pair(line)
        for side in self._parser.schema:
            event = sides[side.name]
            if event is not None:
                fits = [f.name for f in side.type if f.name in event and _fits(f, event[f.name])]
                sides[side.name] = {name: event[name] for name in fits}
        return msgspec.json.encode(sides)


def _fits(field: pa.Field, value: msgspec.Raw) -> bool:
    return not Parser(pa.schema([field])).parse(msgspec.json.encode({field.name: value}), 1)[1]


@dataclass(frozen=True)
class Alone:
    """Events of the left that nothing has come for, and nothing can come for any more."""

    pairs: Pairs

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those that have expired before this cycle, as many as its plan lets go on; the task reports how many."""
        current = current_task()
        for _ in batches:
            if current is not None and (limit := load_plan(self.pairs.reading, current[1]).alone):
                yield from self._sent(limit)

    def _sent(self, limit: int) -> Iterator[pa.RecordBatch]:
        table, reading, count = self.pairs.table, self.pairs.reading, 0
        out = _Out(self.pairs)
        with asking():
            cursor = connection(reading.conninfo).cursor()
            for partition, offset, event_key, time, line in cursor.stream(
                table.statement("alone"), table.params(limit=limit)
            ):
                out.add(_Row(time, line, event_key, partition, offset), None)
                count += 1
                if out.is_full:
                    yield from out.take()
        yield from out.take()
        if count:
            report_stage(reading, _ALONE, Report([], [], {}, alone=count))
