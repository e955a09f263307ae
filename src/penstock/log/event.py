"""An event as a reader gets it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from penstock.core import json
from penstock.core.timestamps import from_micros
from penstock.log.queue import DEFAULT_KEY
from penstock.log.storage import chunk

_UNREAD: Any = object()


class StoredChunk:
    """A chunk as it was read: its events and where in the partition they stand."""

    __slots__ = ("appended_at", "columns", "end", "first", "lines", "target_group")

    def __init__(
        self, end_offset: int, count: int, appended_at: datetime, target_group: int | None, body: bytes
    ) -> None:
        self.columns = chunk.decode(body, count)
        self.lines = self.columns.lines()
        self.end = end_offset
        self.first = end_offset - self.columns.count
        self.appended_at = appended_at
        self.target_group = target_group

    @classmethod
    def of(
        cls,
        columns: chunk.Columns,
        lines: list[bytes],
        first: int,
        appended_at: datetime,
        target_group: int | None = None,
    ) -> StoredChunk:
        """Events that somebody else has read, and passed on a line each."""
        made = cls.__new__(cls)
        made.columns, made.lines = columns, lines
        made.first, made.end = first, first + columns.count
        made.appended_at, made.target_group = appended_at, target_group
        return made


class Delivery(msgspec.Struct, frozen=True):
    """What the events of one partition in one pop have in common."""

    queue: str
    partition: str
    partition_id: int
    is_lane: bool
    group: str | None = None
    group_id: int = 0
    lease_id: UUID | None = None
    lease_until: datetime | None = None
    lease_end: int = 0
    attempts: int = 0


class Event:
    """One event: its data, where it stands, and what is needed to acknowledge it.

    It reads as a mapping too: ``event["data"]``, ``event.get("data")``. The data is decoded when it is first
    asked for.
    """

    __slots__ = ("_chunk", "_data", "_index", "delivery", "offset")

    def __init__(self, delivery: Delivery, source: StoredChunk, offset: int) -> None:
        self.delivery = delivery
        self._chunk = source
        self._index = offset - source.first
        self._data: Any = _UNREAD
        #: Its number in its partition: dense, from 0.
        self.offset = offset

    def sibling(self, offset: int) -> Event | None:
        """The event at another offset, if it lies in the same chunk."""
        if self._chunk.first <= offset < self._chunk.end:
            return Event(self.delivery, self._chunk, offset)
        return None

    @property
    def data(self) -> Any:
        """The event's content: any JSON value."""
        if self._data is _UNREAD:
            self._data = json.decode(self._chunk.lines[self._index])
        return self._data

    @property
    def raw(self) -> bytes:
        """The event's content as the JSON text that is stored."""
        return self._chunk.lines[self._index]

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.delivery.queue

    @property
    def partition(self) -> str:
        """The name of its partition: of a lane, its key."""
        return self.delivery.partition

    @property
    def partition_id(self) -> int:
        """The number of its partition."""
        return self.delivery.partition_id

    @property
    def key(self) -> str | None:
        """Its key, which decides its order; None if it was pushed without one."""
        if self.delivery.is_lane and self.delivery.partition != DEFAULT_KEY:
            return self.delivery.partition
        keys = self._chunk.columns.keys
        return None if keys is None else keys[self._index]

    @property
    def id(self) -> str:
        """The id it was pushed with, or one made of its partition and offset."""
        return self.given_id or f"{self.delivery.partition_id}-{self.offset}"

    @property
    def given_id(self) -> str | None:
        """The id it was pushed with, or None."""
        ids = self._chunk.columns.ids
        return None if ids is None else ids[self._index]

    @property
    def time(self) -> datetime:
        """When it happened, if the producer said so; else when it was appended."""
        return self.event_time or self._chunk.appended_at

    @property
    def event_time(self) -> datetime | None:
        """When it happened, if the producer said so."""
        times = self._chunk.columns.times
        micros = None if times is None else times[self._index]
        return None if micros is None else from_micros(micros)

    @property
    def appended_at(self) -> datetime:
        """When it was appended, by the database's clock; it never goes back within a partition."""
        return self._chunk.appended_at

    @property
    def headers(self) -> dict[str, str]:
        """What the producer sent beside the data."""
        headers = self._chunk.columns.headers
        mine = None if headers is None else headers[self._index]
        return mine or {}

    @property
    def is_redriven(self) -> bool:
        """Whether it is a dead letter that was sent back."""
        return self._chunk.target_group is not None

    @property
    def target_group(self) -> int | None:
        """The only group that it is for, if it is a dead letter that was sent back."""
        return self._chunk.target_group

    @property
    def group(self) -> str | None:
        """The group it was delivered to, if it was."""
        return self.delivery.group

    @property
    def lease_id(self) -> str | None:
        """The lease it was delivered under, if there is one."""
        lease = self.delivery.lease_id
        return None if lease is None else str(lease)

    @property
    def attempts(self) -> int:
        """How often this event, or one before it in the same batch, has failed already."""
        return self.delivery.attempts

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, _NAMES[name])
        except KeyError:
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """The field of that name, or the default."""
        return getattr(self, _NAMES[name]) if name in _NAMES else default

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def keys(self) -> tuple[str, ...]:
        """The names that it answers to as a mapping."""
        return tuple(_FIELDS)

    def to_dict(self) -> dict[str, Any]:
        """Everything a reader may want to print or pass on."""
        return {name: getattr(self, name) for name in _FIELDS}

    def __repr__(self) -> str:
        return f"Event({self.queue!r}, key={self.key!r}, offset={self.offset}, data={self.data!r})"


_FIELDS = (
    "queue",
    "partition",
    "partition_id",
    "offset",
    "key",
    "id",
    "time",
    "appended_at",
    "headers",
    "group",
    "lease_id",
    "attempts",
    "data",
)
_NAMES = {
    **{name: name for name in _FIELDS},
    "transactionId": "id",
    "partitionId": "partition_id",
    "leaseId": "lease_id",
    "consumerGroup": "group",
    "createdAt": "appended_at",
}
