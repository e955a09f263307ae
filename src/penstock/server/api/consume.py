"""Consuming: pop, acknowledge, extend and release leases, transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect

from penstock.log.event import Event
from penstock.log.read.pop_request import PopRequest
from penstock.log.start_position import parse_start_position
from penstock.protocol import messages
from penstock.protocol.events import EventDocument, EventList
from penstock.server.api.push import account_pushes, to_batch
from penstock.server.auth.identity import Role
from penstock.server.http.request import wait_for_disconnect
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.ingest.push import read_idempotency_key
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

_CONSUME = frozenset({Role.CONSUME})

routes = EndpointGroup("Consuming", problems=("not-found", "invalid-name"))
_GROUP = "/v1/queues/{queue}/groups/{group}"

_ResultT = TypeVar("_ResultT")


@routes.post(f"{_GROUP}/pop", "Pop events", _CONSUME, body=messages.PopOptions, body_required=False)
async def pop_events(call: ApiCall) -> EventList:
    """Lease events and return them; return none after the wait or when the server stops."""
    body: messages.PopOptions = call.body
    request = PopRequest(
        call.path["queue"],
        group=call.path["group"],
        batch=min(body.batch, messages.MAX_EVENTS),
        partitions=body.partitions,
        partition=body.partition,
        wait_seconds=min(body.wait_seconds, messages.MAX_WAIT_SECONDS),
        lease_seconds=body.lease_seconds,
        auto_ack=body.auto_ack,
        subscribe_from=parse_start_position(body.subscribe_from),
        lease_id=body.lease_id,
        instead_of=body.instead_of,
        max_bytes=min(MAX_RESPONSE_BYTES, call.services.response_memory.limit),
    )
    pop = asyncio.create_task(call.services.log.pop(request, call.reserve_memory()))
    try:
        await _wait_for_pop(pop, call)
    except BaseException:
        await _release_events(pop, call)
        raise
    events = [] if pop.cancelled() else pop.result()
    if events:
        call.services.metrics.count_delivered(request.queue, len(events))
    return EventList([EventDocument.of(event) for event in events])


async def _wait_for_pop(pop: asyncio.Task[list[Event]], call: ApiCall) -> None:
    """Wait for a pop. Cancel it when the server stops; raise ClientDisconnect if the client left."""
    disconnect = asyncio.create_task(wait_for_disconnect(call.request))
    stopping = asyncio.create_task(call.services.stopping.wait())
    try:
        await asyncio.wait({pop, disconnect, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done():
            raise ClientDisconnect
        if not pop.done():
            pop.cancel()
            await asyncio.wait([pop])
    finally:
        for task in (disconnect, stopping):
            task.cancel()


async def _release_events(pop: asyncio.Task[list[Event]], call: ApiCall) -> None:
    """Return the leased events of a client that left. A cancelled pop does that itself."""
    if pop.cancel():
        await asyncio.wait([pop])
    with contextlib.suppress(asyncio.CancelledError, Exception):
        first_by_partition: dict[int, Event] = {}
        for event in pop.result():
            first_by_partition.setdefault(event.partition_id, event)
        if first_by_partition:
            await call.services.log.ack(list(first_by_partition.values()), "retry")


@routes.post(f"{_GROUP}/ack", "Acknowledge events", _CONSUME, body=messages.AckRequest)
async def ack_events(call: ApiCall) -> messages.AckResponse:
    """Acknowledge events; return one result per event."""
    body: messages.AckRequest = call.body
    queue = call.path["queue"]
    results = await _run_to_completion(call.services.log.ack_leased(queue, call.path["group"], body.acks))
    for status, count in Counter(ack.status for ack in body.acks).items():
        call.services.metrics.count_acked(queue, status, count)
    return messages.AckResponse(results)


@routes.post(f"{_GROUP}/extend", "Extend a lease", _CONSUME, body=messages.ExtendRequest)
async def extend_lease(call: ApiCall) -> messages.ExtendResponse:
    """Extend a lease."""
    body: messages.ExtendRequest = call.body
    until = await call.services.log.extend_leased(
        call.path["queue"], call.path["group"], body.lease_id, body.partition_ids, body.seconds
    )
    return messages.ExtendResponse(until)


@routes.post(f"{_GROUP}/release", "Release a lease", _CONSUME, body=messages.ReleaseRequest)
async def release_lease(call: ApiCall) -> None:
    """Release a lease. Its events are delivered again, and no retry is counted."""
    await call.services.log.release(call.path["queue"], call.path["group"], call.body.lease_id)


@routes.post(
    "/v1/transaction",
    "Acknowledge and push events atomically",
    _CONSUME,
    checks_queues=True,
    body=messages.TransactionRequest,
    problems=(
        "not-found",
        "idempotency-conflict",
        "transaction-refused",
        "invalid-event",
        "invalid-name",
        "queue-full",
        "rate-limited",
    ),
)
async def commit_transaction(call: ApiCall) -> messages.TransactionResponse:
    """Acknowledge and push events atomically."""
    body: messages.TransactionRequest = call.body
    queues = [batch.queue for batch in body.pushes]
    call.require_access([ack.queue for ack in body.acks], Role.CONSUME)
    if queues:
        call.require_access(queues, Role.PRODUCE)
    idempotency_key = read_idempotency_key(call.request.headers, call.caller)
    log = call.services.log
    async with account_pushes(call, queues) as results:
        batches = [to_batch(batch) for batch in body.pushes]
        result = await _run_to_completion(log.transact_leased(body.acks, batches, idempotency_key=idempotency_key))
        results += result.pushes
    for ack in body.acks:
        call.services.metrics.count_acked(ack.queue, ack.status, 1)
    return messages.TransactionResponse(result.acked, [messages.BatchResult.of(push) for push in result.pushes])


async def _run_to_completion(operation: Awaitable[_ResultT]) -> _ResultT:
    """Run an operation that is not cancelled when the client disconnects."""
    return await asyncio.shield(asyncio.ensure_future(operation))
