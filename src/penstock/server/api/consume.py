"""Consuming: pop, acknowledge, extend and release leases, transactions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from penstock.core.errors import IdempotencyConflict, InvalidEvent
from penstock.log.coordination.locks import access_names
from penstock.log.read.pop_request import PopRequest
from penstock.log.start_position import parse_start_position
from penstock.protocol import messages
from penstock.protocol.events import EventDocument, EventList
from penstock.server.api.push import to_batch
from penstock.server.auth.identity import Role
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.ingest.push_counters import account_failure, charge_timers, count_push, producer_id
from penstock.server.ingest.queue_push import read_idempotency_key
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup
from penstock.server.routing.long_poll import wait_for_events

routes = EndpointGroup("Consuming", problems=("not-found", "invalid-name"))
_GROUP = "/v1/queues/{queue}/groups/{group}"

_ResultT = TypeVar("_ResultT")


@routes.post(f"{_GROUP}/pop", "Pop events", Role.CONSUME, body_required=False)
async def pop_events(call: ApiCall, body: messages.PopOptions) -> EventList:
    """Lease events and return them; return none after the wait or when the server stops."""
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
    events = await wait_for_events(call, call.log.pop(request, call.reserve_memory()))
    if events:
        call.services.metrics.delivered.add(len(events), request.queue)
    return EventList([EventDocument.of(event) for event in events])


@routes.post(f"{_GROUP}/ack", "Acknowledge events", Role.CONSUME)
async def ack_events(call: ApiCall, body: messages.AckRequest) -> messages.AckResponse:
    """Acknowledge events; return one result per event."""
    queue = call.path["queue"]
    results = await _run_to_completion(call.log.ack_leased(queue, call.path["group"], body.acks))
    for status, count in Counter(ack.status for ack in body.acks).items():
        call.services.metrics.acked.add(count, queue, status)
    return messages.AckResponse(results)


@routes.post(f"{_GROUP}/extend", "Extend a lease", Role.CONSUME)
async def extend_lease(call: ApiCall, body: messages.ExtendRequest) -> messages.ExtendResponse:
    until = await call.log.extend_leased(
        call.path["queue"], call.path["group"], body.lease_id, body.partition_ids, body.seconds
    )
    return messages.ExtendResponse(until)


@routes.post(f"{_GROUP}/release", "Release a lease", Role.CONSUME)
async def release_lease(call: ApiCall, body: messages.ReleaseRequest) -> None:
    """Release a lease. Its events are delivered again, and no retry is counted."""
    await call.log.release(call.path["queue"], call.path["group"], body.lease_id)


@routes.post(
    "/v1/transaction",
    "Acknowledge and push events atomically",
    Role.CONSUME,
    checks_queues=True,
    problems=(
        "not-found",
        "idempotency-conflict",
        "transaction-refused",
        "precondition-failed",
        "invalid-event",
        "invalid-name",
        "queue-full",
        "rate-limited",
    ),
)
async def commit_transaction(call: ApiCall, body: messages.TransactionRequest) -> messages.TransactionResponse:
    queues = [batch.queue for batch in body.pushes]
    call.require_access([ack.queue for ack in body.acks], Role.CONSUME)
    if queues or body.timers:
        call.require_access([*queues, *(timer.queue for timer in body.timers)], Role.PRODUCE)
    call.require_access(access_names(body.kv))
    idempotency_key = read_idempotency_key(call.request.headers, call.caller)
    call.services.producer_rates.check(producer_id(call))
    charge_timers(call, body.timers)
    try:
        batches = [to_batch(batch) for batch in body.pushes]
        result = await _run_to_completion(
            call.log.transact_leased(
                body.acks, batches, idempotency_key=idempotency_key, kv=body.kv, timers=body.timers
            )
        )
    except (IdempotencyConflict, InvalidEvent) as error:
        raise await account_failure(call, next(iter(queues), None), error) from None
    for queue, pushed in zip(queues, result.pushes, strict=True):
        count_push(call, queue, pushed)
    for ack in body.acks:
        call.services.metrics.acked.add(1, ack.queue, ack.status)
    pushes = [messages.BatchResult.of(push) for push in result.pushes]
    return messages.TransactionResponse(result.acked, pushes, list(result.kv))


async def _run_to_completion(operation: Awaitable[_ResultT]) -> _ResultT:
    """Run an operation that is not cancelled when the client disconnects."""
    return await asyncio.shield(asyncio.ensure_future(operation))
