"""Consuming over HTTP: popping, acknowledging, keeping a lease, acting in a transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect

from penstock.log.event import Event
from penstock.log.groups import check_place
from penstock.log.read.lease import PopRequest
from penstock.protocol import messages
from penstock.server.api.events import MOST_BYTES, batch_of, taking
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.search_limits import disconnected
from penstock.server.ingest.push import idempotency_key

_CONSUME = frozenset({Role.CONSUME})

_TAG = "Consuming"
_GROUP = "/v1/queues/{queue}/groups/{group}"

_Answer = TypeVar("_Answer")


async def pop(call: Call) -> messages.Events:
    """Lease events and deliver them; none if none came in time, or the server is about to end."""
    asked: messages.Pop = call.body
    log = call.services.log
    request = PopRequest(
        call.path["queue"],
        group=call.path["group"],
        batch=min(asked.batch, messages.MOST_EVENTS),
        partitions=asked.partitions,
        partition=asked.partition,
        wait_seconds=min(asked.wait_seconds, messages.MOST_WAIT_SECONDS),
        lease_seconds=asked.lease_seconds,
        auto_ack=asked.auto_ack,
        subscribe_from=check_place(asked.subscribe_from),
        lease_id=asked.lease_id,
        instead_of=asked.instead_of,
        max_bytes=min(MOST_BYTES, call.services.given_out.limit),
    )
    popping = asyncio.create_task(log.pop(request, call.hold()))
    try:
        await _until(popping, call)
    except BaseException:
        await _let_go(popping, call)
        raise
    events = [] if popping.cancelled() else popping.result()
    if events:
        call.services.metrics.delivered(request.queue, len(events))
    return messages.Events([messages.EventDocument.of(event) for event in events])


async def _until(popping: asyncio.Task[list[Event]], call: Call) -> None:
    """Wait for the pop; it ends early when the server does, and is in vain when nobody is there to be answered."""
    gone = asyncio.create_task(disconnected(call.request))
    stopping = asyncio.create_task(call.services.stopping.wait())
    try:
        await asyncio.wait({popping, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientDisconnect
        if not popping.done():
            popping.cancel()
            await asyncio.wait([popping])
    finally:
        for task in (gone, stopping):
            task.cancel()


async def _let_go(popping: asyncio.Task[list[Event]], call: Call) -> None:
    """Give back what was leased for somebody who is gone. A pop that is cancelled does so itself."""
    if popping.cancel():
        await asyncio.wait([popping])
    with contextlib.suppress(asyncio.CancelledError, Exception):
        firsts: dict[int, Event] = {}
        for event in popping.result():
            firsts.setdefault(event.partition_id, event)
        if firsts:
            await call.services.log.ack(list(firsts.values()), "retry")


async def ack(call: Call) -> messages.AckResults:
    """Say what became of events; one result for each."""
    asked: messages.Acks = call.body
    queue = call.path["queue"]
    results = await _to_the_end(call.services.log.ack_leased(queue, call.path["group"], asked.acks))
    for status, count in Counter(ack.status for ack in asked.acks).items():
        call.services.metrics.acked(queue, status, count)
    return messages.AckResults(results)


async def extend(call: Call) -> messages.Extended:
    """Make a lease last longer."""
    asked: messages.Extension = call.body
    until = await call.services.log.extend_leased(
        call.path["queue"], call.path["group"], asked.lease_id, asked.partition_ids, asked.seconds
    )
    return messages.Extended(until)


async def release(call: Call) -> None:
    """End a lease now."""
    await call.services.log.release(call.path["queue"], call.path["group"], call.body.lease_id)


async def transaction(call: Call) -> messages.TransactionOutcome:
    """Ack and push together, or do neither."""
    asked: messages.Transaction = call.body
    call.permit([ack.queue for ack in asked.acks], Role.CONSUME)
    if asked.pushes:
        call.permit([batch.queue for batch in asked.pushes], Role.PRODUCE)
    key = idempotency_key(call.request.headers, call.caller)
    log = call.services.log
    async with taking(call, [batch.queue for batch in asked.pushes]) as taken:
        batches = [batch_of(each) for each in asked.pushes]
        result = await _to_the_end(log.transact_leased(asked.acks, batches, idempotency_key=key))
        taken += result.pushes
    for ack in asked.acks:
        call.services.metrics.acked(ack.queue, ack.status, 1)
    return messages.TransactionOutcome(result.acked, [messages.PushOutcome.of(each) for each in result.pushes])


async def _to_the_end(acting: Awaitable[_Answer]) -> _Answer:
    """Act, and do not stop in the middle because nobody waits for the answer any more."""
    return await asyncio.shield(asyncio.ensure_future(acting))


ENDPOINTS = (
    Endpoint(
        "POST",
        f"{_GROUP}/pop",
        pop,
        "Lease events and deliver them",
        _TAG,
        _CONSUME,
        body=messages.Pop,
        body_required=False,
        answer=messages.Events,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "POST",
        f"{_GROUP}/ack",
        ack,
        "Say what became of events",
        _TAG,
        _CONSUME,
        body=messages.Acks,
        answer=messages.AckResults,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "POST",
        f"{_GROUP}/extend",
        extend,
        "Make a lease last longer",
        _TAG,
        _CONSUME,
        body=messages.Extension,
        answer=messages.Extended,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "POST",
        f"{_GROUP}/release",
        release,
        "End a lease now: its events come again, at no cost",
        _TAG,
        _CONSUME,
        body=messages.Release,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "POST",
        "/v1/transaction",
        transaction,
        "Ack and push together, or do neither",
        _TAG,
        _CONSUME,
        asks=True,
        body=messages.Transaction,
        answer=messages.TransactionOutcome,
        problems=(
            "not-found",
            "idempotency-conflict",
            "transaction-refused",
            "invalid-event",
            "invalid-name",
            "queue-full",
            "rate-limited",
        ),
    ),
)
