"""A batch: events that are pushed to one queue, and their validation as a whole or event by event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from penstock.core.errors import InvalidEvent, InvalidRequest
from penstock.core.names import check_key
from penstock.log.partitioner import Partitioner
from penstock.log.write.encode.event_mappings import encode_events
from penstock.log.write.encode.json_events import JsonEvents, encode_json_events, encode_ndjson
from penstock.log.write.encode.piece import Piece
from penstock.log.write.push_result import RejectedInput

#: A partial push with more invalid events than this is refused.
MAX_REJECTED = 1_000
_BLANK = b" \t\r\n"


class Batch(msgspec.Struct, frozen=True):
    """Events for one queue: mappings with ``data``, NDJSON as bytes, or columns of JSON text.

    The options of the queue name the fields that hold key, id and time of NDJSON events, unless the batch names them.
    """

    queue: str
    events: Sequence[Mapping[str, Any]] | bytes | JsonEvents
    key: str | None = None
    key_field: str | None = None
    id_field: str | None = None
    time_field: str | None = None


def encode_batch(partitioner: Partitioner, max_bytes: int, batch: Batch) -> list[Piece]:
    """Validate and encode a batch, or raise InvalidEvent for the first invalid event."""
    key = None if batch.key is None else check_key(batch.key)
    if isinstance(batch.events, bytes | bytearray | memoryview):
        return encode_ndjson(
            partitioner,
            bytes(batch.events),
            key=key,
            key_field=batch.key_field or partitioner.queue.key_field,
            id_field=batch.id_field or partitioner.queue.id_field,
            time_field=batch.time_field or partitioner.queue.time_field,
            max_bytes=max_bytes,
        )
    if isinstance(batch.events, JsonEvents):
        return encode_json_events(partitioner, batch.events, key=key, max_bytes=max_bytes)
    events: object = batch.events
    if type(events) is not list and (isinstance(events, str) or not isinstance(events, Sequence)):
        raise InvalidRequest(f"events must be a list of mappings, or NDJSON as bytes, not {type(events).__name__}")
    if batch.key_field is not None or batch.id_field is not None or batch.time_field is not None:
        raise InvalidRequest(
            "key_field, id_field and time_field are for NDJSON; give each mapping its key, id and time"
        )
    if not batch.events:
        return []
    return encode_events(partitioner, batch.events, key=key, max_bytes=max_bytes)


def encode_valid_events(
    partitioner: Partitioner, max_bytes: int, batch: Batch
) -> tuple[list[Piece], list[RejectedInput]]:
    """Encode the valid events of a batch, and return the invalid ones separately.

    A batch without errors costs nothing extra. Otherwise, bisection finds the invalid events. A batch with more than
    MAX_REJECTED of them is refused.
    """
    try:
        return encode_batch(partitioner, max_bytes, batch), []
    except InvalidEvent as error:
        first_error = error
    texts = _event_texts(batch)
    invalid: dict[int, InvalidEvent] = {}
    # The first half is tried first, so that the first invalid events are reported if there are too many.
    stack: list[tuple[int, int, InvalidEvent | None]] = [(0, len(texts), first_error)]
    while stack:
        start, end, known_error = stack.pop()
        if known_error is None:
            try:
                encode_batch(partitioner, max_bytes, _pick_events(batch, range(start, end), texts))
                continue
            except InvalidEvent as error:
                known_error = error
        if end - start == 1:
            invalid[start] = known_error
            if len(invalid) > MAX_REJECTED:
                raise too_many_rejected(known_error)
            continue
        middle = (start + end) // 2
        stack += [(middle, end, None), (start, middle, None)]
    valid = [i for i in range(len(texts)) if i not in invalid]
    pieces = encode_batch(partitioner, max_bytes, _pick_events(batch, valid, texts)) if valid else []
    pieces = [structs.replace(piece, indices=[valid[i] for i in piece.indices]) for piece in pieces]
    indices = (batch.events.indices if isinstance(batch.events, JsonEvents) else None) or range(len(texts))
    lines = _line_numbers(batch)
    return pieces, [
        RejectedInput(indices[i], error.field, error.reason, texts[i], None if lines is None else lines[i])
        for i, error in sorted(invalid.items())
    ]


def too_many_rejected(last: InvalidEvent) -> InvalidEvent:
    return InvalidEvent(
        f"{last.reason}; more than {MAX_REJECTED:,} events are wrong, so nothing was stored",
        index=last.index,
        field=last.field,
    )


def _event_texts(batch: Batch) -> list[bytes]:
    """Return each event as it was pushed, or its repr if it is not text."""
    if isinstance(batch.events, bytes | bytearray | memoryview):
        return [text for line in bytes(batch.events).split(b"\n") if (text := line.strip(_BLANK))]
    if isinstance(batch.events, JsonEvents):
        return batch.events.data
    return [repr(event).encode("utf-8", "backslashreplace") for event in batch.events]


def _line_numbers(batch: Batch) -> list[int] | None:
    """Return the line of each event of NDJSON, from 1."""
    if not isinstance(batch.events, bytes | bytearray | memoryview):
        return None
    lines = bytes(batch.events).split(b"\n")
    return [number for number, line in enumerate(lines, 1) if line.strip(_BLANK)]


def _pick_events(batch: Batch, which: Sequence[int], texts: Sequence[bytes]) -> Batch:
    if isinstance(batch.events, JsonEvents):
        return structs.replace(batch, events=batch.events.pick(which))
    if isinstance(batch.events, bytes | bytearray | memoryview):
        return structs.replace(batch, events=b"\n".join([texts[i] for i in which]))
    return structs.replace(batch, events=[batch.events[i] for i in which])
