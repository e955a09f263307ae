"""``POST /v1/queues/{queue}/events``: the push over HTTP."""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.datastructures import Headers

from penstock.core.errors import IdempotencyConflict, InvalidEvent, QueueFull
from penstock.log.log import Batch
from penstock.log.queue import Queue
from penstock.log.write.result import PushResult, Rejected
from penstock.server.http.endpoint import MAX_BODY_BYTES, Call, Endpoint, Role, json_response
from penstock.server.http.errors import Problem, problem_of
from penstock.server.ingest.accounting import count_push, producer_of
from penstock.server.ingest.body import Body
from penstock.server.ingest.formats import Form, encoding_of, form_of
from penstock.server.ingest.headers import depth_headers, full_headers, merged
from penstock.server.ingest.memory_budget import EACH_PUSH, Hold
from penstock.server.ingest.openapi_parameters import DOCUMENTED
from penstock.server.ingest.parse import PushQuery, lines_batch, read
from penstock.server.ingest.upload import upload

#: Lines are pushed as they are up to this size; a larger body is staged, and made visible at its end.
SLICE_BYTES = 1 << 20
#: What an upload takes of memory beside the slice that is read.
UPLOAD_BYTES = 8 << 20


class RejectedEvent(msgspec.Struct):
    """What could not be an event, by its place in the request, and why."""

    index: int
    field: str
    reason: str


class PushAnswer(msgspec.Struct):
    """What became of the events of a request. All of it is durable."""

    accepted: int
    #: Events whose ids the queue knows already.
    duplicates: int
    #: Events that were dropped, and counted, because the queue was full.
    shed: int
    #: Events that are dead letters now, at most a thousand.
    rejected: list[RejectedEvent]
    #: Whether this is the answer to an earlier request with the same idempotency key.
    replayed: bool
    processing_ms: float


async def push_events(call: Call) -> Any:
    """Store the events of a request; the answer is sent when they are durable."""
    begun = time.perf_counter()
    services = call.services
    producer = producer_of(call)
    try:
        services.producers.check(producer)
        queue = await services.log.catalog.get(call.path["queue"])
        with services.budget.hold() as hold:
            hold.grow(EACH_PUSH)
            result = await _receive(call, queue, hold)
    except QueueFull as full:
        problem = problem_of(full)
        raise Problem(problem.kind, problem.detail, problem.facts, full_headers(full)) from None
    except InvalidEvent:
        services.metrics.pushed(call.path["queue"], accepted=0, rejected=1)
        raise
    count_push(call, queue.name, result)
    answer = PushAnswer(
        result.accepted,
        result.duplicates,
        result.shed,
        [RejectedEvent(each.index, each.field, each.reason) for each in result.rejected],
        result.replayed,
        round((time.perf_counter() - begun) * 1000, 3),
    )
    headers = merged(depth_headers(services.log.room(queue)), services.producers.headers(producer))
    return json_response(answer, headers=headers)


async def _receive(call: Call, queue: Queue, hold: Hold) -> PushResult:
    """Read the body and push what is in it."""
    headers = call.request.headers
    form, encoding = form_of(headers), encoding_of(headers)
    key = idempotency_key(headers, call.caller, queue)
    settings = call.services.settings
    body = Body(
        call.request, encoding, settings, hold, settings.max_upload_bytes if form is Form.LINES else MAX_BODY_BYTES
    )
    try:
        await call.services.log.check_room(queue, key)
        if form is Form.LINES:
            return await _receive_lines(call, queue, body, key)
        batch, rejected = read(form, await body.whole(), call.query, headers, queue.name)
        return await _push(call, batch, key, rejected)
    except (Problem, InvalidEvent, QueueFull) as refused:
        problem = problem_of(refused)
        if not await body.read_on():
            raise Problem(
                problem.kind, problem.detail, problem.facts, {**problem.headers, "Connection": "close"}
            ) from None
        raise


async def _receive_lines(call: Call, queue: Queue, body: Body, key: str | None) -> PushResult:
    longest = queue.max_event_bytes or call.services.settings.core.max_event_bytes
    text, is_all = await body.begin(SLICE_BYTES)
    if is_all:
        return await _push(call, lines_batch(queue.name, text, call.query, call.request.headers), key)
    if queue.dedup_window_seconds > 0 and (call.query.id_field or queue.id_field):
        # Ids are looked for while the partitions are locked, and that must not take long.
        body.limit = MAX_BODY_BYTES
        text = b"".join([text, *[part async for part in body.parts()]])
        return await _push(call, lines_batch(queue.name, text, call.query, call.request.headers), key)
    body.hold(UPLOAD_BYTES)
    return await upload(call, queue, body.slices(text, SLICE_BYTES, longest), key)


async def _push(call: Call, batch: Batch, key: str | None, rejected: list[Rejected] | None = None) -> PushResult:
    try:
        (result,) = await call.services.log.push(
            [batch], idempotency_key=key, partial=call.query.partial, rejected=rejected or ()
        )
    except IdempotencyConflict:
        raise IdempotencyConflict(
            "this Idempotency-Key was used before for other events; use a new one for new events"
        ) from None
    return result


def idempotency_key(headers: Headers, caller: str, queue: Queue | None = None) -> str | None:
    """The key under which the answer is kept: what the header says, for this caller and this queue (or all) alone.

    Two who choose the same key by accident do not meet, and neither does a queue that was made anew.
    """
    given = headers.get("idempotency-key")
    if given is None:
        return None
    given = given.strip()
    if len(given) > 1 and given[0] == given[-1] == '"':
        given = given[1:-1]
    if not 0 < len(given) <= 200:
        raise Problem("invalid-request", "an Idempotency-Key has 1 to 200 characters")
    digest = blake2b(f"{'' if queue is None else queue.id}\0{caller}\0{given}".encode(), digest_size=20)
    return f"http:{digest.hexdigest()}"


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/queues/{queue}/events",
        push_events,
        "Push events",
        "Events",
        roles=frozenset({Role.PRODUCE}),
        query=PushQuery,
        answer=PushAnswer,
        problems=(
            "invalid-json",
            "invalid-encoding",
            "not-found",
            "request-timeout",
            "idempotency-conflict",
            "too-large",
            "unsupported-media-type",
            "invalid-event",
            "invalid-name",
            "queue-full",
            "rate-limited",
            "overloaded",
            "database-unavailable",
        ),
        documented=DOCUMENTED,
    ),
)
