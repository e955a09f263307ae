"""The endpoints of timers, and their operations inside transactions."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec
import zstandard
from msgspec import UNSET, Raw, UnsetType

from penstock.core.names import check_text
from penstock.log.coordination.timers import MAX_PAGE, Timer, TimerOperation, TimerResult
from penstock.log.queue import DEFAULT_KEY
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.http.request_body import MAX_BODY_BYTES
from penstock.server.ingest.push_counters import charge_timers
from penstock.server.queen.coordination.errors import coordination_routes
from penstock.server.queen.endpoint import ListBody, NullableList
from penstock.server.queen.identifiers import MESSAGE_ID_HEADER, PRODUCER_HEADER, producer_subject
from penstock.server.queen.queues import get_or_create_queue
from penstock.server.routing.call import ApiCall

routes = coordination_routes("timers")
_TIMER = "/api/v1/timers/{queue}/{timer:text}"


class TimerRequestOperation(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Schedules a message, or cancels it. ``payload`` is the base64 of JSON text. Other fields are the server's."""

    op: Literal["schedule", "reschedule", "cancel"]
    queue: str
    timer_key: str
    payload: str | None = None
    delay_ms: int | float | None = None
    partition: str | None = None
    txn: str | None = None
    payload_zstd: bool | None = None


class QueenTimerRequest(ListBody):
    operations: NullableList[TimerRequestOperation]


class TimerOperationResult(msgspec.Struct, rename="camel"):
    """The result of one operation. ``absent``: nothing is scheduled, because it was delivered already or never was.

    In a transaction ``type`` is ``timer``, ``index`` counts all results and ``opIndex`` the operations of ``timers``.
    """

    index: int
    ok: bool
    status: str
    queue: str
    timer_key: str
    txn: str | None
    message_id: str | UnsetType = UNSET
    deliver_at: datetime | UnsetType | None = UNSET
    type: str | UnsetType = UNSET
    op_index: int | UnsetType = UNSET


class QueenTimerResponse(msgspec.Struct):
    results: list[TimerOperationResult]


class TimerRow(msgspec.Struct, rename="camel"):
    queue: str
    timer_key: str
    partition: str
    txn: str
    message_id: str | None
    deliver_at: datetime
    scheduled_at: datetime


class TimerLookup(msgspec.Struct, rename="camel"):
    """A timer, if it was found, with its payload if the caller has the role ``consume``."""

    found: bool
    queue: str | UnsetType = UNSET
    timer_key: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    txn: str | UnsetType = UNSET
    message_id: str | UnsetType | None = UNSET
    deliver_at: datetime | UnsetType = UNSET
    scheduled_at: datetime | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    encrypted: bool | UnsetType = UNSET


class TimerPage(msgspec.Struct, rename="camel"):
    """A page of the timers of a queue, ordered by key."""

    rows: list[TimerRow]
    truncated: bool
    next_after: str | None


class TimerPageQuery(msgspec.Struct):
    after: str = ""
    limit: int = 100


class TimerCancelQuery(msgspec.Struct):
    txn: str | None = None


async def parse_timers(call: ApiCall, operations: Sequence[TimerRequestOperation]) -> list[TimerOperation]:
    """Check the access to the queues, create those that do not exist, and convert the operations."""
    queues = {operation.queue for operation in operations}
    call.require_access(sorted(queues), Role.PRODUCE)
    parsed: list[TimerOperation] = []
    # The request is limited, but compressed payloads are larger than it.
    budget = MAX_BODY_BYTES
    for operation in operations:
        parsed.append(_parse(call, operation, budget))
        budget -= len(bytes(parsed[-1].data))
    charge_timers(call, parsed)
    for queue in {operation.queue for operation in operations if operation.op != "cancel"}:
        await get_or_create_queue(call.log, queue)
    await call.log.timers.check_operations(parsed)
    return parsed


