"""A flush: the requests that go together, sorted by partition, and their answers. No database here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from penstock.db.pg_arrays import digests, numbers
from penstock.log.queue import Queue
from penstock.log.write.encode import Piece
from penstock.log.write.result import Placed, PushResult, Rejected

_USUAL_BYTES = 512


@dataclass(slots=True)
class Request:
    """One call of push: the pieces for each queue it names, answered together."""

    parts: list[list[Piece]]
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    results: list[PushResult] = field(default_factory=list)
    #: What could not be events, to become dead letters in the same transaction, and of which queue.
    rejected: Sequence[tuple[int, Rejected]] = ()
    #: The parts that were dropped because their queue is full and sheds, and how many events each of them was.
    shed: Mapping[int, int] | None = None
    #: How much of a flush it takes: its events, or for large ones their bytes in units of what is usual.
    weight: int = 0

    def __post_init__(self) -> None:
        for part in self.parts:
            for piece in part:
                columns = piece.columns
                self.weight += max(columns.count, len(columns.data) // _USUAL_BYTES)

    @classmethod
    def less(cls, parts: Sequence[list[Piece]], shed: Mapping[int, int]) -> Request:
        """A request without the parts that are shed; its answer tells of them."""
        return cls([[] if i in shed else part for i, part in enumerate(parts)], shed=shed or None)

    def pieces(self) -> Iterable[Piece]:
        """All pieces, of all queues."""
        for part in self.parts:
            yield from part

    def tell_shed(self) -> None:
        """Say in the results what was shed."""
        for i, events in (self.shed or {}).items():
            self.results[i].shed = events


class Lane(msgspec.Struct, gc=False):
    """What a flush appends to one partition, and where it went."""

    queue: Queue
    partition_id: int
    pieces: list[Piece]
    events: int
    base: int = 0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """An event in another partition than its key has now: the queue was repartitioned since."""

    partition: str
    partition_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Twin:
    """An event of the same flush: the piece, by its identity, and the place in it."""

    piece: int
    place: int


#: Which events of a piece (by its identity) repeat others, by their place in it, and where those are.
Repeated: TypeAlias = dict[int, dict[int, int | Elsewhere | Twin]]


def deduplicates(piece: Piece) -> bool:
    """Whether the piece's ids are to be looked for."""
    return piece.queue.dedup_window_seconds > 0 and piece.columns.ids is not None and piece.target_group is None


def hash_ids(work: dict[tuple[int, str], Lane]) -> dict[int, list[bytes | None]]:
    """The id hashes of the pieces that are to be deduplicated."""
    return {id(piece): piece.id_hashes() for lane in work.values() for piece in lane.pieces if deduplicates(piece)}


def all_differ(columns: Iterable[list[bytes | None]]) -> bool:
    """Whether no id occurs twice."""
    found = [digest for column in columns for digest in column if digest is not None]
    return len(found) == len(set(found))


def gather(requests: Sequence[Request], lanes: dict[tuple[int, str], int]) -> dict[tuple[int, str], Lane]:
    """What each partition gets, in the order of the requests."""
    work: dict[tuple[int, str], Lane] = {}
    for request in requests:
        for part in request.parts:
            for piece in part:
                key = (piece.queue.id, piece.partition)
                lane = work.get(key)
                if lane is None:
                    work[key] = Lane(piece.queue, lanes[key], [piece], piece.columns.count)
                else:
                    lane.pieces.append(piece)
                    lane.events += piece.columns.count
    return work


def by_queue(work: dict[tuple[int, str], Lane]) -> list[list[Lane]]:
    """The lanes of each queue."""
    queues: dict[int, list[Lane]] = {}
    for lane in work.values():
        queues.setdefault(lane.queue.id, []).append(lane)
    return list(queues.values())


