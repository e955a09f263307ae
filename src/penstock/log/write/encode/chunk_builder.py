"""Builds chunks from the pieces of several pushes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from penstock.db.pg_arrays import int_array
from penstock.log.storage import chunk
from penstock.log.storage.chunk import ChunkColumns
from penstock.log.write.encode.piece import PIECE_EVENTS, Piece

#: The most bytes in one call of the append function, unless one chunk has more. PostgreSQL limits a value to 1 GiB.
CALL_BYTES = 64 << 20


@dataclass(slots=True)
class ChunkBatch:
    partitions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    #: The number of events of the call in the chunk's partition, up to and including the chunk.
    after: list[int] = field(default_factory=list)
    targets: list[int | None] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, partition_id: int, count: int, after: int, target: int | None, body: bytes) -> None:
        self.partitions.append(partition_id)
        self.counts.append(count)
        self.after.append(after)
        self.targets.append(target)
        self.bodies.append(body)
        self.size += len(body)

    def is_targeted(self) -> bool:
        return self.targets.count(None) != len(self.targets)

    def params(self) -> dict[str, Any]:
        sizes = list(map(len, self.bodies))
        return {
            "partitions": int_array(self.partitions),
            "counts": int_array(self.counts),
            "after": int_array(self.after),
            "starts": int_array(list(accumulate(sizes, initial=1))[:-1]),
            "sizes": int_array(sizes),
            "bodies": b"".join(self.bodies),
        }


def build_chunks(
    partitions: Iterable[tuple[int, Sequence[Piece]]],
    max_call_bytes: int = CALL_BYTES,
    *,
    encrypted: bool = False,
    readable: bool = False,
) -> list[ChunkBatch]:
    """Return the chunks of each partition's pieces, in as few calls as possible."""
    calls = [ChunkBatch()]
    for partition_id, pieces in partitions:
        events = 0
        for run in _mergeable_runs(pieces):
            columns = _merge(run)
            body = chunk.encode(columns, encrypted=encrypted, readable=readable)
            if calls[-1].size and calls[-1].size + len(body) > max_call_bytes:
                calls.append(ChunkBatch())
                events = 0
            events += columns.count
            calls[-1].add(partition_id, columns.count, events, run[0].target_group, body)
    return calls


def _mergeable_runs(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Split pieces into runs that fit into one chunk each."""
    runs: list[list[Piece]] = []
    events = size = 0
    for piece in pieces:
        piece_events, piece_size = piece.columns.count, len(piece.columns.data)
        if (
            runs
            and runs[-1][0].target_group == piece.target_group
            and events + piece_events <= PIECE_EVENTS
            and size + piece_size <= chunk.TARGET_BYTES
        ):
            runs[-1].append(piece)
            events, size = events + piece_events, size + piece_size
        else:
            runs.append([piece])
            events, size = piece_events, piece_size
    return runs


def _merge(pieces: Sequence[Piece]) -> ChunkColumns:
    if len(pieces) == 1:
        return pieces[0].columns
    parts = [piece.columns for piece in pieces]
    return ChunkColumns(
        b"\n".join([part.data for part in parts]),
        sum([part.count for part in parts]),
        _concatenate(parts, [part.keys for part in parts]),
        _concatenate(parts, [part.ids for part in parts]),
        _concatenate(parts, [part.times for part in parts]),
        _concatenate(parts, [part.headers for part in parts]),
    )


def _concatenate(parts: Sequence[ChunkColumns], columns: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    if not any(columns):
        return None
    values: list[Any] = []
    for part, column in zip(parts, columns, strict=True):
        values += [None] * part.count if column is None else column
    return values
