"""What is pushed to one queue, and the checking of it: whole, or what is good of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.core.names import check_key
from penstock.log.write.encode import Piece, Placer, prepare
from penstock.log.write.ndjson import Lines, prepare_lines, prepare_ndjson
from penstock.log.write.result import Rejected

#: With more bad events than this in one push, it is not what was meant.
MOST_REJECTED = 1_000


class Batch(msgspec.Struct, frozen=True):
    """Events for one queue: mappings with ``data`` and the like, NDJSON bytes, or texts column by column.

    The fields that hold key, id and time of NDJSON events are those of the queue's options where none are named.
    """

    queue: str
    events: Sequence[Mapping[str, Any]] | bytes | Lines
    key: str | None = None
    key_field: str | None = None
    id_field: str | None = None
    time_field: str | None = None


def prepare_batch(placer: Placer, max_bytes: int, batch: Batch) -> list[Piece]:
    """Check and encode a batch, or raise InvalidEvent for the first event that cannot be one."""
    key = None if batch.key is None else check_key(batch.key)
    if isinstance(batch.events, bytes | bytearray | memoryview):
        return prepare_ndjson(
            placer,
            bytes(batch.events),
            key=key,
            key_field=batch.key_field or placer.queue.key_field,
            id_field=batch.id_field or placer.queue.id_field,
            time_field=batch.time_field or placer.queue.time_field,
            max_bytes=max_bytes,
        )
    if isinstance(batch.events, Lines):
        return prepare_lines(placer, batch.events, key=key, max_bytes=max_bytes)
    events: object = batch.events
    if type(events) is not list and (isinstance(events, str) or not isinstance(events, Sequence)):
        raise InvalidRequest(f"events must be a list of mappings, or NDJSON as bytes, not {type(events).__name__}")
    if batch.key_field is not None or batch.id_field is not None or batch.time_field is not None:
        raise InvalidRequest(
            "key_field, id_field and time_field are for NDJSON; give each mapping its key, id and time"
        )
    if not batch.events:
        return []
    return prepare(placer, batch.events, key=key, max_bytes=max_bytes)


def prepare_partly(placer: Placer, max_bytes: int, batch: Batch) -> tuple[list[Piece], list[Rejected]]:
    """Check and encode what can be stored of a batch, and say what is wrong with the rest.

    Where all is well that costs nothing; else the bad ones are found by halving. With very many of them it is not what
    was meant, and all of it is refused.
    """
    try:
        return prepare_batch(placer, max_bytes, batch), []
    except InvalidEvent as error:
        first = error
    texts = _texts(batch)
    bad: dict[int, InvalidEvent] = {}
    # The first half is looked at first, so that of too many it is the first that are found.
    waiting: list[tuple[int, int, InvalidEvent | None]] = [(0, len(texts), first)]
    while waiting:
        start, end, error_of = waiting.pop()
        if error_of is None:
            try:
                prepare_batch(placer, max_bytes, _some(batch, range(start, end), texts))
                continue
            except InvalidEvent as error:
                error_of = error
        if end - start == 1:
            bad[start] = error_of
            if len(bad) > MOST_REJECTED:
                raise too_many(error_of)
            continue
        middle = (start + end) // 2
        waiting += [(middle, end, None), (start, middle, None)]
    good = [i for i in range(len(texts)) if i not in bad]
    pieces = prepare_batch(placer, max_bytes, _some(batch, good, texts)) if good else []
    moved = [structs.replace(piece, indices=[good[i] for i in piece.indices]) for piece in pieces]
    places = (batch.events.places if isinstance(batch.events, Lines) else None) or range(len(texts))
    rejected = [Rejected(places[i], error.field, error.reason, texts[i]) for i, error in sorted(bad.items())]
    return moved, rejected


def too_many(last: InvalidEvent) -> InvalidEvent:
    """What is said when most of what was pushed can be no events."""
    return InvalidEvent(
        f"{last.reason}; more than {MOST_REJECTED:,} events are wrong, so nothing was stored",
        index=last.index,
        field=last.field,
    )


def _texts(batch: Batch) -> list[bytes]:
    """Each event as it came, or as near to it as can be said."""
    if isinstance(batch.events, bytes | bytearray | memoryview):
        return [text for line in bytes(batch.events).split(b"\n") if (text := line.strip(b" \t\r\n"))]
    if isinstance(batch.events, Lines):
        return batch.events.data
    return [repr(event).encode("utf-8", "backslashreplace") for event in batch.events]


def _some(batch: Batch, which: Sequence[int], texts: Sequence[bytes]) -> Batch:
    if isinstance(batch.events, Lines):
        return structs.replace(batch, events=batch.events.pick(which))
    if isinstance(batch.events, bytes | bytearray | memoryview):
        return structs.replace(batch, events=b"\n".join([texts[i] for i in which]))
    return structs.replace(batch, events=[batch.events[i] for i in which])
