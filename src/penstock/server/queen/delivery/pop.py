"""The endpoints that pop messages: from a queue, one partition, or all queues of a namespace or task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.core.errors import NotFound
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.queue import DEFAULT_KEY
from penstock.log.read.pop import MemoryReservation
from penstock.log.read.pop_request import PopRequest
from penstock.log.start_position import StartPosition
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.queen.delivery.ack_by_id import AcksById
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import (
    PRODUCER_HEADER,
    QUEUE_MODE,
    TRACE_HEADER,
    IdKind,
    encode_id,
    message_id,
    parse_timestamp,
)
from penstock.server.queen.queues import find_queues, get_or_create_queue
from penstock.server.routing.call import ApiCall
from penstock.server.routing.long_poll import wait_for_events

routes = queen_routes("invalid-name")
_POP: dict[str, Any] = {
    "openapi": {"responses": {"204": {"description": "No message is available."}}},
    "has_side_effects": True,
}

_DEFAULT_BATCH = 200
_MAX_BATCH = 10_000
_MAX_PARTITIONS = 1_000
#: The number of partitions for a client that leaves the choice to the server.
_AUTOPILOT_PARTITIONS = 8
_MAX_WAIT_MS = 600_000
#: Seconds between two polls of a queue that does not exist yet, or of the queues of a namespace.
_POLL_SECONDS = 0.5

_namespace_pops = count()


class PopParameters(msgspec.Struct, rename="camel"):
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


class PoppedMessage(msgspec.Struct, rename="camel"):
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


class PoppedMessages(msgspec.Struct, rename="camel"):
    """The messages of a pop. All partitions of a pop share one lease."""

    queue: str
    partition: str
    partition_id: str
    lease_id: str
    consumer_group: str
    partitions_claimed: int
    messages: list[PoppedMessage]
    success: bool = True
    autopilot: dict[str, int] | UnsetType = UNSET


@routes.get("/api/v1/pop/queue/{queue}", "Pop from a queue", Role.CONSUME, **_POP)
async def pop_queue(call: ApiCall, query: PopParameters) -> PoppedMessages | None:
    return await _pop(call, query, None)


@routes.get("/api/v1/pop/queue/{queue}/partition/{partition}", "Pop from a partition", Role.CONSUME, **_POP)
async def pop_partition(call: ApiCall, query: PopParameters) -> PoppedMessages | None:
    return await _pop(call, query, call.path["partition"])


@routes.get("/api/v1/pop", "Pop from the queues of a namespace or task", Role.CONSUME, checks_queues=True, **_POP)
async def pop_namespace(call: ApiCall, query: PopParameters) -> PoppedMessages | None:
    """Pop from the first queue of a namespace or task that has messages."""
    call.require_access(())
    if not query.namespace and not query.task:
        raise Problem(
            "invalid-request", "namespace or task is required: pop from a queue with /api/v1/pop/queue/{queue}"
        )
    request = await _pop_request(call, query, None, None)
    memory = call.reserve_memory()

    async def pop() -> list[Event]:
        deadline = asyncio.get_running_loop().time() + request.wait_seconds
        while True:
            queues = await find_queues(call.log, query.namespace or None, query.task or None)
            names = [queue.name for queue in queues if call.can_see(queue.name)]
            # Each pop starts with another queue, so that a full one does not starve the others.
            first = next(_namespace_pops) % max(len(names), 1)
            for name in (*names[first:], *names[:first]):
                events = await _pop_when_created(call.log, replace(request, queue=name, wait_seconds=0.0), memory)
                if events:
                    return events
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                return []
            await asyncio.sleep(min(remaining, _POLL_SECONDS))

    return _response(call, query, request, await wait_for_events(call, pop()))


async def _pop(call: ApiCall, query: PopParameters, partition: str | None) -> PoppedMessages | None:
    request = await _pop_request(call, query, call.path["queue"], partition)
    pop = _pop_when_created(call.log, request, call.reserve_memory())
    return _response(call, query, request, await wait_for_events(call, pop))


async def _pop_when_created(log: Log, request: PopRequest, memory: MemoryReservation) -> list[Event]:
    """Pop from a queue that may not exist yet."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.wait_seconds
    while True:
        remaining = max(deadline - loop.time(), 0.0)
        try:
            return await log.pop(replace(request, wait_seconds=remaining), memory)
        except NotFound:
            if remaining <= 0:
                return []
        # The consumer waits since before the queue exists, so all its events are new to it.
        request = replace(request, subscribe_from="beginning")
        await asyncio.sleep(min(remaining, _POLL_SECONDS))


async def _pop_request(call: ApiCall, query: PopParameters, queue: str | None, partition: str | None) -> PopRequest:
    if query.conflation:
        raise Problem("invalid-request", "conflation is not supported: every message is delivered")
    group = query.consumer_group or QUEUE_MODE
    start = _start_position(query) if group != QUEUE_MODE else "beginning"
    if queue is not None and start != "beginning" and await call.log.catalog.find(queue) is None:
        # The group starts now, and only an existing queue can store its start.
        await get_or_create_queue(call.log, queue)
    batch = min(query.batch if query.batch > 0 else _DEFAULT_BATCH, _MAX_BATCH)
    default = _AUTOPILOT_PARTITIONS if query.autopilot else 1
    return PopRequest(
        queue or "any",
        group,
        batch,
        min(query.partitions if query.partitions > 0 else default, _MAX_PARTITIONS),
        partition,
        min(max(query.timeout, 0), _MAX_WAIT_MS) / 1000 if query.wait else 0.0,
        query.lease_seconds or None,
        query.auto_ack,
        start,
        max_bytes=min(MAX_RESPONSE_BYTES, call.services.response_memory.limit),
    )


def _start_position(query: PopParameters) -> StartPosition:
    """Return where a new group starts: at the beginning by default, and for a mode that nobody knows."""
    subscription = query.subscription_from or query.subscription_mode
    if subscription in ("now", "new", "new-only"):
        return "end"
    if query.subscription_from:
        return parse_timestamp(subscription, "subscriptionFrom must be 'now' or an ISO timestamp")
    return "beginning"


def _response(
    call: ApiCall, query: PopParameters, request: PopRequest, events: Sequence[Event]
) -> PoppedMessages | None:
    if not events:
        return None
    call.services.component(AcksById).remember(events)
    call.services.metrics.delivered.add(len(events), events[0].queue)
    messages = [_message(event, request.auto_ack) for event in events]
    first = messages[0]
    sizes = {"partitions": request.partitions, "batch": request.batch, "waitMs": 0}
    return PoppedMessages(
        events[0].queue,
        first.partition,
        first.partition_id,
        first.lease_id,
        request.group,
        len({event.partition_id for event in events}),
        messages,
        autopilot=sizes if query.autopilot else UNSET,
    )


def _message(event: Event, is_acked: bool) -> PoppedMessage:
    headers = event.headers
    return PoppedMessage(
        message_id(headers, event.partition_id, event.offset),
        event.id,
        headers.get(TRACE_HEADER),
        Raw(event.raw),
        headers.get(PRODUCER_HEADER),
        event.appended_at,
        encode_id(IdKind.PARTITION, event.partition_id),
        event.partition or DEFAULT_KEY,
        "" if is_acked else event.lease_id or "",
        event.group or QUEUE_MODE,
        event.attempts,
        event.attempts + 1,
    )
