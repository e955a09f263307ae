"""Entries, locks and timers."""

from __future__ import annotations

from penstock.core.errors import IdempotencyConflict
from penstock.log.coordination.locks import LockHolder, access_names
from penstock.protocol import coordination as messages
from penstock.server.auth.identity import Role
from penstock.server.ingest.push_counters import account_failure, charge_timers
from penstock.server.ingest.queue_push import read_idempotency_key
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Coordination", problems=("invalid-name", "invalid-option"))
_ROLES = (Role.PRODUCE, Role.CONSUME)


@routes.post(
    "/v1/kv",
    "Read and change entries",
    *_ROLES,
    checks_queues=True,
    problems=("precondition-failed", "invalid-name", "invalid-option"),
)
async def apply_entries(call: ApiCall, body: messages.KvRequest) -> messages.KvResponse:
    """Execute operations in order, in one transaction. The patterns of a limited key apply to namespaces."""
    call.require_access(access_names(body.operations))
    return messages.KvResponse(await call.log.kv.apply(body.operations))


@routes.post(
    "/v1/timers",
    "Schedule and cancel events",
    Role.PRODUCE,
    checks_queues=True,
    problems=("not-found", "idempotency-conflict", "invalid-name", "invalid-option", "invalid-event"),
)
async def apply_scheduled_events(call: ApiCall, body: messages.TimerRequest) -> messages.TimerResponse:
    """Execute operations in one transaction. An event is pushed once, in the transaction that deletes its timer."""
    call.require_access({operation.queue for operation in body.operations})
    idempotency_key = read_idempotency_key(call.request.headers, call.caller)
    charge_timers(call, body.operations)
    try:
        results = await call.log.timers.apply(body.operations, idempotency_key=idempotency_key)
    except IdempotencyConflict as error:
        raise await account_failure(call, None, error) from None
    return messages.TimerResponse(results)


@routes.post("/v1/locks/acquire", "Acquire a lock", *_ROLES, checks_queues=True)
async def acquire_lock(call: ApiCall, body: messages.AcquireRequest) -> messages.PermitResponse:
    """Take a permit. The patterns of a limited key apply to names of locks."""
    call.require_access(body.name)
    return messages.PermitResponse(await call.log.locks.acquire(body.name, body.owner, body.seconds, body.limit))


@routes.post("/v1/locks/renew", "Renew a lock", *_ROLES, checks_queues=True)
async def renew_lock(call: ApiCall, body: messages.RenewRequest) -> messages.PermitResponse:
    """Extend a permit, which gets a new token."""
    call.require_access(body.name)
    permit = await call.log.locks.renew(body.name, body.token, body.seconds, slot=body.slot, owner=body.owner)
    return messages.PermitResponse(permit)


@routes.post("/v1/locks/release", "Release a lock", *_ROLES, checks_queues=True)
async def release_lock(call: ApiCall, body: messages.LockReleaseRequest) -> messages.LockReleaseResponse:
    call.require_access(body.name)
    return messages.LockReleaseResponse(await call.log.locks.release(body.name, body.token, slot=body.slot))


@routes.post("/v1/locks/holders", "List the holders of a lock", *_ROLES, checks_queues=True)
async def list_lock_holders(call: ApiCall, body: messages.HoldersRequest) -> list[LockHolder]:
    call.require_access(body.name)
    return await call.log.locks.holders(body.name)
