"""Runs: sorted tables that never change, of which the state of an operator consists.

The rows of a run are sorted by a hash. Its upper 32 bits are those of the group's hash, so that the rows of a group
follow one another; its lower bits belong to the row's own key. A run is cut into pieces, which are loaded only if one
of their hashes is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.views.kernels.arrays import IntArray, combine, mask, take, values_of
from penstock.engine.views.kernels.grouping import Groups, group_rows, stable_argsort

#: The hash of a row in the state; the hash of a group in the input of an operator.
HASH = "__hash"

_PIECE_ROWS = 65_536
#: Runs are merged in blocks of about so many rows.
_BLOCK_ROWS = 1_048_576
#: Threads and compression cost more than they save for small pieces.
_COMPRESSED_BYTES = 16_384


class RunKey(NamedTuple):
    """The place of a run: an operator may keep several tables, its parts."""

    part: int
    shard: int


@dataclass
class Piece:
    #: The hashes of the rows, in ascending order.
    hashes: IntArray
    #: None until it is loaded.
    rows: pa.Table | None
    run_id: str = ""
    #: Its position in the run.
    number: int = 0
    #: The number of its row in PostgreSQL; 0 if it is not stored yet.
    sequence: int = 0

    def table(self) -> pa.Table:
        if self.rows is None:
            raise ValueError("the rows of a piece of state are not loaded")
        return self.rows


@dataclass(frozen=True)
class Run:
    id: str
    key: RunKey
    pieces: list[Piece]

    @property
    def count(self) -> int:
        return sum(len(piece.hashes) for piece in self.pieces)


@dataclass(frozen=True)
class Merge:
    """How the rows of several runs become one run. Rows are equal if their hashes and keys are.

    Without keys all rows are kept. Otherwise the latest of equal rows is kept, or their counts are added.
    """

    keys: tuple[str, ...] | None = None
    #: A row is deleted if this column is not positive. Such rows are kept until there is no older run.
    alive: str | None = None
    #: The column of counts that are added up.
    count: str | None = None

    def apply(self, rows: pa.Table, *, is_oldest: bool) -> pa.Table:
        """Merge rows, of which older ones come first. The result is in the order of the hashes."""
        hashes = values_of(rows.column(HASH))
        if self.keys is None:
            order = stable_argsort(hashes)
            return take(rows, order)
        groups = group_rows(hashes, [rows.column(key) for key in self.keys], is_stable=True)
        if self.count is not None:
            return self._add_counts(rows, groups, self.count)
        latest = groups.last
        if self.alive is not None and is_oldest:
            latest = latest[values_of(rows.column(self.alive))[latest] > 0]
        return take(rows, latest)

    def without_deleted(self, rows: pa.Table) -> pa.Table:
        return rows if self.alive is None else mask(rows, values_of(rows.column(self.alive)) > 0)

    def _add_counts(self, rows: pa.Table, groups: Groups, count: str) -> pa.Table:
        counts = np.add.reduceat(values_of(rows.column(count))[groups.order], groups.starts)
        merged = take(rows, groups.first)
        merged = merged.set_column(merged.column_names.index(count), count, pa.array(counts))
        return mask(merged, counts != 0)


def new_pieces(rows: pa.Table) -> list[Piece]:
    """Cut a table, which is sorted by HASH, into pieces."""
    hashes = values_of(rows.column(HASH))
    rows = combine(rows.drop_columns([HASH]))
    starts = range(0, len(hashes), _PIECE_ROWS)
    return [Piece(hashes[at : at + _PIECE_ROWS].copy(), _copy(rows.slice(at, _PIECE_ROWS))) for at in starts]


def _copy(rows: pa.Table) -> pa.Table:
    """The rows without the others that a slice shares its memory with, if there may be many."""
    return take(rows, np.arange(rows.num_rows)) if rows.num_rows > 1000 else rows


def merge_runs(runs: Sequence[Run], rows: pa.Table, merge: Merge, *, is_oldest: bool) -> list[Piece]:
    """Merge runs, the oldest first, with newer rows. All pieces of the runs are loaded.

    The new rows are in the order of their hashes and have different keys.
    """
    if not runs:
        return new_pieces(merge.without_deleted(rows) if is_oldest else rows)
    pieces: list[Piece] = []
    for block in _blocks(runs, rows):
        merged = merge.apply(block, is_oldest=is_oldest)
        if merged.num_rows:
            pieces += new_pieces(merged)
    return pieces


def _blocks(runs: Sequence[Run], rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of all runs in blocks by hash, so that a merge of large runs needs little memory at a time."""
    total = rows.num_rows + sum(run.count for run in runs)
    limits: list[int] = []
    if total > _BLOCK_ROWS:
        hashes = np.concatenate([values_of(rows.column(HASH)), *(p.hashes for run in runs for p in run.pieces)])
        hashes.sort()
        limits = np.unique(hashes[_BLOCK_ROWS::_BLOCK_ROWS]).tolist()
    sources = [*(piece_table(piece) for run in runs for piece in run.pieces), rows]
    cut = [[0, *np.searchsorted(values_of(s.column(HASH)), limits).tolist(), s.num_rows] for s in sources]
    for number in range(len(limits) + 1):
        slices = [s.slice(at[number], at[number + 1] - at[number]) for s, at in zip(sources, cut, strict=True)]
        yield combine(pa.concat_tables([each for each in slices if each.num_rows] or [rows.slice(0, 0)]))


def piece_table(piece: Piece) -> pa.Table:
    """The rows of a piece with the column HASH."""
    return piece.table().add_column(0, HASH, pa.array(piece.hashes))


def encode_piece(piece: Piece) -> bytes:
    sink = pa.BufferOutputStream()
    rows = piece.table()
    compression = "lz4" if rows.nbytes >= _COMPRESSED_BYTES else None
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return piece.hashes.astype("<i8", copy=False).tobytes() + bytes(sink.getvalue())


def decode_hashes(data: bytes, rows: int) -> IntArray:
    return np.frombuffer(data, "<i8", rows).astype(np.int64, copy=False)


def decode_rows(data: bytes | memoryview) -> pa.Table:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    return combine(pa.ipc.open_stream(pa.py_buffer(data), options=options).read_all())
