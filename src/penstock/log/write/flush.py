"""A flush: append requests that are written together, grouped by partition, and their results. No database here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock.db.pg_arrays import digest_array, int_array
from penstock.log.queue import Queue
from penstock.log.write.encode.piece import Piece
from penstock.log.write.push_result import AppendedEvents, PushResult, RejectedInput

_USUAL_EVENT_BYTES = 512

#: A queue id and the name of a partition.
PartitionName: TypeAlias = tuple[int, str]


@dataclass(slots=True)
class AppendRequest:
    """One push: the pieces of each of its batches, which are stored together."""

    #: The pieces of each batch.
    parts: list[list[Piece]]
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    results: list[PushResult] = field(default_factory=list)
    #: Invalid input that becomes dead letters in the same transaction, with the id of its queue.
    rejected: Sequence[tuple[Queue, RejectedInput]] = ()
    #: The number of events of each part that was dropped because its queue was full, by the index of the part.
    shed: Mapping[int, int] | None = None
    #: The share of a flush that the request takes: its number of events, or more if they are large.
    weight: int = 0

    def __post_init__(self) -> None:
        for part in self.parts:
            for piece in part:
                columns = piece.columns
                self.weight += max(columns.count, len(columns.data) // _USUAL_EVENT_BYTES)

    @classmethod
    def without_shed(cls, parts: Sequence[list[Piece]], shed: Mapping[int, int]) -> AppendRequest:
        """Return a request without the parts that were shed. Its results count them."""
        return cls([[] if i in shed else part for i, part in enumerate(parts)], shed=shed or None)

    def pieces(self) -> Iterable[Piece]:
        for part in self.parts:
            yield from part

    def report_shed(self) -> None:
        for i, events in (self.shed or {}).items():
            self.results[i].shed = events


class FlushPartition(msgspec.Struct, gc=False):
    """The events that a flush appends to one partition, and their first offset."""

    queue: Queue
    partition_id: int
    pieces: list[Piece]
    events: int
    base: int = 0


class EventLocation(NamedTuple):
    """Where an event is stored, which may be a partition of an earlier epoch."""

    partition: str
    partition_id: int
    offset: int


class FlushDuplicate(NamedTuple):
    """An event that occurs earlier in the same flush: its piece (by ``id()``) and its position in it."""

    piece: int
    position: int


#: The events that were stored before, by piece (its ``id()``) and position in it.
Duplicates: TypeAlias = dict[int, dict[int, EventLocation | FlushDuplicate]]
#: The id hashes of the events of each piece (by its ``id()``).
IdHashes: TypeAlias = dict[int, list[bytes | None]]


def deduplicates(piece: Piece) -> bool:
    return piece.queue.dedup_window_seconds > 0 and piece.columns.ids is not None and piece.target_group is None


def hash_ids(partitions: dict[PartitionName, FlushPartition]) -> IdHashes:
    """Return the id hashes of the pieces that are checked for duplicates."""
    return {
        id(piece): piece.id_hashes()
        for partition in partitions.values()
        for piece in partition.pieces
        if deduplicates(piece)
    }


def are_distinct(hashes: Iterable[list[bytes | None]]) -> bool:
    ids = [digest for column in hashes for digest in column if digest is not None]
    return len(ids) == len(set(ids))


def group_by_partition(
    requests: Sequence[AppendRequest], partition_ids: dict[PartitionName, int]
) -> dict[PartitionName, FlushPartition]:
    """Return the pieces of each partition, in the order of the requests."""
    partitions: dict[PartitionName, FlushPartition] = {}
    for request in requests:
        for part in request.parts:
            for piece in part:
                name = (piece.queue.id, piece.partition)
                partition = partitions.get(name)
                if partition is None:
                    partitions[name] = FlushPartition(piece.queue, partition_ids[name], [piece], piece.columns.count)
                else:
                    partition.pieces.append(piece)
                    partition.events += piece.columns.count
    return partitions


def group_by_queue(partitions: dict[PartitionName, FlushPartition]) -> list[list[FlushPartition]]:
    queues: dict[int, list[FlushPartition]] = {}
    for partition in partitions.values():
        queues.setdefault(partition.queue.id, []).append(partition)
    return list(queues.values())


def id_params(
    partitions: Sequence[FlushPartition], chunk_partitions: Sequence[int], hashes: IdHashes
) -> dict[str, Any]:
    """Return the parameters of the append function for ids.

    For each id: its hash, the number of the first chunk of its partition in the call, and its distance from the head
    of the partition.
    """
    first_chunks: dict[int, int] = {}
    for number, partition_id in enumerate(chunk_partitions, 1):
        first_chunks.setdefault(partition_id, number)
    id_hashes: list[bytes] = []
    slots: list[int] = []
    distances: list[int] = []
    for partition in partitions:
        slot = first_chunks.get(partition.partition_id, 0)
        start = 0
        for piece in partition.pieces:
            for i, digest in enumerate(hashes.get(id(piece), ())):
                if digest is not None:
                    id_hashes.append(digest)
                    slots.append(slot)
                    distances.append(start + i)
            start += piece.columns.count
    return {"hashes": digest_array(id_hashes), "slots": int_array(slots), "places": int_array(distances)}


def assign_base_offsets(partitions: Sequence[FlushPartition], rows: Sequence[tuple[int, int]]) -> None:
    """Set the first offset of each partition's events, from the end offsets of the chunks."""
    ends: dict[int, int] = {}
    for partition_id, end_offset in rows:
        ends[partition_id] = max(end_offset, ends.get(partition_id, 0))
    for partition in partitions:
        partition.base = ends[partition.partition_id] - partition.events


