"""Events as JSON documents: how the server sends them and how the client reads them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct

from penstock.core.clock import to_micros
from penstock.log.event import Delivery, Event
from penstock.log.storage import chunk
from penstock.log.storage.chunk import StoredChunk


class EventDocument(Struct, frozen=True, omit_defaults=True):
    """An event. An ack needs its ``lease_id``, ``partition_id`` and ``offset``. Null fields are left out."""

    partition: str
    partition_id: int
    offset: int
    id: str
    appended_at: datetime
    data: Raw
    key: str | None = None
    event_time: datetime | None = None
    headers: dict[str, str] = {}
    redriven: bool = False
    attempts: int = 0
    lease_id: UUID | None = None
    lease_until: datetime | None = None

    @classmethod
    def of(cls, event: Event) -> EventDocument:
        """Convert an event of the log."""
        delivery = event.delivery
        return cls(
            delivery.partition,
            delivery.partition_id,
            event.offset,
            event.id,
            event.appended_at,
            Raw(event.raw),
            event.key,
            event.event_time,
            event.headers,
            event.is_redriven,
            event.attempts,
            delivery.lease_id,
            delivery.lease_until,
        )


class EventList(Struct, frozen=True):
    """Events. ``more`` is true if the response was cut short by its size limit and there may be others."""

    events: list[EventDocument]
    more: bool = False

    def read(self, queue: str, group: str | None = None) -> list[Event]:
        """Convert to the events that the log itself returns."""
        events: list[Event] = []
        for _, leased_together in groupby(self.events, key=lambda event: (event.partition_id, event.lease_id)):
            documents = list(leased_together)
            first = documents[0]
            delivery = Delivery(
                queue,
                first.partition,
                first.partition_id,
                # The document carries the key, so it is not derived from the partition name.
                is_key_partition=False,
                group=group,
                lease_id=first.lease_id,
                lease_until=first.lease_until,
                failures={event.offset: event.attempts for event in documents if event.attempts},
            )
            for run in _contiguous_runs(documents):
                stored = _stored_chunk(run)
                events += [Event(delivery, stored, event.offset) for event in run]
        return events


def _contiguous_runs(events: Sequence[EventDocument]) -> Iterator[list[EventDocument]]:
    """Split events into runs that one chunk can hold: ascending offsets without gaps, appended together."""

    def chunk_key(indexed: tuple[int, EventDocument]) -> tuple[int, datetime, bool]:
        index, event = indexed
        return event.offset - index, event.appended_at, event.redriven

    for _, run in groupby(enumerate(events), chunk_key):
        yield [event for _, event in run]


def _stored_chunk(events: list[EventDocument]) -> StoredChunk:
    generated_ids = [f"{event.partition_id}-{event.offset}" for event in events]
    given_ids = [None if event.id == id else event.id for event, id in zip(events, generated_ids, strict=True)]
    columns = chunk.ChunkColumns(
        b"",
        len(events),
        _column([event.key for event in events]),
        _column(given_ids),
        _column([None if event.event_time is None else to_micros(event.event_time) for event in events]),
        _column([event.headers or None for event in events]),
    )
    return StoredChunk.of(
        columns,
        [bytes(event.data) for event in events],
        events[0].offset,
        events[0].appended_at,
        0 if events[0].redriven else None,
    )


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None
