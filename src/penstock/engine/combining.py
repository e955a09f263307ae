"""In a Spark worker: events are added up per key and window before Spark sees them, where that is all there is to do.

A sum of sums is a sum. A stream that only counts and adds up fields in tumbling windows has its tasks hand on a row for
each key and window instead of one for each event, and Spark adds up those rows. What Arrow adds up without leaving the
task need not be sent to the JVM, where a decimal of 38 digits is an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.stream.aggregates import Aggregate
from penstock.stream.definition import Definition
from penstock.stream.windows import Tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a row of partial results stands for, a key and a window, and the partition of one of its events.
WINDOW = pa.schema(
    [
        ("__k", pa.string()),
        ("__ws", pa.int64()),
        ("__we", pa.int64()),
        ("__late", pa.bool_()),
        ("__ref_p", pa.int64()),
        ("__ref_o", pa.int64()),
        ("__p", pa.int64()),
    ]
)
#: Late events stand apart.
GROUPS = tuple(name for name in WINDOW.names if name != "__p")
#: Rows that a task holds before it hands them on: those of the same key and window become one meanwhile.
_HELD = 1 << 17
_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Part:
    """A column of what is added up."""

    slot: str
    #: How two values become one: sum, min or max.
    merge: str
    #: Of what; None: of the events themselves, which count one each.
    field: str | None
    type: pa.DataType
    #: Whether the events are counted that have the field.
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Combining:
    """What a task adds up, and for which windows."""

    #: The field that is the key; None: the event's own.
    key: str | None
    size_us: int
    grace_us: int
    #: Whether late events count in their windows; if not, each is referred to by itself.
    with_late: bool
    parts: tuple[Part, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        return pa.schema([*WINDOW, *[(part.slot, part.type) for part in self.parts]])

    def transform(self, frame: DataFrame, single: bool) -> DataFrame:
        """What Spark makes of the rows of all tasks: one for each key and window."""
        from pyspark.sql import functions as F

        return frame.groupBy(*GROUPS).agg(
            F.max("__p").alias("__p"), *[getattr(F, part.merge)(part.slot).alias(part.slot) for part in self.parts]
        )


def combining_of(stream: Definition, fields: pa.Schema) -> Combining | None:
    """How the tasks of a stream can add up, or None if more than fields is to be computed.

    Steps that Spark runs after the reader must be none; whoever calls knows.
    """
    if stream.fold is not None or len(stream.windows) != 1 or not isinstance(stream.windows[0], Tumbling):
        return None
    types = {field.name: field.type for field in fields}
    key = stream.key
    if key is not None and not (isinstance(key, str) and types.get(key) == pa.string()):
        return None
    parts: list[Part] = []
    for place, aggregate in enumerate(stream.aggregates.values()):
        found = _parts(f"a{place}", aggregate, types)
        if found is None:
            return None
        parts += found
    rules = stream.time
    return Combining(key, stream.windows[0].size_us, rules.grace_us, rules.late == "include", tuple(parts))


def _parts(slot: str, aggregate: Aggregate, types: Mapping[str, pa.DataType]) -> list[Part] | None:
    """The columns of an aggregate, named as those that Spark would keep; None if it is of no plain number."""
    if aggregate.kind == "count" and aggregate.argument is None:
        return [Part(slot, "sum", None, pa.int64())]
    field = aggregate.argument
    if not isinstance(field, str) or field not in types:
        return None
    kind = types[field]
    if aggregate.kind == "count":
        return [Part(slot, "sum", field, pa.int64(), counts=True)]
    if not (pa.types.is_decimal(kind) or pa.types.is_int64(kind) or pa.types.is_float64(kind)):
        return None
    total = kind if pa.types.is_float64(kind) else pa.decimal128(_DIGITS, getattr(kind, "scale", 0))
    match aggregate.kind:
        case "sum":
            return [Part(slot, "sum", field, total)]
        case "avg":
            return [Part(slot, "sum", field, total), Part(f"{slot}n", "sum", field, pa.int64(), counts=True)]
        case "min" | "max":
            return [Part(slot, aggregate.kind, field, kind)]
    return None


def combined(how: Combining, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows for tables of events."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(_merged(how, _singly(how, table)))
        rows += held[-1].num_rows
        if rows >= _HELD:
            yield from _handed_on(how, held)
            held, rows = [], 0
    if held:
        yield from _handed_on(how, held)


def _handed_on(how: Combining, held: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    whole = held[0] if len(held) == 1 else _merged(how, pa.concat_tables(held))
    yield from whole.combine_chunks().to_batches()


def _singly(how: Combining, table: pa.Table) -> pa.Table:
    """A row for each event."""
    rows = table.num_rows
    time = table.column("__time").to_numpy()
    start = time - time % how.size_us
    end = start + how.size_us
    late = end + how.grace_us <= table.column("__bound").to_numpy()
    key = table.column("__key" if how.key is None else how.key)
    refused = np.zeros(rows, dtype=bool) if how.with_late else late & ~table.column("__redriven").to_numpy()
    columns = {
        "__k": pc.fill_null(key, "") if key.null_count else key,
        "__ws": pa.array(start),
        "__we": pa.array(end),
        "__late": pa.array(late),
        "__ref_p": pa.array(table.column("__partition").to_numpy(), mask=~refused),
        "__ref_o": pa.array(table.column("__offset").to_numpy(), mask=~refused),
        "__p": table.column("__partition"),
    }
    for part in how.parts:
        columns[part.slot] = _value(part, table, rows)
    return pa.table(columns, schema=how.schema)


def _value(part: Part, table: pa.Table, rows: int) -> Any:
    if part.field is None:
        return pa.array(np.ones(rows, dtype=np.int64))
    column = table.column(part.field)
    if part.counts:
        return column.is_valid().cast(pa.int64())
    return column if column.type == part.type else column.cast(part.type)


def _merged(how: Combining, table: pa.Table) -> pa.Table:
    """The same with one row for each key and window; late events stay by themselves, and so does what might not fit."""
    late = table.column("__late")
    apart = None
    if pc.any(late).as_py():
        apart, table = table.filter(late), table.filter(pc.invert(late))
    if not _fits(how, table):
        return table if apart is None else pa.concat_tables([table, apart])
    wanted = [("__p", "max"), *[(part.slot, part.merge) for part in how.parts]]
    grouped = table.group_by(["__k", "__ws"], use_threads=False).aggregate(wanted)
    rows = grouped.num_rows
    start = grouped.column("__ws")
    columns = {
        "__k": grouped.column("__k"),
        "__ws": start,
        "__we": pc.add(start, how.size_us),
        "__late": pa.array(np.zeros(rows, dtype=bool)),
        "__ref_p": pa.nulls(rows, pa.int64()),
        "__ref_o": pa.nulls(rows, pa.int64()),
        "__p": grouped.column("__p_max"),
        **{part.slot: grouped.column(f"{part.slot}_{part.merge}") for part in how.parts},
    }
    made = pa.table(columns, schema=how.schema)
    return made if apart is None else pa.concat_tables([made, apart])


def _fits(how: Combining, table: pa.Table) -> bool:
    """Whether no sum has more digits than a decimal holds: Arrow would give another number, and not say so."""
    for part in how.parts:
        if part.merge == "sum" and pa.types.is_decimal(part.type):
            least, most = (bound.as_py() or 0 for bound in pc.min_max(table.column(part.slot)).values())
            if max(-least, most) * table.num_rows >= 10 ** (_DIGITS - part.type.scale):
                return False
    return True
