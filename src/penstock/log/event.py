"""An event as a consumer receives it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from penstock.core import json
from penstock.core.clock import from_micros
from penstock.log.queue import DEFAULT_KEY
from penstock.log.storage.chunk import StoredChunk

_NOT_DECODED: Any = object()


class Delivery(msgspec.Struct, frozen=True):
    """The values that the events of one partition share within one pop or read."""

    queue: str
    partition: str
    partition_id: int
    is_key_partition: bool
    group: str | None = None
    group_id: int = 0
    lease_id: UUID | None = None
    lease_until: datetime | None = None
    #: The number of failed attempts by offset. Events that have not failed are missing.
    failures: Mapping[int, int] = {}


class Event:
    """One event: its data, its position in the queue, and the lease that acknowledges it.

    The data is decoded on first access. An event can be read like a mapping, too: ``event["data"]``,
    ``event.get("data")``.
    """

    __slots__ = ("_chunk", "_data", "_index", "delivery", "offset")

    def __init__(self, delivery: Delivery, source: StoredChunk, offset: int) -> None:
        self.delivery = delivery
        self._chunk = source
        self._index = offset - source.first
        self._data: Any = _NOT_DECODED
        #: The position in the partition, counted from 0 without gaps.
        self.offset = offset

    def sibling(self, offset: int) -> Event | None:
        """Return the event at another offset of the same chunk, or None if the offset is outside of it."""
        if self._chunk.first <= offset < self._chunk.end:
            return Event(self.delivery, self._chunk, offset)
        return None

    @property
    def data(self) -> Any:
        """The content: any JSON value."""
        if self._data is _NOT_DECODED:
            self._data = json.decode(self._chunk.lines[self._index])
        return self._data

    @property
    def raw(self) -> bytes:
        """The content as the JSON text that is stored."""
        return self._chunk.lines[self._index]

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.delivery.queue

    @property
    def partition(self) -> str:
        """The name of the partition. In a queue that is partitioned by key, it is the key."""
        return self.delivery.partition

    @property
    def partition_id(self) -> int:
        """The id of the partition."""
        return self.delivery.partition_id

    @property
    def key(self) -> str | None:
        """The key, or None. Events with the same key are delivered in order."""
        if self.delivery.is_key_partition and self.delivery.partition != DEFAULT_KEY:
            return self.delivery.partition
        keys = self._chunk.columns.keys
        return None if keys is None else keys[self._index]

    @property
    def id(self) -> str:
        """The id that the producer gave, or one that is made of the partition id and the offset."""
        return self.given_id or f"{self.delivery.partition_id}-{self.offset}"

    @property
    def given_id(self) -> str | None:
        """The id that the producer gave, or None."""
        ids = self._chunk.columns.ids
        return None if ids is None else ids[self._index]

    @property
    def time(self) -> datetime:
        """The event time, or the time of the append if the producer gave none."""
        return self.event_time or self._chunk.appended_at

    @property
    def event_time(self) -> datetime | None:
        """The event time that the producer gave, or None."""
        times = self._chunk.columns.times
        micros = None if times is None else times[self._index]
        return None if micros is None else from_micros(micros)

    @property
    def appended_at(self) -> datetime:
        """The time of the append by the clock of the database. It never decreases within a partition."""
        return self._chunk.appended_at

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the producer gave."""
        headers = self._chunk.columns.headers
        own_headers = None if headers is None else headers[self._index]
        return own_headers or {}

    @property
    def is_redriven(self) -> bool:
        """Whether the event is a redriven dead letter."""
        return self._chunk.target_group is not None

    @property
    def target_group(self) -> int | None:
        """The id of the only group that receives the event, if it is a redriven dead letter."""
        return self._chunk.target_group

    @property
    def group(self) -> str | None:
        """The group that popped the event, or None."""
        return self.delivery.group

    @property
    def lease_id(self) -> str | None:
        """The id of the lease that the event was popped under, or None."""
        lease = self.delivery.lease_id
        return None if lease is None else str(lease)

    @property
    def attempts(self) -> int:
        """The number of failed attempts of the event before this delivery."""
        return self.delivery.failures.get(self.offset, 0)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, _ALIASES[name])
        except KeyError:
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field of that name, or the default."""
        return getattr(self, _ALIASES[name]) if name in _ALIASES else default

    def __contains__(self, name: object) -> bool:
        return name in _ALIASES

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(_FIELDS)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict."""
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
# Field names of the Queen protocol are accepted as well.
_ALIASES = {
    **{name: name for name in _FIELDS},
    "transactionId": "id",
    "partitionId": "partition_id",
    "leaseId": "lease_id",
    "consumerGroup": "group",
    "createdAt": "appended_at",
}
