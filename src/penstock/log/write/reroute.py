"""Moving pieces that were prepared for partitions that are no longer the queue's."""

from __future__ import annotations

from msgspec import structs

from penstock.log.queue import Queue
from penstock.log.write.encode import Piece


def replaced(piece: Piece, queue: Queue) -> list[Piece]:
    """The piece as the queue is now: the same one, or several if its partitioning has changed."""
    before = piece.queue
    if before.id == queue.id and before.epoch == queue.epoch:
        return [structs.replace(piece, queue=queue)]
    keys = piece.keys()
    ids = piece.columns.ids or [None] * piece.columns.count
    names = [queue.place_event(key, event_id) for key, event_id in zip(keys, ids, strict=True)]
    whole = structs.replace(piece, queue=queue, columns=structs.replace(piece.columns, keys=keys))
    moved = []
    for name in dict.fromkeys(names):
        others = {i for i, other in enumerate(names) if other != name}
        some = whole.without(others) if others else whole
        columns = structs.replace(some.columns, keys=queue.kept_keys(name, some.columns.keys))
        moved.append(structs.replace(some, partition=name, columns=columns))
    return moved
