"""Acks and pushes that happen together or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.core.errors import QueueFull, TransactionRefused
from penstock.log.read.ack_by_id import SaidById
from penstock.log.read.position import Verdict
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen.ack import Ack, permit_partitions, said_of
from penstock.server.queen.identifiers import as_uuid
from penstock.server.queen.push import ItemPushed, Items, PushItem, check_rate, count, too_fast
from penstock.server.queen.queues import TAG


class AckOperation(Ack, rename="camel", tag_field="type", tag="ack"):
    """An ack."""


class PushOperation(msgspec.Struct, tag_field="type", tag="push"):
    """Messages to push."""

    items: list[PushItem]


class Transaction(msgspec.Struct, rename="camel"):
    """What is to happen together."""

    operations: list[AckOperation | PushOperation] | UnsetType = UNSET
    required_leases: list[str] = []
    # Of later generations, and not offered; Raw, so that whatever they hold is refused by name.
    kv: Raw | UnsetType = UNSET
    timers: Raw | UnsetType = UNSET


class OperationDone(msgspec.Struct, rename="camel"):
    """One pushed message or one ack; there is one for each."""

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


class TransactionDone(msgspec.Struct, rename="camel"):
    """All of it happened, or nothing, and then ``error`` says why."""

    transaction_id: str
    success: bool
    results: list[OperationDone]
    error: str | UnsetType = UNSET


async def transact(call: Call) -> TransactionDone:
    """Ack and push in one transaction."""
    body: Transaction = call.body
    operations = _operations(body)
    pushed = [item for operation in operations if isinstance(operation, PushOperation) for item in operation.items]
    items = Items(pushed, call.caller)
    acks = [operation for operation in operations if isinstance(operation, AckOperation)]
    said = [said_of(ack, ack.consumer_group) for ack in acks]
    await permit_partitions(call, said, Role.CONSUME)
    if items.queues:
        call.permit(items.queues, Role.PRODUCE)
    transaction_id = str(uuid.uuid4())
    problem = next((each for each in said if isinstance(each, str)), None)
    leases = [lease for lease in map(as_uuid, body.required_leases) if lease is not None]
    if problem is None and len(leases) < len(body.required_leases):
        problem = "Invalid or expired lease"
    if problem is not None:
        return TransactionDone(transaction_id, False, [], f"ACK operation failed: {problem}; all was rolled back")
    taken = [each for each in said if isinstance(each, SaidById)]
    log = call.services.log
    if pushed:
        check_rate(call)
    try:
        done, ordered = await log.transact_by_id(taken, await items.batches(log), leases=leases)
    except TransactionRefused as error:
        return TransactionDone(transaction_id, False, [], f"ACK operation failed: {error}")
    except QueueFull as error:
        raise too_fast(error) from None
    pushed_items = items.results(done.pushes)
    count(call, pushed_items)
    verdicts = {id(each): verdict for each, verdict in zip(ordered, done.verdicts, strict=True)}
    return TransactionDone(transaction_id, True, _results(operations, pushed_items, iter(taken), verdicts))


def _operations(body: Transaction) -> list[AckOperation | PushOperation]:
    for name in ("kv", "timers"):
        if getattr(body, name) not in (UNSET, Raw(b"null"), Raw(b"[]")):
            raise Problem("invalid-request", f"{name} is not offered: a transaction holds pushes and acks")
    if isinstance(body.operations, UnsetType):
        raise Problem("invalid-request", "operations array required")
    if not body.operations:
        raise Problem("invalid-request", "operations array cannot be empty")
    return body.operations


def _results(
    operations: list[AckOperation | PushOperation],
    pushed: list[ItemPushed],
    said: Iterator[SaidById],
    verdicts: dict[int, Verdict],
) -> list[OperationDone]:
    results: list[OperationDone] = []
    messages = iter(pushed)
    for operation in operations:
        if isinstance(operation, AckOperation):
            verdict = verdicts[id(next(said))]
            results.append(
                OperationDone(len(results), "ack", True, operation.transaction_id, dlq=verdict.dead),
            )
            continue
        for _ in operation.items:
            each = next(messages)
            results.append(
                OperationDone(
                    len(results),
                    "push",
                    each.status != "failed",
                    each.transaction_id,
                    None if isinstance(each.error, UnsetType) else each.error,
                    each.message_id,
                    each.partition_id,
                    each.queueName,
                    each.status,
                )
            )
    return results


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/transaction",
        transact,
        "Ack and push together",
        TAG,
        roles=frozenset({Role.PRODUCE, Role.CONSUME}),
        asks=True,
        body=Transaction,
        answer=TransactionDone,
        plane=True,
        problems=("invalid-event", "invalid-name", "queue-full", "rate-limited"),
    ),
)
