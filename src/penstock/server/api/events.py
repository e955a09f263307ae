"""Events over HTTP: looked at without consuming them, and pushed to several queues at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import (
    CorruptChunk,
    IdempotencyConflict,
    InvalidEvent,
    InvalidRequest,
    PenstockError,
    QueueFull,
)
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.write.batch import Batch
from penstock.log.write.envelopes import read_envelopes
from penstock.log.write.result import PushResult
from penstock.protocol import messages
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem, problem_of
from penstock.server.ingest.accounting import count_push, producer_of
from penstock.server.ingest.headers import full_headers
from penstock.server.ingest.push import idempotency_key

_READ = frozenset({Role.READ})
_PRODUCE = frozenset({Role.PRODUCE})

_TAG = "Events"
#: Events that are larger in sum are not given in one answer.
MOST_BYTES = 16 << 20
#: So many are read before it is known how large they are.
_FIRST_PAGE = 16


class EventsQuery(Struct, frozen=True):
    """Which events: with an ``offset``, those of a partition from there on; without, the newest that match."""

    partition: str | None = None
    partition_id: messages.Number | None = None
    offset: int | None = None
    key: str | None = None
    id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: Annotated[int, Meta(ge=1, le=messages.MOST_EVENTS)] = 100


class _Enough(Exception):
    """No more events are wanted."""


class _Gathered:
    """Takes events while they fit an answer."""

    def __init__(self, asked: EventsQuery, most_bytes: int) -> None:
        self.events: list[Event] = []
        self.more = False
        self._asked = asked
        self._bytes = 0
        self._most_bytes = most_bytes

    def take(self, event: Event) -> bool:
        """Take an event if it is the one that is looked for."""
        wanted = self._asked.id
        if wanted is not None and event.given_id != wanted and (event.given_id is not None or event.id != wanted):
            return False
        self._bytes += len(event.raw)
        if self.events and self._bytes > self._most_bytes:
            self.more = True
            raise _Enough
        self.events.append(event)
        return True

    def likely(self) -> int:
        """How many more events are likely to fit."""
        each = max(self._bytes // max(len(self.events), 1), 1)
        return max((self._most_bytes - self._bytes) // each, 0) + _FIRST_PAGE


async def events(call: Call) -> messages.Events:
    """Events, without consuming them."""
    return await call.services.looks.look(call, _events(call))


async def _events(call: Call) -> messages.Events:
    asked: EventsQuery = call.query
    gathered = _Gathered(asked, await call.room(MOST_BYTES))
    log, queue = call.services.log, call.path["queue"]
    try:
        if asked.offset is not None:
            await _from_offset(log, queue, asked, asked.offset, gathered)
        elif asked.partition_id is not None:
            raise InvalidRequest("a partition_id goes with an offset")
        else:
            await log.browse(
                queue,
                partition=asked.partition,
                key=asked.key,
                since=asked.since,
                until=asked.until,
                matching=gathered.take,
                limit=asked.limit,
            )
    except _Enough:
        pass
    return messages.Events([messages.EventDocument.of(event) for event in gathered.events], gathered.more)


async def _from_offset(log: Log, queue: str, asked: EventsQuery, offset: int, gathered: _Gathered) -> None:
    others = (asked.key, asked.id, asked.since, asked.until)
    if (asked.partition is None) == (asked.partition_id is None) or others != (None, None, None, None):
        raise InvalidRequest("an offset is a place in one partition: give offset with partition or partition_id, alone")
    size = _FIRST_PAGE
    while (room := asked.limit - len(gathered.events)) > 0:
        some = min(size, room)
        try:
            if asked.partition is not None:
                page = await log.fetch(queue, asked.partition, offset, some)
            else:
                page = await log.read(queue, asked.partition_id or 0, offset, some)
        except CorruptChunk:
            if gathered.events:
                return  # they end before it; who asks for what is in it is told so
            raise
        for event in page:
            gathered.take(event)
        if not page and some < room:
            size = room  # retention may have dropped what the partition began with
            continue
        if len(page) < some:
            return
        offset = page[-1].offset + 1
        # As many as are likely to fit the answer, by what those before were like.
        size = gathered.likely()


async def push(call: Call) -> messages.Pushes:
    """Store events in several queues, all or none."""
    asked: messages.Push = call.body
    queues = [batch.queue for batch in asked.batches]
    call.permit(queues)
    key = idempotency_key(call.request.headers, call.caller)
    async with taking(call, queues) as taken:
        batches = [batch_of(each) for each in asked.batches]
        taken += await call.services.log.push(batches, idempotency_key=key)
    return messages.Pushes([messages.PushOutcome.of(result) for result in taken])


@asynccontextmanager
async def taking(call: Call, queues: Sequence[str]) -> AsyncIterator[list[PushResult]]:
    """While events are pushed: they are counted, and held against what their producer may push."""
    services = call.services
    services.producers.check(producer_of(call))
    results: list[PushResult] = []
    try:
        yield results
    except QueueFull as full:
        problem = problem_of(full)
        raise Problem(problem.kind, problem.detail, problem.facts, full_headers(full)) from None
    except IdempotencyConflict:
        # As the caller wrote it, and not as it is stored.
        given = call.request.headers.get("idempotency-key", "")
        raise IdempotencyConflict(
            f"the idempotency key {given!r} was used before for other events; use a new key for new events"
        ) from None
    except InvalidEvent:
        for queue in queues[:1]:
            # Of one that there is, or anybody could make series by naming many.
            if await _is_queue(services.log, queue):
                services.metrics.pushed(queue, accepted=0, rejected=1)
        raise
    for queue, result in zip(queues, results, strict=True):
        count_push(call, queue, result)


async def _is_queue(log: Log, name: str) -> bool:
    try:
        await log.queue(name)
    except PenstockError:
        return False
    return True


def batch_of(given: messages.PushBatch) -> Batch:
    """A batch as the log takes it; what it holds is for the log to read."""
    if given.ndjson is not None:
        if bytes(given.events) != b"[]":
            raise InvalidRequest("a batch has events or ndjson, not both")
        text = given.ndjson.encode()
        return Batch(given.queue, text, given.key, given.key_field, given.id_field, given.time_field)
    if (given.key_field, given.id_field, given.time_field) != (None, None, None):
        raise InvalidRequest("key_field, id_field and time_field are for ndjson; give each event its key, id and time")
    return Batch(given.queue, read_envelopes(bytes(given.events)), given.key)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/push",
        push,
        "Store events in one or several queues, all or none",
        _TAG,
        _PRODUCE,
        asks=True,
        body=messages.Push,
        answer=messages.Pushes,
        problems=("not-found", "idempotency-conflict", "invalid-event", "invalid-name", "queue-full", "rate-limited"),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/events",
        events,
        "Look at events without consuming them",
        _TAG,
        _READ,
        query=EventsQuery,
        answer=messages.Events,
        problems=("not-found", "invalid-name", "too-large", "overloaded"),
    ),
)
