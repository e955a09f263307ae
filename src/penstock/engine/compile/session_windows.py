"""Session windows: which span each event belongs to, given the spans that are open.

Events of a key are taken in the order of their offsets. One joins every span that it touches and that was still open
when it came, and spans that it touches become one; so the result does not depend on how cycles fell. An event that is
late, and is to count, joins closed ones where it touches none that is open, and so corrects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.worker.read_config import Reading
from penstock.engine.worker.task import asking, connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_sql = Statements("penstock.engine", "session_merge.sql")

#: What is added to each event; a row with ``__old_ws`` is no event, but a span that becomes another.
ADDED = pa.schema(
    [
        ("__ws", pa.int64()),
        ("__we", pa.int64()),
        ("__late", pa.bool_()),
        ("__ref_p", pa.int64()),
        ("__ref_o", pa.int64()),
        ("__old_ws", pa.int64()),
        ("__old_we", pa.int64()),
        # Whether it had been closed.
        ("__old_closed", pa.bool_()),
    ]
)


def with_sessions(frame: DataFrame, rules: Rules, reading: Reading, *, single: bool) -> DataFrame:
    """The frame with each event's span; ``single`` says that it is one partition already."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    if not single:
        frame = frame.repartition("__k")
    ordered = frame.sortWithinPartitions("__k", "__partition", "__offset")
    schema = StructType([*frame.schema.fields, *from_arrow_schema(ADDED).fields])
    return ordered.mapInArrow(_Sessions(rules, reading, to_arrow_schema(schema, timezone="UTC")), schema)


@dataclass(frozen=True)
class Rules:
    """When a span ends, and what becomes of late events."""

    gap_us: int
    grace_us: int
    late: str


@dataclass(eq=False)
class _Span:
    start: int
    end: int
    #: Spans of cycles before that it has taken in, and whether they had been closed.
    old: list[tuple[int, int, bool]] = field(default_factory=list)
    #: Whether it is one that was closed, and that no event has come to since.
    is_closed: bool = False
    #: The partition of the last event that has come to it.
    partition: int | None = None
    into: _Span | None = None

    @property
    def corrects(self) -> bool:
        """Whether a span was closed that it has taken in."""
        return any(was_closed for _, _, was_closed in self.old)

    def final(self) -> _Span:
        """The span that it has become part of."""
        span = self
        while span.into is not None:
            span = span.into
        return span


class _Sessions:
    """What Spark calls in a worker."""

    def __init__(self, rules: Rules, reading: Reading, schema: pa.Schema) -> None:
        self._rules = rules
        self._reading = reading
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some = [batch for batch in batches if batch.num_rows]
        if not some:
            return
        table = pa.Table.from_batches(some).combine_chunks()
        keys = table.column("__k").to_pylist()
        times, bounds = (table.column(name).to_numpy() for name in ("__time", "__bound"))
        late = times + (self._rules.gap_us + self._rules.grace_us) <= bounds
        refused = np.zeros(len(keys), dtype=bool)
        if self._rules.late != "include":
            refused = late & ~table.column("__redriven").to_numpy()
        spans = self._known(keys, times, late & ~refused)
        partitions = table.column("__partition").to_pylist()
        placed: list[_Span | None] = []
        for key, partition, time, bound, is_late, is_refused in zip(
            keys, partitions, times.tolist(), bounds.tolist(), late.tolist(), refused.tolist(), strict=True
        ):
            span = None if is_refused else self._join(spans.setdefault(key, []), time, bound, is_late)
            if span is not None:
                span.partition = partition
            placed.append(span)
        yield from self._rows(table, placed).to_batches()
        yield from self._moves(spans).to_batches()

    def _known(self, keys: list[str], times: Any, corrects: Any) -> dict[str, list[_Span]]:
        """The spans that are open, and those that were closed and that an event corrects."""
        if not self._reading.query:
            return {}  # only looked at: nothing is open
        found: dict[str, list[_Span]] = {}
        for key, start, end in self._ask("open", {"keys": sorted(set(keys))}):
            found.setdefault(key, []).append(_Span(start, end, [(start, end, False)]))
        if corrects.any():
            starts = times[corrects]
            touching = {
                "keys": [key for key, is_meant in zip(keys, corrects.tolist(), strict=True) if is_meant],
                "starts": numbers(starts.tolist()),
                "ends": numbers((starts + self._rules.gap_us).tolist()),
            }
            for key, start, end in self._ask("closed", touching):
                found.setdefault(key, []).append(_Span(start, end, [(start, end, True)], is_closed=True))
        return found

    def _ask(self, question: str, params: dict[str, Any]) -> list[tuple[str, int, int]]:
        statement = _sql[question].replace("{id}", str(int(self._reading.query)))
        with asking():
            return connection(self._reading.conninfo).execute(statement, params).fetchall()

    def _join(self, spans: list[_Span], time: int, bound: int, is_late: bool) -> _Span:
        end = time + self._rules.gap_us
        near = [span for span in spans if time < span.end and end > span.start]
        touched = [span for span in near if not span.is_closed and span.end + self._rules.grace_us > bound]
        if is_late and not touched:
            touched = near
        if len(touched) == 1:
            span = touched[0]
            span.start, span.end, span.is_closed = min(span.start, time), max(span.end, end), False
            return span
        span = _Span(time, end)
        for other in touched:
            span.start, span.end = min(span.start, other.start), max(span.end, other.end)
            span.old += other.old
            other.into = span
            spans.remove(other)
        spans.append(span)
        return span

    def _rows(self, table: pa.Table, placed: list[_Span | None]) -> pa.Table:
        """Events with their spans. Those are late, for what follows, whose span may be in the history."""
        finals = [None if span is None else span.final() for span in placed]
        refused = np.array([span is None for span in finals])
        times = table.column("__time").to_pylist()
        starts = [times[i] if span is None else span.start for i, span in enumerate(finals)]
        ends = [times[i] + self._rules.gap_us if span is None else span.end for i, span in enumerate(finals)]
        added = {
            "__ws": pa.array(starts, pa.int64()),
            "__we": pa.array(ends, pa.int64()),
            "__late": pa.array([span is None or span.corrects for span in finals], pa.bool_()),
            "__ref_p": pa.array(table.column("__partition").to_numpy(), mask=~refused),
            "__ref_o": pa.array(table.column("__offset").to_numpy(), mask=~refused),
        }
        nothing = {f.name: pa.nulls(len(finals), f.type) for f in ADDED if f.name not in added}
        columns = {**{name: table.column(name) for name in table.column_names}, **added, **nothing}
        return pa.Table.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _moves(self, spans: dict[str, list[_Span]]) -> pa.Table:
        """The spans of before that are no longer the same."""
        moves = [
            {"__k": key, "__ws": span.start, "__we": span.end, "__late": False, "__partition": span.partition}
            | {"__old_ws": start, "__old_we": end, "__old_closed": was_closed}
            for key, some in spans.items()
            for span in some
            for start, end, was_closed in span.old
            if (start, end) != (span.start, span.end)
        ]
        columns: list[Any] = [pa.array([move.get(f.name) for move in moves], f.type) for f in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)