def id_params(
    lanes: Sequence[Lane], partitions: Sequence[int], hashes: dict[int, list[bytes | None]]
) -> dict[str, Any]:
    """The ids to remember: which of the call's chunks shares their partition, and how far after its head they are."""
    slots: dict[int, int] = {}
    for slot, partition_id in enumerate(partitions, 1):
        slots.setdefault(partition_id, slot)
    found: list[bytes] = []
    at: list[int] = []
    places: list[int] = []
    for lane in lanes:
        slot = slots.get(lane.partition_id, 0)
        place = 0
        for piece in lane.pieces:
            mine = hashes.get(id(piece), ())
            for i, digest in enumerate(mine):
                if digest is not None:
                    found.append(digest)
                    at.append(slot)
                    places.append(place + i)
            place += piece.columns.count
    return {"hashes": digests(found), "slots": numbers(at), "places": numbers(places)}


def settle(lanes: Sequence[Lane], rows: Sequence[Any]) -> None:
    """Work out from the chunks' end offsets where each lane's events begin."""
    ends: dict[int, int] = {}
    for partition_id, end_offset in rows:
        ends[partition_id] = max(end_offset, ends.get(partition_id, 0))
    for lane in lanes:
        lane.base = ends[lane.partition_id] - lane.events


def answer(requests: Sequence[Request], work: dict[tuple[int, str], Lane], repeated: Repeated) -> None:
    """Fill in the requests' results: where each event went, or where the one it repeats is."""
    if not repeated:
        _answer_all(requests, work)
        return
    starts: dict[tuple[int, str], int] = {key: lane.base for key, lane in work.items()}
    told: dict[int, Sequence[int | Elsewhere]] = {}
    for request in requests:
        request.results = []
        for part in request.parts:
            placed: list[Placed] = []
            for piece in part:
                key = (piece.queue.id, piece.partition)
                start = starts[key]
                skipped = repeated.get(id(piece))
                if skipped is None:
                    starts[key] = end = start + piece.columns.count
                    told[id(piece)] = range(start, end)
                    placed.append(_placed(piece, work[key].partition_id, range(start, end)))
                    continue
                where, starts[key] = _told(piece, start, skipped, told)
                told[id(piece)] = where
                placed += _placed_apart(piece, work[key].partition_id, where, skipped)
            request.results.append(PushResult(placed))
        request.tell_shed()


def _answer_all(requests: Sequence[Request], work: dict[tuple[int, str], Lane]) -> None:
    """The same where no event repeats another: what nearly every flush is."""
    for request in requests:
        request.results = []
        for part in request.parts:
            placed: list[Placed] = []
            for piece in part:
                lane = work[piece.queue.id, piece.partition]
                start = lane.base
                lane.base = end = start + piece.columns.count
                placed.append(_placed(piece, lane.partition_id, range(start, end)))
            request.results.append(PushResult(placed))
        if request.shed:
            request.tell_shed()


def _told(
    piece: Piece,
    start: int,
    skipped: Mapping[int, int | Elsewhere | Twin],
    told: Mapping[int, Sequence[int | Elsewhere]],
) -> tuple[list[int | Elsewhere], int]:
    """Where each event of a piece is, some of which repeat others, and where the next one goes."""
    where: list[int | Elsewhere] = []
    for place in range(piece.columns.count):
        known = skipped.get(place)
        if isinstance(known, Twin):
            where.append(told[known.piece][known.place] if known.piece in told else where[known.place])
        elif known is not None:
            where.append(known)
        else:
            where.append(start)
            start += 1
    return where, start


def _placed(piece: Piece, partition_id: int, offsets: Sequence[int]) -> Placed:
    return Placed(piece.queue.name, piece.partition, partition_id, piece.indices, offsets, piece.columns.ids)


def _placed_apart(
    piece: Piece, partition_id: int, where: Sequence[int | Elsewhere], skipped: Collection[int]
) -> list[Placed]:
    """Where the events of a piece are, some of which repeat others, in this partition or in one of before."""
    ids = piece.columns.ids
    places: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for place, at in enumerate(where):
        if isinstance(at, Elsewhere):
            places.setdefault((at.partition, at.partition_id), []).append((place, at.offset))
        else:
            places.setdefault((piece.partition, partition_id), []).append((place, at))
    return [
        Placed(
            piece.queue.name,
            name,
            number,
            [piece.indices[place] for place, _ in some],
            [offset for _, offset in some],
            None if ids is None else [ids[place] for place, _ in some],
            frozenset(i for i, (place, _) in enumerate(some) if place in skipped),
        )
        for (name, number), some in places.items()
    ]
