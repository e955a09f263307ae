"""In a Spark worker: events are added up per key and window before Spark sees them, where that is all there is to do.

A sum of sums is a sum. A stream that only counts and adds up fields in tumbling windows has its tasks hand on a row for
each key and window instead of one for each event, and the driver, which collects those rows in any case, adds them up.
They go through Spark as blocks of bytes: a decimal of 38 digits would be an object in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.worker.predicates import Condition, condition_of, selected
from penstock.stream.aggregates import Aggregate
from penstock.stream.definition import Definition
from penstock.stream.steps import Filter, Map
from penstock.stream.windows import Tumbling

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
#: What Spark sees of them.
BLOCKS = pa.schema([("__rows", pa.binary())])
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
    #: What events have to meet; the others are left out.
    conditions: tuple[Condition, ...] = ()
    #: Whether no key is another key than the empty text.
    null_apart: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        return pa.schema([*WINDOW, *[(part.slot, part.type) for part in self.parts]])


def combining_of(stream: Definition, fields: pa.Schema, steps: Sequence[Any] = ()) -> Combining | None:
    """How the tasks of a stream can add up, or None if more than fields is to be computed.

    ``steps`` are those that Spark would run after the reader: conditions on fields, and fields under other names.
    """
    if stream.fold is not None or len(stream.windows) != 1 or not isinstance(stream.windows[0], Tumbling):
        return None
    known = {field.name: field for field in fields}
    conditions: list[Condition] = []
    for step in steps:
        match step:
            case Filter(condition=str(text)):
                condition = condition_of(text, known)
                if condition is None:
                    return None
                conditions.append(condition)
            case Map(expression=str(text)):
                chosen = selected(text, known)
                if chosen is None:
                    return None
                known = chosen
            case _:
                return None
    key: str | None = None
    if stream.key is not None:
        field = known.get(stream.key) if isinstance(stream.key, str) else None
        if field is None or field.type != pa.string():
            return None
        key = field.name
    parts: list[Part] = []
    for place, aggregate in enumerate(stream.aggregates.values()):
        found = _parts(f"a{place}", aggregate, known)
        if found is None:
            return None
        parts += found
    rules, size = stream.time, stream.windows[0].size_us
    with_late = rules.late == "include"
    return Combining(key, size, rules.grace_us, with_late, tuple(parts), tuple(conditions), stream.null_apart)


def _parts(slot: str, aggregate: Aggregate, fields: Mapping[str, pa.Field]) -> list[Part] | None:
    """The columns of an aggregate, named as those that Spark would keep; None if it is of no plain number."""
    if aggregate.kind == "count" and aggregate.argument is None:
        return [Part(slot, "sum", None, pa.int64())]
    if not isinstance(aggregate.argument, str) or aggregate.argument not in fields:
        return None
    field, kind = fields[aggregate.argument].name, fields[aggregate.argument].type
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
    """In a task: the rows for tables of events, in blocks."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        for condition in how.conditions:
            table = table.filter(condition.of(table))
        held.append(_merged(how, _singly(how, table)))
        rows += held[-1].num_rows
        if rows >= _HELD:
            yield _block(how, held)
            held, rows = [], 0
    if held:
        yield _block(how, held)


def added_up(how: Combining, blocks: pa.Table) -> pa.Table:
    """In the driver: what all tasks hand on, as one row for each key and window."""
    tables = [pa.ipc.open_stream(block.as_buffer()).read_all() for block in blocks.column(0)]
    whole = _merged(how, pa.concat_tables([how.schema.empty_table(), *tables]), at_last=True)
    if not how.null_apart:
        return whole
    place = whole.schema.get_field_index("__k")
    return whole.set_column(place, "__k", _apart(whole.column(place)))


def _apart(key: pa.ChunkedArray) -> pa.ChunkedArray:
    """What Spark would make of the keys: see ``key_apart``."""
    bare = pc.equal(pc.ascii_trim(key, characters='"'), "")
    if pc.any(bare).as_py():
        key = pc.if_else(bare, pc.binary_join_element_wise(key, '""', ""), key)
    return pc.fill_null(key, "")


def _block(how: Combining, held: list[pa.Table]) -> pa.RecordBatch:
    whole = held[0] if len(held) == 1 else _merged(how, pa.concat_tables(held))
    return pa.record_batch([pa.array([packed(whole)], pa.binary())], schema=BLOCKS)


def packed(table: pa.Table) -> bytes:
    """A table as one value, which goes through Spark untouched."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


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
        "__k": pc.fill_null(key, "") if key.null_count and not how.null_apart else key,
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


def _merged(how: Combining, table: pa.Table, at_last: bool = False) -> pa.Table:
    """The same with one row for each key and window, and for each late event that is refused; at last, of all of it."""
    late = table.column("__late")
    if not pc.any(late).as_py():
        return _grouped(how, table, at_last)
    in_time = _grouped(how, table.filter(pc.invert(late)), at_last)
    return pa.concat_tables([in_time, _grouped(how, table.filter(late), at_last, GROUPS)])


def _grouped(how: Combining, table: pa.Table, at_last: bool, by: Sequence[str] = ("__k", "__ws")) -> pa.Table:
    """One row for each key and window; at last, also where a sum might not fit."""
    if not _fits(how, table):
        if not at_last:
            return table
        table = table.cast(_roomy(table.schema))
    merges = {"__p": "max", **{part.slot: part.merge for part in how.parts}}
    grouped = table.group_by(list(by), use_threads=False).aggregate(list(merges.items()))
    rows = grouped.num_rows
    columns = {
        "__we": pc.add(grouped.column("__ws"), how.size_us),
        "__late": pa.array(np.zeros(rows, dtype=bool)),
        "__ref_p": pa.nulls(rows, pa.int64()),
        "__ref_o": pa.nulls(rows, pa.int64()),
        **{name: grouped.column(name) for name in by},
        **{name: grouped.column(f"{name}_{merge}") for name, merge in merges.items()},
    }
    try:
        return pa.table(columns).select(how.schema.names).cast(how.schema)
    except pa.ArrowInvalid as error:
        raise OverflowError(
            f"a sum in a window has more than {_DIGITS} digits ({error}); declare the field as double"
        ) from error


def _roomy(schema: pa.Schema) -> pa.Schema:
    """The schema with room for sums of more digits."""
    return pa.schema(
        [
            (
                field.name,
                pa.decimal256(2 * _DIGITS, field.type.scale) if pa.types.is_decimal(field.type) else field.type,
            )
            for field in schema
        ]
    )


def _fits(how: Combining, table: pa.Table) -> bool:
    """Whether no sum can have more digits than its decimal holds: Arrow would give another number, and not say so."""
    for part in how.parts:
        if part.merge == "sum" and pa.types.is_decimal(part.type):
            least, most = (bound.as_py() or 0 for bound in pc.min_max(table.column(part.slot)).values())
            if max(-least, most) * table.num_rows >= 10 ** (_DIGITS - part.type.scale):
                return False
    return True
