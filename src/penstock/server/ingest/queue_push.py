"""``POST /v1/queues/{queue}/events``: push events to one queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import structs
from starlette.datastructures import Headers
from starlette.responses import Response

from penstock.core.errors import IdempotencyConflict, InvalidEvent, QueueFull
from penstock.log.queue import Queue
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult, RejectedInput
from penstock.server.auth.identity import Role
from penstock.server.http.decompress import content_encoding
from penstock.server.http.errors import Problem, to_problem
from penstock.server.http.memory_budget import PUSH_OVERHEAD_BYTES, BudgetReservation
from penstock.server.http.producer_rate_limit import depth_headers, merge_headers
from penstock.server.http.request_body import MAX_BODY_BYTES, RequestBody
from penstock.server.http.responses import json_response
from penstock.server.ingest.formats import BodyFormat, PushQuery, detect_format, ndjson_batch, parse_body
from penstock.server.ingest.large_upload import upload_lines
from penstock.server.ingest.push_counters import account_failure, count_push, producer_id
from penstock.server.ingest.push_openapi import PUSH_OPENAPI
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Events")

#: NDJSON bodies up to this size are pushed as a whole. A larger body is staged and published at its end.
LINE_BATCH_BYTES = 1 << 20
#: Memory of an upload beside the batch that is read.
UPLOAD_BYTES = 8 << 20
_MAX_IDEMPOTENCY_KEY = 200


class RejectedEvent(msgspec.Struct):
    """An input that is not a valid event, by its index in the request."""

    index: int
    field: str
    reason: str
    #: Its line in a body of lines, from 1.
    line: int | None = None


class QueuePushResponse(msgspec.Struct):
    """The result of a push. It is sent after the commit."""

    accepted: int
    #: Events whose ids are already in the queue.
    duplicates: int
    #: Events that were dropped because the queue was full.
    shed: int
    #: Inputs that became dead letters, at most a thousand.
    rejected: list[RejectedEvent]
    #: Whether this is the response to an earlier request with the same idempotency key.
    replayed: bool
    processing_ms: float


@routes.post(
    "/v1/queues/{queue}/events",
    "Push events",
    Role.PRODUCE,
    response=QueuePushResponse,
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
    openapi=PUSH_OPENAPI,
)
async def push_events(call: ApiCall, query: PushQuery) -> Response:
    """Store the events of a request. The response is sent after the commit."""
    begun = time.perf_counter()
    services = call.services
    producer = producer_id(call)
    services.producer_rates.check(producer)
    queue = await services.log.catalog.get(call.path["queue"])
    try:
        with services.request_memory.reserve() as reservation:
            reservation.grow(PUSH_OVERHEAD_BYTES)
            result = await _receive(call, query, queue, reservation)
    except (IdempotencyConflict, InvalidEvent) as error:
        raise await account_failure(call, queue.name, error) from None
    count_push(call, queue.name, result)
    response = QueuePushResponse(
        result.accepted,
        result.duplicates,
        result.shed,
        [RejectedEvent(each.index, each.field, each.reason, each.line) for each in result.rejected],
        result.replayed,
        round((time.perf_counter() - begun) * 1000, 3),
    )
    headers = merge_headers(depth_headers(services.log.capacity(queue)), services.producer_rates.headers(producer))
    return json_response(response, headers=headers)


async def _receive(call: ApiCall, query: PushQuery, queue: Queue, reservation: BudgetReservation) -> PushResult:
    """Read the body and push its events."""
    headers = call.request.headers
    body_format, encoding = detect_format(headers), content_encoding(headers)
    idempotency_key = read_idempotency_key(headers, call.caller, queue)
    needs_valid = False
    if query.partial is None:
        # By default, lines without an idempotency key are independent of each other, unless none is valid.
        needs_valid = queue.invalid_events == "auto" and body_format is BodyFormat.NDJSON and idempotency_key is None
        query = structs.replace(query, partial=needs_valid or queue.invalid_events == "dead_letter")
    settings = call.services.settings
    limit = settings.max_upload_bytes if body_format is BodyFormat.NDJSON else MAX_BODY_BYTES
    body = RequestBody(call.request, encoding, settings, reservation, limit)
    try:
        await call.log.check_capacity(queue, idempotency_key)
        if body_format is BodyFormat.NDJSON:
            return await _receive_ndjson(call, query, queue, body, idempotency_key, needs_valid=needs_valid)
        batch, rejected = parse_body(body_format, await body.read_all(), query, headers, queue.name)
        return await _push(call, query, batch, idempotency_key, rejected)
    except (Problem, InvalidEvent, QueueFull) as error:
        if not await body.drain():
            problem = to_problem(error)
            raise Problem(
                problem.kind, problem.detail, problem.facts, {**problem.headers, "Connection": "close"}
            ) from None
        raise


async def _receive_ndjson(
    call: ApiCall,
    query: PushQuery,
    queue: Queue,
    body: RequestBody,
    idempotency_key: str | None,
    *,
    needs_valid: bool,
) -> PushResult:
    max_line = queue.max_event_bytes or call.services.settings.core.max_event_bytes
    text, is_complete = await body.read_prefix(LINE_BATCH_BYTES)
    if not is_complete and queue.dedup_window_seconds > 0 and (query.id_field or queue.id_field):
        # Ids are looked up while the partitions are locked, which must be short: no large uploads.
        body.limit = MAX_BODY_BYTES
        text = b"".join([text, *[part async for part in body.read_rest()]])
        is_complete = True
    if not is_complete:
        body.reserve(UPLOAD_BYTES)
        line_batches = body.read_line_batches(text, LINE_BATCH_BYTES, max_line)
        return await upload_lines(call, query, queue, line_batches, idempotency_key, needs_valid=needs_valid)
    batch = ndjson_batch(queue.name, text, query, call.request.headers)
    if needs_valid:
        try:
            (result,) = await call.log.push([batch])
        except InvalidEvent:
            pieces, _ = await call.log.encode_valid(batch)
            if not pieces:
                raise
        else:
            return result
    return await _push(call, query, batch, idempotency_key)


async def _push(
    call: ApiCall, query: PushQuery, batch: Batch, idempotency_key: str | None, rejected: Sequence[RejectedInput] = ()
) -> PushResult:
    (result,) = await call.log.push(
        [batch], idempotency_key=idempotency_key, partial=bool(query.partial), rejected=rejected
    )
    return result


def read_idempotency_key(headers: Headers, caller: str, queue: Queue | None = None) -> str | None:
    """Return the key to store for the header ``Idempotency-Key``.

    It includes the caller and the queue, so that equal keys of two callers, of two queues, and of a queue before and
    after its deletion are different.
    """
    given = headers.get("idempotency-key")
    if given is None:
        return None
    given = given.strip()
    if len(given) > 1 and given[0] == given[-1] == '"':
        given = given[1:-1]
    if not 0 < len(given) <= _MAX_IDEMPOTENCY_KEY:
        raise Problem("invalid-request", f"an Idempotency-Key has 1 to {_MAX_IDEMPOTENCY_KEY} characters")
    digest = blake2b(f"{'' if queue is None else queue.id}\0{caller}\0{given}".encode(), digest_size=20)
    return f"http:{digest.hexdigest()}"
