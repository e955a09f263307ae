"""Popping: from a queue, from one partition, or from all queues of a namespace or task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.responses import Response

from penstock.core.errors import NotFound
from penstock.log.event import Event
from penstock.log.groups import Place
from penstock.log.log import Log
from penstock.log.queue import DEFAULT_KEY
from penstock.log.read.lease import PopRequest
from penstock.log.read.pop import Hand
from penstock.server.api.events import MOST_BYTES
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen import queues
from penstock.server.queen.identifiers import Kind, message_id, moment, pack, read_moment
from penstock.server.queen.poll import long_poll
from penstock.server.queen.push import PRODUCER_HEADER, TRACE_HEADER
from penstock.server.queen.queues import TAG

#: The group of those who name none: they share the queue's messages.
QUEUE_MODE = "__QUEUE_MODE__"

#: What a pop takes if it does not say.
DEFAULT_BATCH = 200
_MOST_MESSAGES = 10_000
_MOST_PARTITIONS = 1_000
#: Partitions for a client that leaves it to us.
_AUTOPILOT_PARTITIONS = 8
_LONGEST_WAIT_MS = 600_000
#: How long it can take until a queue is noticed that did not exist, or a message in one queue of several.
_LOOK_AGAIN = 0.5

_turns = count()


class PopQuery(msgspec.Struct, rename="camel"):
    """What a consumer asks for."""

    batch: int = 0
    wait: bool = False
    timeout: float = 30_000
    consumer_group: str = ""
    auto_ack: bool = False
    subscription_mode: str = ""
    subscription_from: str = ""
    partitions: int = 0
    namespace: str = ""
    task: str = ""
    lease_seconds: float | None = None
    autopilot: bool = False
    conflation: bool = False


class Message(msgspec.Struct, rename="camel"):
    """A message as it is delivered."""

    id: str
    transaction_id: str
    trace_id: str | None
    data: Raw
    producer_sub: str | None
    created_at: datetime
    partition_id: str
    partition: str
    lease_id: str
    consumer_group: str
    retry_count: int
    delivery_attempt: int


class Popped(msgspec.Struct, rename="camel"):
    """The messages of a pop; those of several partitions share one lease."""

    queue: str
    partition: str
    partition_id: str
    lease_id: str
    consumer_group: str
    partitions_claimed: int
    messages: list[Message]
    success: bool = True
    autopilot: dict[str, int] | UnsetType = UNSET


async def pop_queue(call: Call) -> Popped | Response:
    """Pop from any partition of a queue."""
    return await _pop(call, await _request(call, call.path["queue"], None))


async def pop_partition(call: Call) -> Popped | Response:
    """Pop from one partition."""
    return await _pop(call, await _request(call, call.path["queue"], call.path["partition"]))


async def pop_namespace(call: Call) -> Popped | Response:
    """Pop from the first queue of a namespace or task that has something."""
    query: PopQuery = call.query
    call.permit(())
    if not query.namespace and not query.task:
        raise Problem(
            "invalid-request", "namespace or task is required: pop from a queue with /api/v1/pop/queue/{queue}"
        )
    request = await _request(call, None, None)
    log = call.services.log
    hand = call.hold()

    async def look(seconds: float) -> list[Event]:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = await queues.find(log, query.namespace or None, query.task or None)
            names = [known.name for known in found if call.sees(known.name)]
            # Each pop begins with another queue, so that a full one does not keep the others waiting.
            first = next(_turns) % max(len(names), 1)
            for name in (*names[first:], *names[:first]):
                events = await _look(log, replace(request, queue=name, wait_seconds=0.0), hand)
                if events:
                    return events
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                return []
            await asyncio.sleep(min(remaining, _LOOK_AGAIN))

    return _popped(call, request, await long_poll(call, look, _seconds(query)))


async def _pop(call: Call, request: PopRequest) -> Popped | Response:
    log, hand = call.services.log, call.hold()

    async def look(seconds: float) -> list[Event]:
        return await _look(log, replace(request, wait_seconds=seconds), hand)

    return _popped(call, request, await long_poll(call, look, _seconds(call.query)))


async def _look(log: Log, request: PopRequest, hand: Hand) -> list[Event]:
    """Pop from a queue that may not exist yet."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.wait_seconds
    while True:
        remaining = max(deadline - loop.time(), 0.0)
        try:
            return await log.pop(replace(request, wait_seconds=remaining), hand)
        except NotFound:
            if remaining <= 0:
                return []
        # All that the queue will hold when it is made is new to who waits for it.
        request = replace(request, subscribe_from="beginning")
        await asyncio.sleep(min(remaining, _LOOK_AGAIN))


