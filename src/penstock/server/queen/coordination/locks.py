"""The endpoint of locks and semaphores."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.errors import InvalidRequest
from penstock.log.coordination.kv import MAX_OPERATIONS
from penstock.log.coordination.locks import LOCK_NAMESPACE, MAX_PERMITS, permit_key
from penstock.server.auth.identity import Role
from penstock.server.queen.coordination.errors import coordination_routes
from penstock.server.queen.endpoint import ListBody, NullableList
from penstock.server.routing.call import ApiCall

routes = coordination_routes("locks")


class LockRequestOperation(msgspec.Struct, rename="camel"):
    op: Literal["acquire", "renew", "release", "get"]
    name: str
    ttl_seconds: float | None = None
    owner: str | None = None
    limit: int | None = None
    token: int | None = None
    slot: Annotated[int, Meta(ge=0, lt=MAX_PERMITS)] | None = None


class LockRequest(ListBody):
    operations: NullableList[LockRequestOperation]


class LockGuard(msgspec.Struct):
    """The operation of the key-value store that is applied while the permit is held under this token."""

    key: str
    expect: int
    op: str = "check"
    ns: str = LOCK_NAMESPACE
    required: bool = True


class LockPermitHolder(msgspec.Struct, rename="camel"):
    slot: int
    owner: str
    token: int
    since: datetime
    expires_at: datetime
    renewed_at: datetime


class LockOperationResult(msgspec.Struct, rename="camel"):
    index: int
    op: str
    name: str
    acquired: bool | UnsetType = UNSET
    renewed: bool | UnsetType = UNSET
    released: bool | UnsetType = UNSET
    held: bool | UnsetType = UNSET
    slot: int | UnsetType = UNSET
    token: int | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    already: bool | UnsetType = UNSET
    guard: LockGuard | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    holders: list[LockPermitHolder] | UnsetType = UNSET


class LockResponse(msgspec.Struct):
    """The result of each operation. They are independent of each other."""

    results: list[LockOperationResult]


@routes.post("/api/v1/locks", "Acquire, renew and release locks", Role.PRODUCE, Role.CONSUME, checks_queues=True)
async def apply_locks(call: ApiCall, body: LockRequest) -> LockResponse:
    """Execute operations in order, each in a transaction of its own."""
    call.require_access([operation.name for operation in body.operations], Role.PRODUCE, Role.CONSUME)
    if len(body.operations) > MAX_OPERATIONS:
        raise InvalidRequest(f"one call may have up to {MAX_OPERATIONS} operations")
    return LockResponse([await _execute(call, index, each) for index, each in enumerate(body.operations)])


async def _execute(call: ApiCall, index: int, operation: LockRequestOperation) -> LockOperationResult:
    locks, name, slot = call.log.locks, operation.name, operation.slot or 0
    result = LockOperationResult(index, operation.op, name)
    match operation.op:
        case "acquire":
            owner = operation.owner or str(uuid.uuid4())
            permit = await locks.acquire(name, owner, _seconds(operation), operation.limit or 1)
            result.acquired = permit is not None
            if permit is not None:
                result.owner = owner
                result.already = permit.already or UNSET
        case "renew":
            permit = await locks.renew(name, _token(operation), _seconds(operation), slot=slot, owner=operation.owner)
            result.renewed = permit is not None
        case "release":
            result.released = await locks.release(name, _token(operation), slot=slot)
            if not result.released:
                result.reason = "lost"
            return result
        case "get":
            result.holders = await _holders(call, name)
            result.held = bool(result.holders)
            return result
    if permit is None:
        result.reason = "held" if operation.op == "acquire" else "lost"
        result.holders = await _holders(call, name)
    else:
        result.slot, result.token = permit.slot, permit.token
        result.guard = LockGuard(permit_key(name, permit.slot), permit.token)
    return result


async def _holders(call: ApiCall, name: str) -> list[LockPermitHolder]:
    return [LockPermitHolder(**msgspec.structs.asdict(holder)) for holder in await call.log.locks.holders(name)]


def _seconds(operation: LockRequestOperation) -> float:
    if operation.ttl_seconds is None:
        raise InvalidRequest(f"{operation.op} needs ttlSeconds")
    return operation.ttl_seconds


def _token(operation: LockRequestOperation) -> int:
    if operation.token is None or not 0 < operation.token < 1 << 63:
        raise InvalidRequest(f"{operation.op} needs the token of the permit")
    return operation.token
