"""The pairs of a stream-stream join as events for the next steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.kernels.arrays import BoolArray, IntArray, combine, one_chunk, take, values_of
from penstock.engine.worker.json_columns import JsonColumnDecoder
from penstock.engine.worker.json_rows import join_texts
from penstock.engine.worker.read_config import EVENT_JSON, SYSTEM_COLUMNS

#: A batch of pairs has at most so many pairs, and about so many characters.
_BATCH_PAIRS, _BATCH_CHARACTERS = 20_000, 16 << 20
_LINES = {"left": "__left", "right": "__right"}
_decode_event = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def make_pairs(left: pa.Table, right: pa.Table, event: pa.Table) -> pa.Table:
    """Pairs of the rows of two tables. ``event`` has the events of this cycle, whose positions the pairs have."""
    lefts, rights = values_of(left.column("__time")), values_of(right.column("__time"))
    return pa.table(
        {
            "__partition": event.column("__partition"),
            "__offset": event.column("__offset"),
            "__key": left.column("__key"),
            "__time": pa.array(np.maximum(lefts, rights)),
            "__left": left.column("__line"),
            "__right": right.column("__line"),
        }
    )


def unmatched_pairs(left: pa.Table) -> pa.Table:
    """Left rows without a match, as pairs with null."""
    columns = [left.column(name) for name in ("__partition", "__offset", "__key", "__time", "__line")]
    names = ["__partition", "__offset", "__key", "__time", "__left"]
    return pa.table([*columns, pa.nulls(left.num_rows, pa.large_string())], names=[*names, "__right"])


@dataclass(frozen=True)
class PairEncoder:
    """Decodes the fields that the next steps use."""

    #: The structs ``left`` and ``right`` with these fields.
    fields: pa.Schema
    with_event_json: bool

    @property
    def output_schema(self) -> pa.Schema:
        event_json = [pa.field(EVENT_JSON, pa.string())] if self.with_event_json else []
        return pa.schema([*SYSTEM_COLUMNS, *event_json, *self.fields])

    def encode(self, pairs: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the pairs in the order of their events, those of an event in the order of their times."""
        order = np.lexsort([values_of(pairs.column(name)) for name in ("__time", "__offset", "__partition")])
        pairs = combine(take(pairs, order))
        decoders = {field.name: JsonColumnDecoder(pa.schema(list(field.type))) for field in self.fields}
        for batch in _batches(pairs):
            columns = {name: batch.column(name) for name in ("__partition", "__offset", "__key", "__time")}
            columns["__watermark"] = pa.array(np.zeros(batch.num_rows, np.int64))
            columns["__redriven"] = pa.array(np.zeros(batch.num_rows, np.bool_))
            if self.with_event_json:
                left, right = (batch.column(name).cast(pa.string()) for name in ("__left", "__right"))
                columns[EVENT_JSON] = join_texts('{"left":', left, ',"right":', right.fill_null("null"), "}")
            for name, decoder in decoders.items():
                columns[name] = _decode(decoder, one_chunk(batch.column(_LINES[name])))
            arrays = [columns[field.name] for field in self.output_schema]
            yield from pa.Table.from_arrays(arrays, schema=self.output_schema).combine_chunks().to_batches()


def _batches(pairs: pa.Table) -> Iterator[pa.Table]:
    sizes = _lengths(pairs.column("__left")) + _lengths(pairs.column("__right"))
    ends, start = np.cumsum(sizes), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _BATCH_CHARACTERS, "right"))
        stop = min(max(stop, start + 1), start + _BATCH_PAIRS)
        yield combine(pairs.slice(start, stop - start))
        start = stop


def _lengths(lines: pa.ChunkedArray) -> IntArray:
    return values_of(pc.binary_length(lines))


def _decode(decoder: JsonColumnDecoder, lines: pa.Array) -> pa.Array:
    """The fields of events as structs. The struct of no event is null."""
    is_missing: BoolArray | None = None
    if lines.null_count:
        is_missing = np.asarray(pc.is_null(lines).to_numpy(zero_copy_only=False))
        lines = lines.drop_null()
    data = _join_lines(lines)
    decoded = decoder.decode(data, len(lines))
    if decoded.errors:
        each = data.split(b"\n")
        valid = [_drop_invalid_fields(line, decoder) if i in decoded.errors else line for i, line in enumerate(each)]
        decoded = decoder.decode(b"\n".join(valid), len(lines))
    columns = [one_chunk(column) for column in decoded.table.columns]
    structs = pa.StructArray.from_arrays(columns, fields=list(decoder.schema))
    if is_missing is None:
        return structs
    positions = np.cumsum(~is_missing) - 1
    return structs.take(pa.array(positions, mask=is_missing))


def _join_lines(lines: pa.Array) -> bytes:
    """The lines with a line end between them."""
    ended = pc.binary_join_element_wise(lines, pa.scalar("\n", lines.type), pa.scalar("", lines.type))
    _, offsets, data = ended.buffers()
    if data is None or not len(ended):
        return b""
    ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(ended.type) else np.int32)
    return bytes(memoryview(data)[ends[ended.offset] : ends[ended.offset + len(ended)] - 1])


def _drop_invalid_fields(line: bytes, decoder: JsonColumnDecoder) -> bytes:
    """Drop fields that do not match their type. The row may have been stored before a step used these fields."""
    event = _decode_event(line)
    valid = [field.name for field in decoder.schema if field.name in event and _is_valid(field, event[field.name])]
    return msgspec.json.encode({name: event[name] for name in valid})


def _is_valid(field: pa.Field, value: msgspec.Raw) -> bool:
    return not JsonColumnDecoder(pa.schema([field])).decode(msgspec.json.encode({field.name: value}), 1).errors