async def _request(call: Call, queue: str | None, partition: str | None) -> PopRequest:
    query: PopQuery = call.query
    if query.conflation:
        raise Problem("invalid-request", "conflation is not offered: every message is delivered")
    group = query.consumer_group or QUEUE_MODE
    place = _place(query) if group != QUEUE_MODE else "beginning"
    if queue is not None and place != "beginning" and await call.services.log.catalog.find(queue) is None:
        # From now on, says the group; so there must be something to note it in.
        await queues.ensure(call.services.log, queue)
    batch = min(query.batch if query.batch > 0 else DEFAULT_BATCH, _MOST_MESSAGES)
    default = _AUTOPILOT_PARTITIONS if query.autopilot else 1
    return PopRequest(
        queue or "any",
        group,
        batch,
        min(query.partitions if query.partitions > 0 else default, _MOST_PARTITIONS),
        partition,
        0.0,
        query.lease_seconds or None,
        query.auto_ack,
        place,
        max_bytes=min(MOST_BYTES, call.services.given_out.limit),
    )


def _place(query: PopQuery) -> Place:
    """Where a new group starts: at the beginning, unless it says otherwise."""
    told = query.subscription_from or query.subscription_mode
    if told in ("", "all"):
        return "beginning"
    if told in ("now", "new", "new-only"):
        return "end"
    if told == query.subscription_from:
        try:
            return read_moment(told)
        except ValueError:
            raise Problem("invalid-request", "subscriptionFrom must be 'now' or an ISO timestamp") from None
    raise Problem("invalid-request", "subscriptionMode must be 'all', 'new' or 'new-only'")


def _seconds(query: PopQuery) -> float:
    return min(max(query.timeout, 0), _LONGEST_WAIT_MS) / 1000 if query.wait else 0.0


def _popped(call: Call, request: PopRequest, events: Sequence[Event]) -> Popped | Response:
    if not events:
        return Response(status_code=204)
    call.services.log.by_id.remember(events)
    call.services.metrics.delivered(events[0].queue, len(events))
    messages = [_message(event, request.auto_ack) for event in events]
    first = messages[0]
    query: PopQuery = call.query
    sizes = {"partitions": request.partitions, "batch": request.batch, "waitMs": 0}
    return Popped(
        events[0].queue,
        first.partition,
        first.partition_id,
        first.lease_id,
        request.group,
        len({event.partition_id for event in events}),
        messages,
        autopilot=sizes if query.autopilot else UNSET,
    )


def _message(event: Event, is_acked: bool) -> Message:
    headers = event.headers
    return Message(
        message_id(event.partition_id, event.offset),
        event.id,
        headers.get(TRACE_HEADER),
        Raw(event.raw),
        headers.get(PRODUCER_HEADER),
        moment(event.appended_at),
        pack(Kind.PARTITION, event.partition_id),
        event.partition or DEFAULT_KEY,
        "" if is_acked else event.lease_id or "",
        event.group or QUEUE_MODE,
        event.attempts,
        event.attempts + 1,
    )


_NOTHING: dict[str, Any] = {"responses": {"204": {"description": "There is nothing to deliver."}}}


def _endpoint(path: str, handler: Any, summary: str, *, asks: bool = False) -> Endpoint:
    return Endpoint(
        "GET",
        path,
        handler,
        summary,
        TAG,
        roles=frozenset({Role.CONSUME}),
        asks=asks,
        query=PopQuery,
        answer=Popped,
        plane=True,
        problems=("invalid-name",),
        documented=_NOTHING,
        changes=True,
    )


ENDPOINTS = (
    _endpoint("/api/v1/pop/queue/{queue}", pop_queue, "Pop from a queue"),
    _endpoint("/api/v1/pop/queue/{queue}/partition/{partition}", pop_partition, "Pop from a partition"),
    _endpoint("/api/v1/pop", pop_namespace, "Pop from the queues of a namespace or task", asks=True),
)