def _parse(call: ApiCall, operation: TimerRequestOperation, max_bytes: int) -> TimerOperation:
    if operation.op == "cancel":
        return TimerOperation("cancel", operation.queue, operation.timer_key, event_id=operation.txn)
    if operation.payload is None or operation.delay_ms is None:
        raise Problem("invalid-request", f"{operation.op} needs payload and delayMs")
    headers = {MESSAGE_ID_HEADER: str(uuid.uuid4()), PRODUCER_HEADER: producer_subject(call.caller)}
    return TimerOperation(
        "schedule",
        operation.queue,
        operation.timer_key,
        Raw(_decode_payload(operation.payload, max_bytes, is_zstd=bool(operation.payload_zstd))),
        operation.delay_ms / 1000,
        operation.partition if operation.partition != DEFAULT_KEY else None,
        operation.txn or str(uuid.uuid4()),
        {name: value for name, value in headers.items() if value},
    )


def _decode_payload(payload: str, max_bytes: int, *, is_zstd: bool) -> bytes:
    try:
        data = base64.b64decode(payload, validate=True)
        if is_zstd:
            data = zstandard.ZstdDecompressor().stream_reader(data).read(max_bytes + 1)
    except (binascii.Error, ValueError, zstandard.ZstdError):
        raise Problem("invalid-request", "payload must be the base64 of JSON text") from None
    if len(data) > max_bytes:
        raise Problem("invalid-request", f"the payloads of one call may have up to {MAX_BODY_BYTES:,} bytes in total")
    return data


def timer_result(index: int, operation: TimerOperation, result: TimerResult) -> TimerOperationResult:
    answer = TimerOperationResult(
        index, result.status != "absent", result.status, operation.queue, operation.key, result.event_id
    )
    if operation.op == "schedule":
        answer.message_id = (operation.headers or {})[MESSAGE_ID_HEADER]
        answer.deliver_at = result.due_at
    return answer


def _row(queue: str, timer: Timer) -> TimerRow:
    promised = (timer.headers or {}).get(MESSAGE_ID_HEADER)
    partition = timer.event_key or DEFAULT_KEY
    return TimerRow(queue, timer.key, partition, timer.event_id, promised, timer.due_at, timer.scheduled_at)


@routes.post("/api/v1/timers", "Schedule and cancel messages", Role.PRODUCE, checks_queues=True)
async def apply_timers(call: ApiCall, body: QueenTimerRequest) -> QueenTimerResponse:
    """Execute operations in one transaction."""
    operations = await parse_timers(call, body.operations)
    results = await call.log.timers.apply(operations)
    return QueenTimerResponse(
        [timer_result(*each) for each in zip(range(len(results)), operations, results, strict=True)]
    )


@routes.delete(_TIMER, "Cancel a scheduled message", Role.PRODUCE)
async def cancel_timer(call: ApiCall, query: TimerCancelQuery) -> TimerOperationResult:
    operation = TimerOperation("cancel", call.path["queue"], call.path["timer"], event_id=query.txn)
    (result,) = await call.log.timers.apply([operation])
    return timer_result(0, operation, result)


@routes.get(_TIMER, "Return a scheduled message", Role.PRODUCE, Role.CONSUME)
async def get_timer(call: ApiCall) -> TimerLookup:
    queue = call.path["queue"]
    timer = await call.log.timers.find(queue, call.path["timer"])
    if timer is None:
        return TimerLookup(False)
    lookup = TimerLookup(True, **msgspec.structs.asdict(_row(queue, timer)), encrypted=False)
    # Like an event, it is not read by other producers.
    if call.identity.has_role(frozenset({Role.CONSUME})):
        lookup.payload = base64.b64encode((timer.data or "null").encode()).decode()
    return lookup


@routes.get("/api/v1/timers/{queue}", "List scheduled messages", Role.PRODUCE, Role.CONSUME)
async def list_timers(call: ApiCall, query: TimerPageQuery) -> TimerPage:
    queue, limit = call.path["queue"], min(max(query.limit, 1), MAX_PAGE)
    timers = await call.log.timers.page(queue, after=check_text(query.after, "after"), limit=limit + 1)
    rows = [_row(queue, timer) for timer in timers[:limit]]
    truncated = len(timers) > limit
    return TimerPage(rows, truncated, rows[-1].timer_key if truncated else None)
