"""How numbers of ours look on the wire, where everything is a UUID: packed, so that none has to be looked up.

They are of version 8, which is for layouts of one's own. An event's id sorts as its offset does in its partition.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from uuid import UUID

_MARK = int.from_bytes(b"pstock")
_VERSION = 0x8 << 76
_VARIANT = 0b10 << 62
_NUMBER = (1 << 62) - 1


class Kind(IntEnum):
    """What a packed number is of."""

    QUEUE = 1
    PARTITION = 2
    QUERY = 3
    DEAD_LETTER = 4


@lru_cache(maxsize=10_000)
def pack(kind: Kind, number: int) -> str:
    """A number of ours as a UUID."""
    return _written(_MARK << 80 | _VERSION | kind << 64 | _VARIANT | number)


def unpack(kind: Kind, text: object) -> int | None:
    """The number that a UUID stands for; None if it is no such one."""
    value = as_uuid(text)
    if value is None or value.int >> 80 != _MARK or (value.int >> 64) & 0xFFFF != 0x8000 | kind:
        return None
    return value.int & _NUMBER


def message_id(partition_id: int, offset: int) -> str:
    """The id of the event at an offset: made of the two, in their order."""
    return _written(partition_id << 80 | _VERSION | _VARIANT | offset)


def _written(value: int) -> str:
    # A third of what it takes by way of a UUID: each message has one.
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def as_uuid(text: object) -> UUID | None:
    """A UUID, if the text is one."""
    if not isinstance(text, str):
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


def moment(time: datetime) -> datetime:
    """A time as it is told: in UTC, so that it ends in Z."""
    return time.astimezone(UTC)


def read_moment(text: str) -> datetime:
    """A time that was told, in UTC unless it says otherwise; ValueError if it is none."""
    time = datetime.fromisoformat(text)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it would be of no year that there is") from None
