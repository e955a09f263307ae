"""Builds chunks from the pieces of several pushes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from penstock.db.pg_arrays import int_array
from penstock.log.storage import chunk
from penstock.log.storage.chunk import ChunkColumns
from penstock.log.write.encode.piece import PIECE_EVENTS, Piece

#: The most bytes in one call of the append function, unless one chunk has more. PostgreSQL limits a value to 1 GiB.
CALL_BYTES = 64 << 20
#: Fewer bytes are compressed by one thread.
_MIN_PARALLEL_BYTES = 4 << 20


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
    runs = [(partition_id, run) for partition_id, pieces in partitions for run in _mergeable_runs(pieces)]
    bodies = _encode_runs([run for _, run in runs], encrypted=encrypted, readable=readable)
    calls = [ChunkBatch()]
    counts: defaultdict[int, int] = defaultdict(int)
    for (partition_id, run), body in zip(runs, bodies, strict=True):
        if calls[-1].size and calls[-1].size + len(body) > max_call_bytes:
            calls.append(ChunkBatch())
            counts.clear()
        events = sum(piece.columns.count for piece in run)
        counts[partition_id] += events
        calls[-1].add(partition_id, events, counts[partition_id], run[0].target_group, body)
    return calls


def _encode_runs(runs: Sequence[Sequence[Piece]], *, encrypted: bool, readable: bool) -> list[bytes]:
    def encode(run: Sequence[Piece]) -> bytes:
        return chunk.encode(_merge(run), encrypted=encrypted, readable=readable)

    size = sum(len(piece.columns.data) for run in runs for piece in run)
    if size < _MIN_PARALLEL_BYTES or len(runs) == 1:
        return list(map(encode, runs))
    # Compression does not hold the interpreter lock.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(encode, runs))


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
