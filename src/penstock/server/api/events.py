"""``GET /v1/queues/{queue}/events``: read events without consuming them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import CorruptChunk, InvalidRequest
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack_request import NonNegativeInt
from penstock.protocol import messages
from penstock.protocol.events import EventDocument, EventList
from penstock.server.auth.identity import Role
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Events")

#: Events in the first read, before their size is known.
_FIRST_PAGE = 16


class EventsQuery(Struct, frozen=True):
    """Which events to return: with an ``offset``, those of a partition from there on; else the newest that match."""

    partition: str | None = None
    partition_id: NonNegativeInt | None = None
    offset: int | None = None
    key: str | None = None
    id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: Annotated[int, Meta(ge=1, le=messages.MAX_EVENTS)] = 100


class _ResponseFull(Exception):
    """The next event does not fit the response."""


class _EventCollector:
    """Collects events until the response is full."""

    def __init__(self, query: EventsQuery, max_bytes: int) -> None:
        self.events: list[Event] = []
        self.has_more = False
        self._query = query
        self._bytes = 0
        self._max_bytes = max_bytes

    def add(self, event: Event) -> bool:
        """Add an event if it has the id of the query; return whether it was added."""
        id = self._query.id
        if id is not None and event.given_id != id and (event.given_id is not None or event.id != id):
            return False
        self._bytes += len(event.raw)
        if self.events and self._bytes > self._max_bytes:
            self.has_more = True
            raise _ResponseFull
        self.events.append(event)
        return True

    def estimate_page(self) -> int:
        """Return the number of events that probably still fit, from the average size so far."""
        average = max(self._bytes // max(len(self.events), 1), 1)
        return max((self._max_bytes - self._bytes) // average, 0) + _FIRST_PAGE


@routes.get(
    "/v1/queues/{queue}/events",
    "List events without consuming them",
    Role.READ,
    problems=("not-found", "invalid-name", "too-large", "overloaded"),
)
async def list_events(call: ApiCall, query: EventsQuery) -> EventList:
    return await call.services.searches.run(call.request, _search(call, query))


async def _search(call: ApiCall, query: EventsQuery) -> EventList:
    collector = _EventCollector(query, await call.reserve_response(MAX_RESPONSE_BYTES))
    log, queue = call.log, call.path["queue"]
    try:
        if query.offset is not None:
            await _read_from_offset(log, queue, query, query.offset, collector)
        elif query.partition_id is not None:
            raise InvalidRequest("partition_id needs an offset")
        else:
            await log.browse(
                queue,
                partition=query.partition,
                key=query.key,
                since=query.since,
                until=query.until,
                matching=collector.add,
                limit=query.limit,
            )
    except _ResponseFull:
        pass
    return EventList([EventDocument.of(event) for event in collector.events], collector.has_more)


async def _read_from_offset(log: Log, queue: str, query: EventsQuery, offset: int, collector: _EventCollector) -> None:
    other_filters = (query.key, query.id, query.since, query.until)
    if (query.partition is None) == (query.partition_id is None) or other_filters != (None, None, None, None):
        raise InvalidRequest("an offset belongs to one partition: give offset with partition or partition_id, alone")
    page_size = _FIRST_PAGE
    while (left := query.limit - len(collector.events)) > 0:
        limit = min(page_size, left)
        try:
            if query.partition is not None:
                page = await log.fetch(queue, query.partition, offset, limit)
            else:
                page = await log.read(queue, query.partition_id or 0, offset, limit)
        except CorruptChunk:
            if collector.events:
                return  # the events end before the damaged chunk; a request for the chunk itself fails
            raise
        for event in page:
            collector.add(event)
        if not page and limit < left:
            page_size = left  # retention may have dropped the first events of the partition
            continue
        if len(page) < limit:
            return
        offset = page[-1].offset + 1
        page_size = collector.estimate_page()
