"""Pre-aggregates events per key and window in the tasks, before Spark gets them.

A stream that only counts, adds up and compares fields in tumbling windows needs no Spark operators: its tasks return
one row for each key and window instead of one for each event. The driver, which collects the rows anyway, merges them.
The rows pass through Spark as binary blocks, because the JVM would allocate an object for each decimal of 38 digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

#: The columns of partial aggregates beside the aggregates: the key, the window, and for a late event that is not
#: counted, its partition and offset. ``__window_partition`` is the partition of one of the window's events.
PARTIAL_COLUMNS = pa.schema(
    [
        ("__group_key", pa.string()),
        ("__window_start", pa.int64()),
        ("__window_end", pa.int64()),
        ("__is_late", pa.bool_()),
        ("__late_partition", pa.int64()),
        ("__late_offset", pa.int64()),
        ("__window_partition", pa.int64()),
    ]
)
GROUP_COLUMNS = tuple(name for name in PARTIAL_COLUMNS.names if name != "__window_partition")
#: The schema of the blocks: each is an Arrow IPC stream.
BLOCK_SCHEMA = pa.schema([("__rows", pa.binary())])
#: A task merges rows of the same key and window until it holds so many.
_MAX_BUFFERED_ROWS = 1 << 17
MAX_DECIMAL_DIGITS = 38


@dataclass(frozen=True, slots=True)
class PartialColumn:
    name: str
    #: The Arrow function that merges two values: sum, min or max.
    merge: str
    #: The aggregated field; None counts all events.
    field: str | None
    type: pa.DataType
    #: True if the column counts the events in which the field is not null.
    counts_field: bool = False


@dataclass(frozen=True, slots=True)
class Preaggregation:
    #: The field that is the key; None: the event's own key.
    key: str | None
    window_us: int
    grace_us: int
    #: True if late events count in their windows. Otherwise each is returned as a row of its own.
    includes_late: bool
    columns: tuple[PartialColumn, ...]
    #: Conditions that events must meet.
    predicates: tuple[pc.Expression, ...] = ()
    #: True if an event without a key and one with an empty key belong to different windows.
    distinguishes_null_key: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*PARTIAL_COLUMNS, *[(column.name, column.type) for column in self.columns]])


def preaggregate_batches(
    preaggregation: Preaggregation, tables: Iterable[pa.Table], max_buffered_rows: int = _MAX_BUFFERED_ROWS
) -> Iterator[pa.RecordBatch]:
    """In a task: pre-aggregate tables of events into blocks."""
    buffered: list[pa.Table] = []
    rows = 0
    for table in tables:
        for predicate in preaggregation.predicates:
            table = _filter_rows(table, predicate)
        buffered.append(_merge_rows(preaggregation, _to_event_rows(preaggregation, table)))
        rows += buffered[-1].num_rows
        if rows >= max_buffered_rows:
            yield _to_block(preaggregation, buffered)
            buffered, rows = [], 0
    if buffered:
        yield _to_block(preaggregation, buffered)


def _filter_rows(table: pa.Table, predicate: pc.Expression) -> pa.Table:
    """Filter without threads, which would change the order of the rows, and with it sums of doubles."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    return acero.Declaration("filter", acero.FilterNodeOptions(predicate), [source]).to_table(use_threads=False)


def merge_blocks(preaggregation: Preaggregation, blocks: pa.Table) -> pa.Table:
    """In the driver: merge the blocks of all tasks into one row for each key and window."""
    tables = [pa.ipc.open_stream(block.as_buffer()).read_all() for block in blocks.column(0)]
    merged = _merge_rows(
        preaggregation, pa.concat_tables([preaggregation.schema.empty_table(), *tables]), is_final=True
    )
    if not preaggregation.distinguishes_null_key:
        return merged
    index = merged.schema.get_field_index("__group_key")
    return merged.set_column(index, "__group_key", _distinguish_empty_keys(merged.column(index)))


