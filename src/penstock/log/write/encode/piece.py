"""A piece: validated and encoded events of one push for one partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import structs

from penstock.core.errors import InvalidEvent
from penstock.log.queue import DEFAULT_KEY, Queue
from penstock.log.storage.chunk import TARGET_BYTES, ChunkColumns

#: The most events in a piece: few enough to read one event cheaply, many enough to compress well.
PIECE_EVENTS = 2000


class Piece(msgspec.Struct, gc=False):
    """Encoded events of one push for one partition.

    A push to many partitions creates one for each. ``gc=False`` spares the garbage collector from tracking them.
    """

    queue: Queue
    partition: str
    #: The positions of the events in the push.
    indices: Sequence[int]
    columns: ChunkColumns
    #: The only group that receives the events (of a redriven dead letter).
    target_group: int | None = None

    def keys(self) -> Sequence[str | None]:
        if self.queue.partition_count is None and self.partition != DEFAULT_KEY:
            return [self.partition] * self.columns.count
        return self.columns.keys or [None] * self.columns.count

    def id_hashes(self) -> list[bytes | None]:
        """Return the hash of each event's key and id for the deduplication table, or None for an event without an id.

        The hash does not depend on the partition, so that ids are still known after the queue is repartitioned.
        """
        if self.columns.ids is None:
            return [None] * self.columns.count
        return [
            None if event_id is None else blake2b(f"{key or ''}\0{event_id}".encode(), digest_size=16).digest()
            for key, event_id in zip(self.keys(), self.columns.ids, strict=True)
        ]

    def event_tuples(self) -> list[tuple[Any, ...]]:
        """Return index, key, id, time, headers and data of each event, for the fingerprint of a push."""
        columns, nothing = self.columns, [None] * self.columns.count
        return list(
            zip(
                self.indices,
                self.keys(),
                columns.ids or nothing,
                columns.times or nothing,
                columns.headers or nothing,
                columns.lines(),
                strict=True,
            )
        )

    def without(self, dropped: set[int]) -> Piece:
        """Return the piece without the events at these positions in it."""
        kept = [i for i in range(self.columns.count) if i not in dropped]
        columns = self.columns
        lines = columns.lines()

        def keep(column: Sequence[Any] | None) -> list[Any] | None:
            return None if column is None else [column[i] for i in kept]

        return Piece(
            self.queue,
            self.partition,
            [self.indices[i] for i in kept],
            ChunkColumns(
                b"\n".join([lines[i] for i in kept]),
                len(kept),
                keep(columns.keys),
                keep(columns.ids),
                keep(columns.times),
                keep(columns.headers),
            ),
            self.target_group,
        )

    def with_headers(self, headers: Mapping[str, str]) -> Piece:
        """Return the piece with these headers added to each event. Headers of the event take precedence."""
        own_headers = self.columns.headers or [None] * self.columns.count
        merged = [{**headers, **(own or {})} for own in own_headers]
        return structs.replace(self, columns=structs.replace(self.columns, headers=merged))

    def repartition(self, queue: Queue) -> list[Piece]:
        """Return the events for the current partitions of the queue: several pieces if its partitioning has changed."""
        if self.queue.id == queue.id and self.queue.epoch == queue.epoch:
            return [structs.replace(self, queue=queue)]
        keys = self.keys()
        ids = self.columns.ids or [None] * self.columns.count
        names = [queue.partition_for_event(key, event_id) for key, event_id in zip(keys, ids, strict=True)]
        whole = structs.replace(self, queue=queue, columns=structs.replace(self.columns, keys=keys))
        pieces = []
        for name in dict.fromkeys(names):
            others = {i for i, other in enumerate(names) if other != name}
            part = whole.without(others) if others else whole
            columns = structs.replace(part.columns, keys=queue.stored_keys(name, part.columns.keys))
            pieces.append(structs.replace(part, partition=name, columns=columns))
        return pieces


def add_pieces(
    pieces: list[Piece],
    queue: Queue,
    partition: str,
    indices: Sequence[int],
    text: bytes,
    columns: Sequence[Sequence[Any] | None],
    max_bytes: int,
) -> None:
    """Append the events of one partition to ``pieces``, split into pieces of limited size.

    ``text`` is the events' data as NDJSON. ``columns`` are those beside it, in the order of :class:`ChunkColumns`.
    """
    if len(indices) <= PIECE_EVENTS and len(text) <= TARGET_BYTES and len(text) <= max_bytes:
        pieces.append(Piece(queue, partition, indices, ChunkColumns(text, len(indices), *columns)))
        return
    lines = text.split(b"\n")
    for index, line in zip(indices, lines, strict=True):
        _check_size(line, index, max_bytes)
    for start, end in _split([len(line) for line in lines]):
        part = [None if column is None else column[start:end] for column in columns]
        part_columns = ChunkColumns(b"\n".join(lines[start:end]), end - start, *part)
        pieces.append(Piece(queue, partition, indices[start:end], part_columns))


def _split(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of events that neither have too many events nor too many bytes, unless one event alone has."""
    ranges: list[tuple[int, int]] = []
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and (total + size > TARGET_BYTES or i - start >= PIECE_EVENTS):
            ranges.append((start, i))
            start, total = i, 0
        total += size + 1
    ranges.append((start, len(sizes)))
    return ranges


def _check_size(line: bytes, index: int, max_bytes: int) -> None:
    if len(line) > max_bytes:
        raise InvalidEvent(
            f"is {len(line)} bytes of JSON and the limit is {max_bytes}; store it elsewhere and push a reference, "
            "or raise max_event_bytes of the queue",
            index=index,
            field="data",
        )