def fill_results(
    requests: Sequence[AppendRequest], partitions: dict[PartitionName, FlushPartition], duplicates: Duplicates
) -> None:
    """Set the results of the requests: where each event was stored, now or before."""
    locations: dict[int, list[EventLocation]] = {}
    for request in requests:
        request.results = []
        for part in request.parts:
            appended: list[AppendedEvents] = []
            for piece in part:
                partition = partitions[piece.queue.id, piece.partition]
                if duplicates:
                    skipped = duplicates.get(id(piece), {})
                    locations[id(piece)] = _locate_events(piece, partition, skipped, locations)
                    appended += _appended_with_duplicates(piece, locations[id(piece)], skipped)
                    continue
                start = partition.base
                partition.base = end = start + piece.columns.count
                name, number, offsets = piece.partition, partition.partition_id, range(start, end)
                appended.append(
                    AppendedEvents(piece.queue.name, name, number, piece.indices, offsets, piece.columns.ids)
                )
            request.results.append(PushResult(appended))
        request.report_shed()


def _locate_events(
    piece: Piece,
    partition: FlushPartition,
    skipped: Mapping[int, EventLocation | FlushDuplicate],
    locations: Mapping[int, Sequence[EventLocation]],
) -> list[EventLocation]:
    """Return the location of each event of a piece, and advance the partition's base past those that are new."""
    where: list[EventLocation] = []
    for position in range(piece.columns.count):
        duplicate = skipped.get(position)
        if isinstance(duplicate, FlushDuplicate):
            earlier = locations.get(duplicate.piece, where)
            where.append(earlier[duplicate.position])
        elif duplicate is not None:
            where.append(duplicate)
        else:
            where.append(EventLocation(piece.partition, partition.partition_id, partition.base))
            partition.base += 1
    return where


def _appended_with_duplicates(
    piece: Piece, where: Sequence[EventLocation], skipped: Collection[int]
) -> list[AppendedEvents]:
    """Return the locations of a piece's events by partition."""
    ids = piece.columns.ids
    by_partition: dict[tuple[str, int], list[int]] = {}
    for position, location in enumerate(where):
        by_partition.setdefault((location.partition, location.partition_id), []).append(position)
    return [
        AppendedEvents(
            piece.queue.name,
            name,
            number,
            [piece.indices[position] for position in positions],
            [where[position].offset for position in positions],
            None if ids is None else [ids[position] for position in positions],
            frozenset(i for i, position in enumerate(positions) if position in skipped),
        )
        for (name, number), positions in by_partition.items()
    ]
