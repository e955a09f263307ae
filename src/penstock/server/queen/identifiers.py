"""Conversion between internal numbers and the UUIDs of the protocol.

A number is encoded in the UUID itself, so decoding needs no lookup. The UUIDs have version 8, which RFC 9562 reserves
for custom layouts. The ids of messages sort in the order of their offsets within a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from uuid import UUID

from penstock.server.auth.identity import TOKEN
from penstock.server.http.errors import Problem

#: The consumer group of clients that name none. They share the messages of a queue.
QUEUE_MODE = "__QUEUE_MODE__"

#: Event headers that store fields which only this protocol has.
TRACE_HEADER = "traceId"
PRODUCER_HEADER = "producerSub"
#: The id that a timer has promised for its message. Other ids follow from the position of a message.
MESSAGE_ID_HEADER = "messageId"

_MARK = int.from_bytes(b"pstock")
_VERSION = 0x8 << 76
_VARIANT = 0b10 << 62
_NUMBER_MASK = (1 << 62) - 1


class IdKind(IntEnum):
    QUEUE = 1
    PARTITION = 2
    QUERY = 3
    DEAD_LETTER = 4


@lru_cache(maxsize=10_000)
def encode_id(kind: IdKind, number: int) -> str:
    """Encode a number as a UUID."""
    return _format_uuid(_MARK << 80 | _VERSION | kind << 64 | _VARIANT | number)


def decode_id(kind: IdKind, text: object) -> int | None:
    """Return the number in a UUID of :func:`encode_id`, or None if it is not one of this kind."""
    value = parse_uuid(text)
    if value is None or value.int >> 80 != _MARK or (value.int >> 64) & 0xFFFF != 0x8000 | kind:
        return None
    return value.int & _NUMBER_MASK


def encode_message_id(partition_id: int, offset: int) -> str:
    """Encode the position of a message as a UUID."""
    return _format_uuid(partition_id << 80 | _VERSION | _VARIANT | offset)


def producer_subject(caller: str) -> str:
    """Return the name of a producer: the subject of a token without its kind, or the id of an API key."""
    kind, _, subject = caller.partition(":")
    return subject if kind == TOKEN else caller


def message_id(headers: Mapping[str, str], partition_id: int, offset: int) -> str:
    """Return the id of a message: the one that was promised when it was scheduled, or the one of its position."""
    return headers.get(MESSAGE_ID_HEADER) or encode_message_id(partition_id, offset)


def _format_uuid(value: int) -> str:
    # Three times as fast as str(UUID(int=value)), and every message has one.
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def parse_uuid(text: object) -> UUID | None:
    """Parse a UUID; return None if the text is not one."""
    if not isinstance(text, str):
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


def parse_timestamp(text: str, problem: str) -> datetime:
    """Parse an ISO timestamp, in UTC if it names no time zone; raise this problem if it is not one."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem("invalid-request", problem) from None


def parse_time_range(since: str, until: str) -> tuple[datetime | None, datetime | None]:
    """Parse the query parameters ``from`` and ``to``, which may be empty."""
    problem = "from and to must be ISO timestamps"
    return parse_timestamp(since, problem) if since else None, parse_timestamp(until, problem) if until else None
