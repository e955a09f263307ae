"""``POST /v1/push``: push events to several queues at once."""

from __future__ import annotations

from penstock.core import json
from penstock.core.errors import IdempotencyConflict, InvalidEvent, InvalidRequest
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.envelopes import is_array, read_envelopes
from penstock.protocol import messages
from penstock.server.auth.identity import Role
from penstock.server.ingest.push_counters import account_failure, count_push, producer_id
from penstock.server.ingest.queue_push import read_idempotency_key
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Events")


@routes.post(
    "/v1/push",
    "Push events to one or several queues",
    Role.PRODUCE,
    checks_queues=True,
    problems=("not-found", "idempotency-conflict", "invalid-event", "invalid-name", "queue-full", "rate-limited"),
)
async def push_batches(call: ApiCall, body: messages.PushRequest) -> messages.PushResponse:
    """Store events in several queues: all or none."""
    queues = [batch.queue for batch in body.batches]
    call.require_access(queues)
    idempotency_key = read_idempotency_key(call.request.headers, call.caller)
    call.services.producer_rates.check(producer_id(call))
    try:
        batches = [to_batch(batch) for batch in body.batches]
        results = await call.log.push(batches, idempotency_key=idempotency_key)
    except (IdempotencyConflict, InvalidEvent) as error:
        raise await account_failure(call, next(iter(queues), None), error) from None
    for queue, result in zip(queues, results, strict=True):
        count_push(call, queue, result)
    return messages.PushResponse([messages.BatchResult.of(result) for result in results])


def to_batch(given: messages.PushBatch) -> Batch:
    """Return a batch for the log, which validates the events."""
    if given.ndjson is not None:
        if bytes(given.events) != b"[]":
            raise InvalidRequest("a batch has events or ndjson, not both")
        text = given.ndjson.encode()
        return Batch(given.queue, text, given.key, given.key_field, given.id_field, given.time_field)
    if (given.key_field, given.id_field, given.time_field) != (None, None, None):
        raise InvalidRequest("key_field, id_field and time_field are for ndjson; give each event its key, id and time")
    text = bytes(given.events)
    if not is_array(text):
        raise InvalidRequest("events must be a list of objects such as {'data': ...}")
    try:
        return Batch(given.queue, read_envelopes(text), given.key)
    except json.JSONProblem as problem:
        raise InvalidRequest(f"events: {problem}") from None