def _distinguish_empty_keys(key: pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode keys as ``distinguish_empty_key`` does in Spark."""
    is_only_quotes = pc.equal(pc.ascii_trim(key, characters='"'), "")
    if pc.any(is_only_quotes).as_py():
        key = pc.if_else(is_only_quotes, pc.binary_join_element_wise(key, '""', ""), key)
    return pc.fill_null(key, "")


def _to_block(preaggregation: Preaggregation, buffered: list[pa.Table]) -> pa.RecordBatch:
    merged = buffered[0] if len(buffered) == 1 else _merge_rows(preaggregation, pa.concat_tables(buffered))
    return pa.record_batch([pa.array([to_ipc(merged)], pa.binary())], schema=BLOCK_SCHEMA)


def to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _to_event_rows(preaggregation: Preaggregation, table: pa.Table) -> pa.Table:
    """One row of partial aggregates for each event."""
    rows = table.num_rows
    time = table.column("__time").to_numpy()
    start = time - time % preaggregation.window_us
    end = start + preaggregation.window_us
    is_late = end + preaggregation.grace_us <= table.column("__watermark").to_numpy()
    is_rejected = np.zeros(rows, dtype=bool)
    if not preaggregation.includes_late:
        is_rejected = is_late & ~table.column("__redriven").to_numpy()
    key = table.column("__key" if preaggregation.key is None else preaggregation.key)
    if key.null_count and not preaggregation.distinguishes_null_key:
        key = pc.fill_null(key, "")
    columns = {
        "__group_key": key,
        "__window_start": pa.array(start),
        "__window_end": pa.array(end),
        "__is_late": pa.array(is_late),
        "__late_partition": pa.array(table.column("__partition").to_numpy(), mask=~is_rejected),
        "__late_offset": pa.array(table.column("__offset").to_numpy(), mask=~is_rejected),
        "__window_partition": table.column("__partition"),
    }
    for column in preaggregation.columns:
        columns[column.name] = _event_value(column, table)
    return pa.table(columns, schema=preaggregation.schema)


def _event_value(column: PartialColumn, table: pa.Table) -> Any:
    if column.field is None:
        return pa.array(np.ones(table.num_rows, dtype=np.int64))
    values = table.column(column.field)
    if column.counts_field:
        return values.is_valid().cast(pa.int64())
    return values if values.type == column.type else values.cast(column.type)


def _merge_rows(preaggregation: Preaggregation, table: pa.Table, is_final: bool = False) -> pa.Table:
    """Merge the rows of each key and window. A late event that is not counted keeps its row."""
    is_late = table.column("__is_late")
    if not pc.any(is_late).as_py():
        return _group_rows(preaggregation, table, is_final)
    on_time = _group_rows(preaggregation, table.filter(pc.invert(is_late)), is_final)
    late = _group_rows(preaggregation, table.filter(is_late), is_final, GROUP_COLUMNS)
    if on_time.schema != late.schema:
        on_time, late = (part.cast(_widen_decimals(part.schema)) for part in (on_time, late))
    return pa.concat_tables([on_time, late])


def _group_rows(
    preaggregation: Preaggregation,
    table: pa.Table,
    is_final: bool,
    by: Sequence[str] = ("__group_key", "__window_start"),
) -> pa.Table:
    """Merge the rows of each group. If a sum might overflow, leave it to the final merge, which has more digits."""
    if not _sums_fit(preaggregation, table):
        if not is_final:
            return table
        table = table.cast(_widen_decimals(table.schema))
    merges = {"__window_partition": "max", **{column.name: column.merge for column in preaggregation.columns}}
    grouped = table.group_by(list(by), use_threads=False).aggregate(list(merges.items()))
    rows = grouped.num_rows
    columns = {
        "__window_end": pc.add(grouped.column("__window_start"), preaggregation.window_us),
        "__is_late": pa.array(np.zeros(rows, dtype=bool)),
        "__late_partition": pa.nulls(rows, pa.int64()),
        "__late_offset": pa.nulls(rows, pa.int64()),
        **{name: grouped.column(name) for name in by},
        **{name: grouped.column(f"{name}_{merge}") for name, merge in merges.items()},
    }
    merged = pa.table(columns).select(preaggregation.schema.names)
    try:
        return merged.cast(preaggregation.schema)
    except pa.ArrowInvalid:
        return merged  # a sum has more digits; PostgreSQL stores any number


def _widen_decimals(schema: pa.Schema) -> pa.Schema:
    def widen(kind: pa.DataType) -> pa.DataType:
        return pa.decimal256(2 * MAX_DECIMAL_DIGITS, kind.scale) if pa.types.is_decimal(kind) else kind

    return pa.schema([(field.name, widen(field.type)) for field in schema])


def _sums_fit(preaggregation: Preaggregation, table: pa.Table) -> bool:
    """True if no sum can overflow its decimal. Arrow would return a wrong number without an error."""
    for column in preaggregation.columns:
        if column.merge == "sum" and pa.types.is_decimal(column.type):
            low, high = (bound.as_py() or 0 for bound in pc.min_max(table.column(column.name)).values())
            if max(-low, high) * table.num_rows >= 10 ** (MAX_DECIMAL_DIGITS - column.type.scale):
                return False
    return True
