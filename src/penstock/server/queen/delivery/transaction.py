"""The endpoint that acknowledges and pushes messages, and changes entries and timers, in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, field

from penstock.core.errors import PreconditionFailed, TransactionRefused
from penstock.log.coordination.kv import check_operations
from penstock.log.coordination.locks import access_names
from penstock.log.coordination.timers import TOPIC
from penstock.log.coordination.transaction_step import CoordinationStep
from penstock.log.read.ack_rules import AckEffect
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.ingest.push_counters import producer_id
from penstock.server.queen.coordination.kv import KvRequestOperation, KvVerdict, kv_result, parse_kv
from penstock.server.queen.coordination.timers import TimerRequestOperation, parse_timers, timer_result
from penstock.server.queen.delivery.ack import INVALID_LEASE, GroupMessageAck, parse_ack, permit_partitions
from penstock.server.queen.delivery.ack_by_id import AckById, AcksById
from penstock.server.queen.delivery.push import MessagesByQueue, PushItem, PushItemResult
from penstock.server.queen.endpoint import ListBody, NullableList, queen_routes
from penstock.server.queen.identifiers import parse_uuid
from penstock.server.routing.call import ApiCall

routes = queen_routes("invalid-event", "invalid-name", "queue-full", "rate-limited")


class AckOperation(GroupMessageAck, rename="camel", tag_field="type", tag="ack"):
    pass


class PushOperation(ListBody, tag_field="type", tag="push"):
    items: NullableList[PushItem] = field(default_factory=list)


class Operations(ListBody, rename="camel"):
    """The operations of a transaction, and the leases that its acks require."""

    operations: NullableList[AckOperation | PushOperation] | UnsetType = UNSET
    required_leases: NullableList[str] = field(default_factory=list)
    kv: NullableList[KvRequestOperation] = field(default_factory=list)
    timers: NullableList[TimerRequestOperation] = field(default_factory=list)


class OperationResult(msgspec.Struct, rename="camel"):
    """The result of one ack or of one pushed message."""

    index: int
    type: str
    success: bool
    transaction_id: str
    error: str | None = None
    message_id: str | UnsetType | None = UNSET
    partition_id: str | UnsetType | None = UNSET
    queue_name: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    dlq: bool | UnsetType = UNSET


class OperationResults(KvVerdict, rename="camel"):
    """The results of a committed transaction, or the ``error`` of one that was rolled back."""

    transaction_id: str
    success: bool
    #: The acks and pushes, then the operations of ``kv``, then those of ``timers``.
    results: list[Any]
    error: str | UnsetType = UNSET


@routes.post(
    "/api/v1/transaction", "Acknowledge and push in one transaction", Role.PRODUCE, Role.CONSUME, checks_queues=True
)
async def commit_transaction(call: ApiCall, body: Operations) -> OperationResults:
    operations = _check_operations(body)
    items = [item for operation in operations if isinstance(operation, PushOperation) for item in operation.items]
    messages = MessagesByQueue(items, call.caller)
    parsed = [parse_ack(ack, ack.consumer_group) for ack in operations if isinstance(ack, AckOperation)]
    await permit_partitions(call, parsed, Role.CONSUME)
    if messages.queues:
        call.require_access(messages.queues, Role.PRODUCE)
    kv = parse_kv(body.kv)
    call.require_access(access_names(kv))
    check_operations(kv, in_transaction=True)
    timers = await parse_timers(call, body.timers) if body.timers else []
    transaction_id = str(uuid.uuid4())
    problem = next((ack for ack in parsed if isinstance(ack, str)), None)
    leases = [lease for lease in map(parse_uuid, body.required_leases) if lease is not None]
    if problem is None and len(leases) < len(body.required_leases):
        problem = INVALID_LEASE
    if problem is not None:
        return OperationResults(transaction_id, False, [], f"ACK operation failed: {problem}; all was rolled back")
    acks = [ack for ack in parsed if isinstance(ack, AckById)]
    if items:
        call.services.producer_rates.check(producer_id(call))
    step = CoordinationStep(call.log.kv, call.log.timers, kv, timers)
    try:
        pushes, outcomes = await call.services.component(AcksById).transact(
            acks, await messages.batches(call.log), leases=leases, also=step if kv or timers else None
        )
    except PreconditionFailed as failed:
        response = OperationResults(transaction_id, False, [], str(failed))
        response.add_failure(failed, len(items) + len(acks) + failed.index)
        return response
    except TransactionRefused as error:
        return OperationResults(transaction_id, False, [], f"ACK operation failed: {error}")
    if timers:
        call.log.notifier.wake_local(TOPIC)
    messages.count(call, pushes)
    results: list[Any] = [*_results(operations, messages.results(pushes), outcomes)]
    # The Go client assigns these results by their type.
    for op_index, (request, applied) in enumerate(zip(body.kv, step.kv_results, strict=True)):
        kv_answer = kv_result(len(results), request, applied)
        kv_answer.type, kv_answer.op_index = "kv", op_index
        results.append(kv_answer)
    for op_index, (timer, scheduled) in enumerate(zip(timers, step.timer_results, strict=True)):
        timer_answer = timer_result(len(results), timer, scheduled)
        timer_answer.type, timer_answer.op_index = "timer", op_index
        results.append(timer_answer)
    return OperationResults(transaction_id, True, results)


def _check_operations(body: Operations) -> list[AckOperation | PushOperation]:
    has_others = body.kv or body.timers
    if isinstance(body.operations, UnsetType):
        if has_others:
            return []
        raise Problem("invalid-request", "operations array required")
    if not body.operations and not has_others:
        raise Problem("invalid-request", "operations array cannot be empty")
    return body.operations


def _results(
    operations: Sequence[AckOperation | PushOperation], pushed: Sequence[PushItemResult], acks: Sequence[AckEffect]
) -> list[OperationResult]:
    results: list[OperationResult] = []
    next_pushed, next_ack = iter(pushed), iter(acks)
    for operation in operations:
        if isinstance(operation, AckOperation):
            outcome = next(next_ack)
            results.append(OperationResult(len(results), "ack", True, operation.transaction_id, dlq=outcome.dead))
            continue
        for _ in operation.items:
            message = next(next_pushed)
            results.append(
                OperationResult(
                    len(results),
                    "push",
                    message.status != "failed",
                    message.transaction_id,
                    None if isinstance(message.error, UnsetType) else message.error,
                    message.message_id,
                    message.partition_id,
                    message.queueName,
                    message.status,
                )
            )
    return results
