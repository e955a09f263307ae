"""The endpoints of the key-value store, and its operations inside transactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from penstock.core.errors import PreconditionFailed
from penstock.log.coordination.kv import MAX_PAGE, NULL, KvEntry, KvKind, KvOperation, KvResult
from penstock.log.coordination.locks import access_names
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.coordination.errors import coordination_routes
from penstock.server.queen.endpoint import ListBody, NullableList
from penstock.server.routing.call import ApiCall

routes = coordination_routes("kv")
#: By this reason, clients recognize that a required operation was not applied.
KV_PRECONDITION = "kv_precondition"
_ENTRY = "/api/v1/kv/{ns}/{key:text}"

_KvName: TypeAlias = Literal["get", "getMany", "getPrefix", "put", "putIfAbsent", "delete", "incr", "check"]
_KINDS: dict[_KvName, KvKind] = {
    "get": "get",
    "getMany": "get_many",
    "getPrefix": "get_prefix",
    "put": "put",
    "putIfAbsent": "put",
    "delete": "delete",
    "incr": "increment",
    "check": "check",
}


class KvRequestOperation(msgspec.Struct, rename="camel"):
    """One operation. ``put``, ``putIfAbsent`` and ``incr`` have either ``ttlSeconds`` or ``forever``."""

    op: _KvName
    ns: str
    key: str = ""
    value: Raw = field(default_factory=lambda: NULL)
    ttl_seconds: float | None = None
    forever: bool | None = None
    expect: int | UnsetType = UNSET
    delta: int | float = 1
    min: int | float | None = None
    max: int | float | None = None
    required: bool | None = None
    keys: list[str] | None = None
    prefix: str = ""
    after: str | None = None
    limit: int | None = None
    keys_only: bool | None = None


class QueenKvRequest(ListBody):
    operations: NullableList[KvRequestOperation]


class KvPutBody(msgspec.Struct, rename="camel"):
    """The value of an entry, either ``ttlSeconds`` or ``forever``, and the version that the entry must have."""

    value: Raw = field(default_factory=lambda: NULL)
    ttl_seconds: float | None = None
    forever: bool | None = None
    expect: int | UnsetType = UNSET
    required: bool | None = None


class KvDeleteBody(msgspec.Struct, rename="camel"):
    expect: int | UnsetType = UNSET
    required: bool | None = None


class KvRow(msgspec.Struct, rename="camel"):
    key: str
    version: int
    expires_at: datetime | None
    updated_at: datetime | None
    value: Raw | UnsetType = UNSET


class KvOperationResult(msgspec.Struct, rename="camel"):
    """The result of one operation. ``found`` is for reads of one key, ``applied`` for changes and checks.

    In a transaction ``type`` is ``kv``, ``index`` counts all results and ``opIndex`` the operations of ``kv``.
    """

    index: int
    op: str
    ns: str
    key: str | UnsetType = UNSET
    found: bool | UnsetType = UNSET
    applied: bool | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    value: Raw | UnsetType = UNSET
    version: int | UnsetType = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    updated_at: datetime | UnsetType | None = UNSET
    rows: list[KvRow] | UnsetType = UNSET
    missing: list[str] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    next_after: str | UnsetType | None = UNSET
    type: str | UnsetType = UNSET
    op_index: int | UnsetType = UNSET


class KvChangeResult(KvOperationResult, rename="camel"):
    """The result of a change. If it was required and not applied, ``reason`` is ``kv_precondition``."""

    ok: bool | UnsetType = UNSET
    failed_index: int | UnsetType = UNSET
    kv_reason: str | UnsetType | None = UNSET


class KvVerdict(msgspec.Struct, rename="camel", kw_only=True):
    """The required operation that was not applied, so that nothing is changed. Absent if there is none.

    The JavaScript client looks for ``ok: false`` and the Go client for ``reason``. Both read the entry from the other
    fields.
    """

    ok: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    failed_index: int | UnsetType = UNSET
    kv_reason: str | UnsetType | None = UNSET
    version: int | UnsetType = UNSET
    value: Raw | UnsetType | None = UNSET

    def add_failure(self, failed: PreconditionFailed, index: int) -> None:
        entry = failed.result.entry
        self.ok = False
        self.reason = KV_PRECONDITION
        self.failed_index = index
        self.kv_reason = failed.result.reason
        self.version = 0 if entry is None else entry.version
        self.value = None if entry is None else entry.value


class QueenKvResponse(KvVerdict, rename="camel"):
    """The result of each operation. After a required one that was not applied, nothing is changed."""

    results: list[KvOperationResult]
    success: bool = True


def parse_kv(operations: Sequence[KvRequestOperation]) -> list[KvOperation]:
    return [_parse(operation) for operation in operations]


def _parse(operation: KvRequestOperation) -> KvOperation:
    expires = operation.op in ("put", "putIfAbsent", "incr")
    if expires and (operation.ttl_seconds is None) == (not operation.forever):
        raise Problem("invalid-request", f"{operation.op} needs either ttlSeconds or forever: true")
    expect = None if isinstance(operation.expect, UnsetType) else operation.expect
    if operation.op == "putIfAbsent":
        if expect:
            raise Problem("invalid-request", "putIfAbsent has no expect other than 0")
        expect = 0
    return KvOperation(
        _KINDS[operation.op],
        operation.ns,
        operation.key,
        operation.value,
        operation.ttl_seconds if expires else None,
        expect,
        operation.delta,
        operation.min,
        operation.max,
        bool(operation.required),
        operation.keys or [],
        operation.prefix,
        operation.after or "",
        MAX_PAGE if operation.limit is None else operation.limit,
        bool(operation.keys_only),
    )


def kv_result(index: int, operation: KvRequestOperation, result: KvResult) -> KvOperationResult:
    if operation.op in ("getMany", "getPrefix"):
        rows = [_row(entry, has_value=not operation.keys_only) for entry in result.entries]
        answer = KvOperationResult(index, operation.op, operation.ns, rows=rows, truncated=result.truncated)
        if operation.op == "getMany":
            answer.missing = result.missing
        else:
            answer.next_after = rows[-1].key if rows and result.truncated else None
        return answer
    answer = KvOperationResult(index, operation.op, operation.ns, operation.key)
    entry = result.entry
    answer.value = NULL if entry is None else entry.value
    answer.version = 0 if entry is None else entry.version
    answer.expires_at = None if entry is None else entry.expires_at
    if operation.op == "get":
        answer.found = entry is not None
        answer.updated_at = None if entry is None else entry.updated_at
    else:
        answer.applied = result.applied
        if not result.applied:
            answer.reason = result.reason
    return answer


def _row(entry: KvEntry, *, has_value: bool) -> KvRow:
    value = entry.value if has_value else UNSET
    return KvRow(entry.key, entry.version, entry.expires_at, entry.updated_at, value)


@routes.post("/api/v1/kv", "Read and change entries", Role.PRODUCE, Role.CONSUME, checks_queues=True)
async def apply_kv(call: ApiCall, body: QueenKvRequest) -> QueenKvResponse:
    """Execute operations in order, in one transaction."""
    operations = parse_kv(body.operations)
    call.require_access(access_names(operations))
    try:
        results = await call.log.kv.apply(operations)
    except PreconditionFailed as failed:
        none_applied = [KvResult(False, "rolled_back") for _ in operations]
        none_applied[failed.index] = failed.result
        response = QueenKvResponse(_kv_results(body.operations, none_applied), False)
        response.add_failure(failed, failed.index)
        return response
    return QueenKvResponse(_kv_results(body.operations, results))


def _kv_results(operations: Sequence[KvRequestOperation], results: Sequence[KvResult]) -> list[KvOperationResult]:
    return [kv_result(*each) for each in zip(range(len(results)), operations, results, strict=True)]


@routes.get(_ENTRY, "Return an entry", Role.PRODUCE, Role.CONSUME, checks_queues=True)
async def get_kv_entry(call: ApiCall) -> KvOperationResult:
    operation = KvRequestOperation("get", call.path["ns"], call.path["key"])
    (result,) = await _apply(call, operation)
    return kv_result(0, operation, result)


@routes.put(_ENTRY, "Write an entry", Role.PRODUCE, Role.CONSUME, checks_queues=True)
async def put_kv_entry(call: ApiCall, body: KvPutBody) -> KvChangeResult:
    path = call.path
    operation = KvRequestOperation("put", path["ns"], path["key"], body.value, body.ttl_seconds, body.forever)
    operation.expect, operation.required = body.expect, body.required
    return await _change(call, operation)


@routes.delete(_ENTRY, "Delete an entry", Role.PRODUCE, Role.CONSUME, checks_queues=True, body_required=False)
async def delete_kv_entry(call: ApiCall, body: KvDeleteBody) -> KvChangeResult:
    operation = KvRequestOperation("delete", call.path["ns"], call.path["key"])
    operation.expect, operation.required = body.expect, body.required
    return await _change(call, operation)


async def _change(call: ApiCall, operation: KvRequestOperation) -> KvChangeResult:
    try:
        (result,) = await _apply(call, operation)
    except PreconditionFailed as failed:
        change = _change_result(operation, failed.result)
        change.ok, change.failed_index = False, failed.index
        change.reason, change.kv_reason = KV_PRECONDITION, failed.result.reason
        return change
    return _change_result(operation, result)


def _change_result(operation: KvRequestOperation, result: KvResult) -> KvChangeResult:
    return KvChangeResult(**msgspec.structs.asdict(kv_result(0, operation, result)))


async def _apply(call: ApiCall, operation: KvRequestOperation) -> list[KvResult]:
    operations = parse_kv([operation])
    call.require_access(access_names(operations))
    return await call.log.kv.apply(operations)
