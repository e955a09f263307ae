"""From pieces of several pushes to the chunks that are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from penstock.db.pg_arrays import plain_numbers
from penstock.log.storage import chunk
from penstock.log.write.encode import PIECE_EVENTS, Piece

#: One call carries this many bytes at the most, and at least one chunk: PostgreSQL ends a value at 1 GiB.
_CALL_BYTES = 64 << 20


@dataclass(slots=True)
class Chunks:
    """The chunks of one call, column by column."""

    partitions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    #: Events of the call that are in the partition up to and with this chunk.
    after: list[int] = field(default_factory=list)
    targets: list[int | None] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    length: int = 0

    def add(self, partition_id: int, count: int, after: int, target: int | None, body: bytes) -> None:
        """Append one."""
        self.partitions.append(partition_id)
        self.counts.append(count)
        self.after.append(after)
        self.targets.append(target)
        self.bodies.append(body)
        self.length += len(body)

    def is_targeted(self) -> bool:
        """Whether some of them are for one group alone."""
        return self.targets.count(None) != len(self.targets)

    def params(self) -> dict[str, Any]:
        """As the statement takes them."""
        sizes = list(map(len, self.bodies))
        return {
            "partitions": plain_numbers(self.partitions),
            "counts": plain_numbers(self.counts),
            "after": plain_numbers(self.after),
            "starts": plain_numbers(list(accumulate(sizes, initial=1))[:-1]),
            "sizes": plain_numbers(sizes),
            "bodies": b"".join(self.bodies),
        }


def encode_chunks(lanes: Iterable[tuple[int, Sequence[Piece]]]) -> list[Chunks]:
    """The chunks for each partition's pieces, in as few calls as they fit in."""
    calls = [Chunks()]
    for partition_id, pieces in lanes:
        events = 0
        for columns, target in _merged(pieces):
            body = chunk.encode(columns)
            if calls[-1].length and calls[-1].length + len(body) > _CALL_BYTES:
                calls.append(Chunks())
                events = 0
            events += columns.count
            calls[-1].add(partition_id, columns.count, events, target, body)
    return calls


def _merged(pieces: Sequence[Piece]) -> Sequence[tuple[chunk.Columns, int | None]]:
    """What becomes one chunk each, and the group that it is for."""
    if len(pieces) == 1:
        return ((pieces[0].columns, pieces[0].target_group),)
    return [(_merge(group), group[0].target_group) for group in _mergeable(pieces)]


def _mergeable(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Neighbours that fit into one chunk together."""
    groups: list[list[Piece]] = []
    events = size = 0
    for piece in pieces:
        more, weight = piece.columns.count, len(piece.columns.data)
        if (
            groups
            and groups[-1][0].target_group == piece.target_group
            and events + more <= PIECE_EVENTS
            and size + weight <= chunk.TARGET_BYTES
        ):
            groups[-1].append(piece)
            events, size = events + more, size + weight
        else:
            groups.append([piece])
            events, size = more, weight
    return groups


def _merge(pieces: Sequence[Piece]) -> chunk.Columns:
    if len(pieces) == 1:
        return pieces[0].columns
    parts = [piece.columns for piece in pieces]
    return chunk.Columns(
        b"\n".join([part.data for part in parts]),
        sum([part.count for part in parts]),
        _joined(parts, [part.keys for part in parts]),
        _joined(parts, [part.ids for part in parts]),
        _joined(parts, [part.times for part in parts]),
        _joined(parts, [part.headers for part in parts]),
    )


def _joined(parts: Sequence[chunk.Columns], columns: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    """One column of all parts; None if no part has it."""
    if not any(columns):
        return None
    whole: list[Any] = []
    for part, some in zip(parts, columns, strict=True):
        whole += [None] * part.count if some is None else some
    return whole
