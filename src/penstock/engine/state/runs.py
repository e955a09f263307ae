"""Runs: sorted tables that never change, of which the state of an operator consists.

The rows of a run are sorted by a hash. Its upper 32 bits are those of the group's hash, so that the rows of a group
follow one another; its lower bits belong to the row's own key. A run is cut into pieces, which are loaded only if one
of their hashes is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import IntArray, combine, take, values_of

#: The hash of a row in the state; the hash of a group in the input of an operator.
HASH = "__hash"

_PIECE_ROWS = 65_536
#: Pieces of wide rows have fewer, so that a lookup of single rows loads little.
PIECE_BYTES = 8 * 1024 * 1024
#: A piece that is smaller may share its memory with others.
_SHARED_BYTES = 65_536
#: Threads and compression cost more than they save for small pieces.
_COMPRESSED_BYTES = 16_384


class RunKey(NamedTuple):
    """Identifies a run. An operator may have several tables, its parts."""

    part: int
    shard: int


class RunTimes(NamedTuple):
    """The event times of the rows of a run, in microseconds."""

    min_us: int
    median_us: int
    max_us: int

    @classmethod
    def of(cls, times: IntArray) -> RunTimes:
        middle = len(times) // 2
        return cls(int(times.min()), int(np.partition(times, middle)[middle]), int(times.max()))


@dataclass
class RunPiece:
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
    pieces: list[RunPiece]
    #: None if its rows have no event times.
    times: RunTimes | None = None

    @property
    def count(self) -> int:
        return sum(len(piece.hashes) for piece in self.pieces)


def new_pieces(rows: pa.Table, max_bytes: int = PIECE_BYTES) -> list[RunPiece]:
    """Cut a table, which is sorted by HASH, into pieces of about ``max_bytes`` at most."""
    hashes = values_of(rows.column(HASH))
    rows = combine(rows.drop_columns([HASH]))
    size = min(_PIECE_ROWS, max(1, len(hashes) * max_bytes // max(1, rows.nbytes)))
    starts = range(0, len(hashes), size)
    return [RunPiece(hashes[at : at + size].copy(), _copy(rows.slice(at, size))) for at in starts]


def _copy(rows: pa.Table) -> pa.Table:
    """The rows without the others that a slice shares its memory with, if there may be many."""
    return take(rows, np.arange(rows.num_rows)) if rows.num_rows > 1000 or rows.nbytes > _SHARED_BYTES else rows


def piece_table(piece: RunPiece) -> pa.Table:
    """The rows of a piece with the column HASH."""
    return piece.table().add_column(0, HASH, pa.array(piece.hashes))


def encode_piece(piece: RunPiece) -> bytes:
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
