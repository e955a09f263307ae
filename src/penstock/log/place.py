"""Moving pieces that were prepared for partitions that are no longer the queue's."""

from __future__ import annotations

import dataclasses

from penstock.log.prepare import Piece
from penstock.log.queue import DEFAULT_KEY, Queue


def replaced(piece: Piece, queue: Queue) -> list[Piece]:
    """The piece as the queue is now: the same one, or several if its partitioning has changed."""
    before = piece.queue
    if before.id == queue.id and before.epoch == queue.epoch:
        return [dataclasses.replace(piece, queue=queue)]
    if before.partition_count is None:
        keys = [None if piece.partition == DEFAULT_KEY else piece.partition] * piece.columns.count
    else:
        keys = list(piece.columns.keys or [None] * piece.columns.count)
    anywhere = DEFAULT_KEY if queue.partition_count is None else "0"
    names = [anywhere if key is None else queue.place(key) for key in keys]
    kept = keys if queue.partition_count is not None and any(keys) else None
    whole = dataclasses.replace(piece, queue=queue, columns=dataclasses.replace(piece.columns, keys=kept))
    moved = []
    for name in dict.fromkeys(names):
        others = {i for i, other in enumerate(names) if other != name}
        moved.append(dataclasses.replace(whole.without(others) if others else whole, partition=name))
    return moved
