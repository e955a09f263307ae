"""Session windows: which span each event belongs to, given the spans that are open.

Events of a key are taken in the order of their offsets. One joins every span that it touches and that was still open
when it came, and spans that it touches become one; so the result does not depend on how cycles fell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.db.statements import Statements
from penstock.engine.reading import Reading
from penstock.engine.workers import asking, connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_sql = Statements("penstock.engine", "sessions.sql")

#: What is added to each event; a row with ``__old_ws`` is no event, but an open span that becomes another.
ADDED = pa.schema(
    [
        ("__ws", pa.int64()),
        ("__we", pa.int64()),
        ("__late", pa.bool_()),
        ("__ref_p", pa.int64()),
        ("__ref_o", pa.int64()),
        ("__old_ws", pa.int64()),
        ("__old_we", pa.int64()),
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
    #: Open spans of cycles before that it has taken in.
    old: list[tuple[int, int]] = field(default_factory=list)
    into: _Span | None = None

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
        spans = self._open(sorted(set(keys)))
        times, bounds = (table.column(name).to_numpy().tolist() for name in ("__time", "__bound"))
        redriven = table.column("__redriven").to_pylist()
        placed: list[_Span | None] = []
        late: list[bool] = []
        for row, key in enumerate(keys):
            time, bound = times[row], bounds[row]
            is_late = time + self._rules.gap_us + self._rules.grace_us <= bound
            late.append(is_late)
            if is_late:
                counts = redriven[row] or self._rules.late == "include"
                placed.append(_Span(time, time + self._rules.gap_us) if counts else None)
            else:
                placed.append(self._join(spans.setdefault(key, []), time, bound))
        yield from self._rows(table, placed, late).to_batches()
        yield from self._moves(spans).to_batches()

    def _open(self, keys: list[str]) -> dict[str, list[_Span]]:
        if not self._reading.query:
            return {}  # only looked at: nothing is open
        statement = _sql["open"].replace("{id}", str(int(self._reading.query)))
        with asking():
            rows = connection(self._reading.conninfo).execute(statement, {"keys": keys}).fetchall()
        found: dict[str, list[_Span]] = {}
        for key, start, end in rows:
            found.setdefault(key, []).append(_Span(start, end, [(start, end)]))
        return found

    def _join(self, spans: list[_Span], time: int, bound: int) -> _Span:
        end = time + self._rules.gap_us
        touched = [s for s in spans if time < s.end and end > s.start and s.end + self._rules.grace_us > bound]
        if len(touched) == 1:
            span = touched[0]
            span.start, span.end = min(span.start, time), max(span.end, end)
            return span
        span = _Span(time, end)
        for other in touched:
            span.start, span.end = min(span.start, other.start), max(span.end, other.end)
            span.old += other.old
            other.into = span
            spans.remove(other)
        spans.append(span)
        return span

    def _rows(self, table: pa.Table, placed: list[_Span | None], late: list[bool]) -> pa.Table:
        finals = [None if span is None else span.final() for span in placed]
        refused = np.array([span is None for span in finals])
        times = table.column("__time").to_numpy()
        starts = [int(times[i]) if span is None else span.start for i, span in enumerate(finals)]
        ends = [int(times[i]) + self._rules.gap_us if span is None else span.end for i, span in enumerate(finals)]
        nothing = pa.nulls(len(finals), pa.int64())
        added = {
            "__ws": pa.array(starts, pa.int64()),
            "__we": pa.array(ends, pa.int64()),
            "__late": pa.array(late, pa.bool_()),
            "__ref_p": pa.array(table.column("__partition").to_numpy(), mask=~refused),
            "__ref_o": pa.array(table.column("__offset").to_numpy(), mask=~refused),
            "__old_ws": nothing,
            "__old_we": nothing,
        }
        arrays = [added[f.name] if f.name in added else table.column(f.name) for f in self._schema]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _moves(self, spans: dict[str, list[_Span]]) -> pa.Table:
        """The open spans of before that are no longer the same."""
        moves = [
            {"__k": key, "__ws": span.start, "__we": span.end, "__late": False, "__old_ws": start, "__old_we": end}
            for key, some in spans.items()
            for span in some
            for start, end in span.old
            if (start, end) != (span.start, span.end)
        ]
        columns: list[Any] = [pa.array([move.get(f.name) for move in moves], f.type) for f in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)
