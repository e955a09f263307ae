"""A flush: the requests that go together, sorted by partition, and their answers. No database here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.db.arrays import digests, numbers
from penstock.log.prepare import Piece
from penstock.log.pushed import Placed, PushResult

if TYPE_CHECKING:
    from penstock.log.queue import Queue

_USUAL_BYTES = 512


@dataclass(slots=True)
class Request:
    """One call of push: the pieces for each queue it names, answered together."""

    parts: list[list[Piece]]
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    results: list[PushResult] = field(default_factory=list)
    #: How much of a flush it takes: its events, or for large ones their bytes in units of what is usual.
    weight: int = 0

    def __post_init__(self) -> None:
        sizes = [(piece.columns.count, len(piece.columns.data)) for part in self.parts for piece in part]
        self.weight = sum([max(count, size // _USUAL_BYTES) for count, size in sizes])

    def pieces(self) -> Iterable[Piece]:
        """All pieces, of all queues."""
        for part in self.parts:
            yield from part


@dataclass(slots=True)
class Lane:
    """What a flush appends to one partition, and where it went."""

    queue: Queue
    partition_id: int
    pieces: list[Piece] = field(default_factory=list)
    events: int = 0
    base: int = 0


def deduplicates(piece: Piece) -> bool:
    """Whether the piece's ids are to be looked for."""
    return piece.queue.dedup_window_seconds > 0 and piece.columns.ids is not None and piece.target_group is None


def hash_ids(work: dict[tuple[int, str], Lane]) -> dict[int, list[bytes | None]]:
    """The id hashes of the pieces that are to be deduplicated."""
    return {
        id(piece): piece.id_hashes(lane.partition_id)
        for lane in work.values()
        for piece in lane.pieces
        if deduplicates(piece)
    }


def all_differ(columns: Iterable[list[bytes | None]]) -> bool:
    """Whether no id occurs twice."""
    found = [digest for column in columns for digest in column if digest is not None]
    return len(found) == len(set(found))


def gather(requests: Sequence[Request], lanes: dict[tuple[int, str], int]) -> dict[tuple[int, str], Lane]:
    """What each partition gets, in the order of the requests."""
    work: dict[tuple[int, str], Lane] = {}
    for request in requests:
        for piece in request.pieces():
            key = (piece.queue.id, piece.partition)
            lane = work.get(key)
            if lane is None:
                lane = work[key] = Lane(piece.queue, lanes[key])
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


def answer(
    requests: Sequence[Request],
    work: dict[tuple[int, str], Lane],
    repeated: dict[int, dict[int, int | None]],
) -> None:
    """Fill in the requests' results: where each event went, or where the one it repeats is."""
    starts: dict[tuple[int, str], int] = {key: lane.base for key, lane in work.items()}
    first_seen: dict[tuple[int, str, str], int] = {}
    for request in requests:
        request.results = []
        for part in request.parts:
            placed: list[Placed] = []
            for piece in part:
                key = (piece.queue.id, piece.partition)
                lane = work[key]
                skipped = repeated.get(id(piece))
                start = starts[key]
                count = piece.columns.count
                ids = piece.columns.ids
                offsets: Sequence[int]
                if skipped is None:
                    offsets = range(start, start + count)
                    starts[key] = start + count
                    if repeated and ids is not None:
                        first_seen.update(((*key, event_id or ""), start + i) for i, event_id in enumerate(ids))
                else:
                    offsets = []
                    for place in range(count):
                        known = skipped.get(place, start)
                        own = (*key, (ids[place] if ids is not None else None) or "")
                        offset = first_seen[own] if known is None else known
                        first_seen.setdefault(own, offset)
                        offsets.append(offset)
                        start += place not in skipped
                    starts[key] = start
                placed.append(
                    Placed(
                        piece.queue.name,
                        piece.partition,
                        lane.partition_id,
                        piece.indices,
                        offsets,
                        ids,
                        frozenset() if skipped is None else frozenset(skipped),
                    )
                )
            request.results.append(PushResult(placed))
