"""The endpoint that commits a cycle of a client-computed stream: state changes, pushes and one ack in one transaction.

Several workers share a query. The holder of a partition's lease may change the state of that partition. While the
partition is idle, any worker may close its windows.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field
from psycopg import AsyncConnection
from psycopg.errors import DataError

from penstock.core.errors import TransactionRefused
from penstock.core.names import check_name
from penstock.db.statements import Statements
from penstock.engine.client_queries import client_cycle_topic
from penstock.log.read.ack_rules import LATE, NOT_LEASED, Status
from penstock.server.auth.identity import Role
from penstock.server.queen.delivery.ack import INVALID_LEASE
from penstock.server.queen.delivery.ack_by_id import AckById, AcksById
from penstock.server.queen.delivery.event_lookup import PartitionRef
from penstock.server.queen.delivery.push import MessagesByQueue, PushItem, PushItemResult
from penstock.server.queen.endpoint import ListBody, NullableList, queen_routes
from penstock.server.queen.identifiers import parse_uuid
from penstock.server.queen.streams.query_partition import find_activity, find_query_partition
from penstock.server.queen.streams.stream_state import StateChanges, StateOperation
from penstock.server.queen.streams.token_bucket import admit_releases
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.streams", "cycle.sql")
routes = queen_routes("not-found", "conflict", "invalid-name", "invalid-event")

#: A failed message becomes a dead letter at once: with retries, its cycle would fail forever.
_STATUSES: dict[str, Status] = {
    "completed": "completed",
    "success": "completed",
    "retry": "retry",
    "failed": "dead_letter",
    "dlq": "dead_letter",
}
_LEASE_PROBLEMS = (LATE, NOT_LEASED)
_MAX_COUNT = 1_000_000


class CycleAck(msgspec.Struct, rename="camel"):
    """The last message of a cycle. All earlier messages of the lease are completed too."""

    transaction_id: str
    lease_id: str | None = None
    status: str = "completed"
    count: int | None = None
    error: str | None = None


class CycleCommit(ListBody):
    """A cycle to commit. Without an ack it closes windows of an idle partition."""

    query_id: str
    partition_id: str
    consumer_group: str | None = None
    state_ops: NullableList[StateOperation] = field(default_factory=list)
    push_items: NullableList[PushItem] = field(default_factory=list)
    ack: CycleAck | None = None
    release_lease: bool = True


class CycleAckResult(msgspec.Struct):
    count: int
    lease_released: bool
    dlq: bool
    success: bool = True


class CycleCommitResult(msgspec.Struct):
    """The result of a cycle. One that was rolled back has an ``error``."""

    success: bool
    query_id: str
    partition_id: str
    queueName: str | None = None
    state_ops_applied: int = 0
    push_results: list[PushItemResult] = []
    ack_result: CycleAckResult | None = None
    error: str | None = None
    #: The time of the database when the cycle was committed, for clients that decide by time.
    server_time_ms: int | None = None


@routes.post("/streams/v1/cycle", "Commit a cycle of a stream", Role.CONSUME, checks_queues=True)
async def commit_cycle(call: ApiCall, body: CycleCommit) -> CycleCommitResult:
    """Commit a cycle, or roll all of it back and return the error."""
    query, partition = await find_query_partition(call, body.query_id, body.partition_id)
    messages = MessagesByQueue(body.push_items, call.caller)
    call.require_access_silently(partition.queue, Role.CONSUME)
    if messages.queues:
        call.require_access(messages.queues, Role.PRODUCE)
    group = check_name(body.consumer_group or query.group_name, "group")
    state = StateChanges(query.id, partition, body.state_ops)
    ack = _parse_ack(body.ack, partition, group)
    if isinstance(ack, str):
        return _rolled_back(body, ack)
    params = {"queue": partition.queue_id, "group": group, "partition": partition.partition_id}
    is_dead = ack is not None and ack.status == "dead_letter"
    totals = {
        "query": query.id,
        "events": 0 if body.ack is None else _count_events(body.ack),
        "outputs": len(body.push_items),
        # A window that is opened and closed in one cycle is only pushed. Without a sink, windows are only deleted.
        "windows": max(state.closed_windows, len(body.push_items)) if state.has_windows else 0,
        "dead": int(is_dead),
    }

    try:
        # A worker with the lease is the only one that changes the state of the partition.
        releases = await admit_releases(call.log, query.id, partition, state.buckets) if ack and state.buckets else {}
    except TransactionRefused as error:
        return _rolled_back(body, str(error))
    server_time_ms = 0

    async def write_state(conn: AsyncConnection[Any]) -> None:
        if ack is None:
            await conn.execute(_sql["share_queue"], params)
            await conn.execute(_sql["lock_cursor"], params)
            activity = await find_activity(conn, call.log, partition, group)
            if activity is not None:
                raise TransactionRefused(f"{activity}: its windows are not idle")
        elif body.release_lease:
            await conn.execute(_sql["release_lease"], {**params, "lease": ack.lease_id})
        nonlocal server_time_ms
        ((server_time_ms,),) = await (await conn.execute(_sql["count"], {**params, **totals})).fetchall()
        await state.apply(conn, releases, under_lease=ack is not None)

    acks = [] if ack is None else [ack]
    try:
        pushes, outcomes = await call.services.component(AcksById).transact(
            acks, await messages.batches(call.log), also=write_state, bounded=False
        )
    except TransactionRefused as error:
        return _rolled_back(body, f"{INVALID_LEASE}: {error}" if error.problem in _LEASE_PROBLEMS else str(error))
    except DataError as error:
        return _rolled_back(body, f"a value of the state cannot be stored: {error.diag.message_primary}")
    call.log.notifier.wake_local(client_cycle_topic(query.id))
    ack_result = None
    if body.ack is not None:
        (outcome,) = outcomes
        ack_result = CycleAckResult(_count_events(body.ack), outcome.released or body.release_lease, outcome.dead)
    return CycleCommitResult(
        True,
        body.query_id,
        body.partition_id,
        partition.queue,
        state.count,
        messages.results(pushes),
        ack_result,
        server_time_ms=server_time_ms,
    )


def _parse_ack(ack: CycleAck | None, partition: PartitionRef, group: str) -> AckById | str | None:
    """Convert the ack of a request, or return why it is invalid."""
    if ack is None:
        return None
    lease_id = parse_uuid(ack.lease_id)
    if lease_id is None:
        return INVALID_LEASE
    status = _STATUSES.get(ack.status)
    if status is None:
        return f"{ack.status[:50]!r} is not a status of a message: use {', '.join(_STATUSES)}"
    return AckById(group, partition.partition_id, ack.transaction_id, status, ack.error or "", lease_id)


def _count_events(ack: CycleAck) -> int:
    """Return the number of messages that a client says it has processed, within the bounds of a lease."""
    return 1 if ack.count is None else min(max(ack.count, 0), _MAX_COUNT)


def _rolled_back(body: CycleCommit, error: str) -> CycleCommitResult:
    return CycleCommitResult(False, body.query_id, body.partition_id, error=error)
