"""Streams that clients compute for themselves: registered here, their state kept here, their cycles committed here.

Many workers share one query: who has a partition's lease may change its state, and nobody else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw
from psycopg.errors import DataError

from penstock.core.errors import TransactionRefused
from penstock.core.names import check_name, check_text
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.read.ack_by_id import Lane, SaidById
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen.client_results import shared_cycles_of
from penstock.server.queen.identifiers import Kind, as_uuid, moment, pack, unpack
from penstock.server.queen.push import ItemPushed, Items, PushItem
from penstock.server.queen.queues import TAG
from penstock.server.queen.stream_state import StateChange, StateOp

_sql = Statements("penstock.server.queen", "streams.sql")

_BAD_LEASE = "Invalid or expired lease"
#: What can be said of the events of a cycle: one that failed is not tried again, or its cycle would fail for ever.
_STATUSES = {
    "completed": "completed",
    "success": "completed",
    "retry": "retry",
    "failed": "dead_letter",
    "dlq": "dead_letter",
}


class Register(msgspec.Struct):
    """A query, and the hash of what it computes."""

    name: str
    source_queue: str
    config_hash: str
    sink_queue: str | None = None
    reset: bool = False


class RegisteredQuery(msgspec.Struct):
    """A query that may run."""

    query_id: str
    name: str
    config_hash: str
    fresh: bool
    reset: bool
    success: bool = True


class StateGet(msgspec.Struct):
    """Which state."""

    query_id: str
    partition_id: str
    keys: list[str] = []
    key_prefix: str | None = None
    ripe_at_or_before: float | None = None


class StateRow(msgspec.Struct):
    """A row of state."""

    key: str
    value: Raw
    updated_at: datetime


class StateRows(msgspec.Struct):
    """Rows of state by key."""

    rows: list[StateRow]
    success: bool = True


class CycleAck(msgspec.Struct, rename="camel"):
    """Up to which message a cycle went."""

    transaction_id: str
    lease_id: str | None = None
    status: str = "completed"
    count: int | None = None
    error: str | None = None


class Cycle(msgspec.Struct):
    """What happens together: changes of state, messages pushed, the source acknowledged."""

    query_id: str
    partition_id: str
    consumer_group: str | None = None
    state_ops: list[StateOp] = []
    push_items: list[PushItem] = []
    ack: CycleAck | None = None
    release_lease: bool = True


class CycleAcked(msgspec.Struct):
    """What became of the ack."""

    count: int
    lease_released: bool
    dlq: bool
    success: bool = True


class CycleDone(msgspec.Struct):
    """A cycle that is committed; one that is not has an ``error``, and nothing of it happened."""

    success: bool
    query_id: str
    partition_id: str
    queueName: str | None = None
    state_ops_applied: int = 0
    push_results: list[ItemPushed] = []
    ack_result: CycleAcked | None = None
    error: str | None = None


async def register(call: Call) -> RegisteredQuery:
    """Register a query; one that computes something else under the same name is refused, unless it resets."""
    body: Register = call.body
    for name in ("name", "source_queue", "config_hash"):
        if not getattr(body, name):
            raise Problem("invalid-request", f"{name} is required")
    check_name(body.name, "query")
    check_text(body.config_hash, "config_hash")
    call.permit(check_name(body.source_queue, "queue"), Role.CONSUME)
    if body.sink_queue:
        call.permit(check_name(body.sink_queue, "queue"), Role.PRODUCE)
    params = {
        "name": body.name,
        "source": body.source_queue,
        "sink": body.sink_queue,
        "hash": body.config_hash,
        "group": f"streams.{body.name}",
    }
    async with call.services.log.database.connection() as conn, conn.transaction():
        await conn.execute(_sql["lock_catalog"])
        if await (await conn.execute(_sql["on_spark"], params)).fetchone() is not None:
            raise Problem(
                "conflict",
                f"the query {body.name!r} runs on Spark: choose another queryId",
                {"success": False, "name": body.name},
            )
        row = await (await conn.execute(_sql["find"], params)).fetchone()
        if row is None:
            made = await (await conn.execute(_sql["create"], params)).fetchone()
            assert made is not None  # noqa: S101 - an INSERT that does not fail has a row
            return RegisteredQuery(pack(Kind.QUERY, made[0]), body.name, body.config_hash, True, False)
        query_id, known, source = row
        # Its name is not enough: who registers it anew with another source could wipe what is not his.
        call.permit_found(source, Role.CONSUME)
        if known != body.config_hash:
            if not body.reset:
                raise Problem(
                    "conflict",
                    f"config_hash mismatch: operator chain changed for queryId '{body.name}'. "
                    "Pass reset:true to wipe existing state, or use a new queryId.",
                    {"success": False, "query_id": pack(Kind.QUERY, query_id), "name": body.name},
                )
            await conn.execute(_sql["wipe"], {"query": query_id})
        await conn.execute(_sql["change"], {**params, "query": query_id})
    return RegisteredQuery(pack(Kind.QUERY, query_id), body.name, body.config_hash, False, known != body.config_hash)


async def get_state(call: Call) -> StateRows:
    """Read the state of a query in a partition.

    Who asks for windows that are ripe wants to close them because nothing comes any more. While something does, none
    is: the group is at work on the partition, or has yet to read of it, and that may belong to such a window.
    """
    body: StateGet = call.body
    call.permit(())
    query, lane = await _place(call, body.query_id, body.partition_id)
    call.permit_found(lane.queue)
    for text in (*body.keys, body.key_prefix or ""):
        check_text(text, "a key")
    ripe = body.ripe_at_or_before
    params = {"query": query.id, "partition": lane.partition_id, "keys": body.keys, "prefix": body.key_prefix}
    async with call.services.log.database.connection() as conn:
        if ripe is not None and await _busy(conn, lane, query.group, call.services.log) is not None:
            return StateRows([])
        cursor = await conn.execute(_sql["rows"], {**params, "ripe": None if ripe is None else repr(ripe)})
        rows = await cursor.fetchall()
    return StateRows([StateRow(key, Raw(value.encode()), moment(at)) for key, value, at in rows])


async def cycle(call: Call) -> CycleDone:
    """Commit a cycle: all of it, or nothing and the error says why."""
    body: Cycle = call.body
    call.permit(())
    query, lane = await _place(call, body.query_id, body.partition_id)
    items = Items(body.push_items, call.caller)
    call.permit_found(lane.queue, Role.CONSUME)
    if items.queues:
        call.permit(items.queues, Role.PRODUCE)
    group = check_name(body.consumer_group or query.group, "group")
    state = StateChange(query.id, lane, body.state_ops)
    log = call.services.log
    said, lease, problem = _said(body, lane, group)
    if problem is not None:
        return _failed(body, problem)
    place = {"queue": lane.queue_id, "group": group, "partition": lane.partition_id}

    async def also(conn: Any) -> None:
        if said is None:
            await conn.execute(_sql["share_queue"], place)
            await conn.execute(_sql["lock_cursor"], place)
            busy = await _busy(conn, lane, group, log)
            if busy is not None:
                raise TransactionRefused(f"{busy}: its windows are not idle")
        elif body.release_lease:
            await conn.execute(_sql["release"], {**place, "lease": lease})
        await conn.execute(_sql["set_group"], {"query": query.id, "group": group})
        await state.apply(conn, under_lease=said is not None)

    try:
        done, _ = await log.transact_by_id([] if said is None else [said], await items.batches(log), also=also)
    except TransactionRefused as error:
        return _failed(body, f"{_BAD_LEASE}: {error}" if "lease" in str(error) else str(error))
    except DataError as error:
        return _failed(body, f"a value of the state cannot be stored: {error.diag.message_primary}")
    log.signals.wake(shared_cycles_of(query.id))
    acked = None
    if body.ack is not None:
        (verdict,) = done.verdicts
        released = verdict.released or body.release_lease
        acked = CycleAcked(1 if body.ack.count is None else body.ack.count, released, verdict.dead)
    return CycleDone(True, body.query_id, body.partition_id, lane.queue, state.count, items.results(done.pushes), acked)


class _Query(msgspec.Struct):
    id: int
    name: str
    group: str


async def _place(call: Call, query_text: str, partition_text: str) -> tuple[_Query, Lane]:
    query_id = unpack(Kind.QUERY, query_text)
    partition_id = unpack(Kind.PARTITION, partition_text)
    if query_id is None or partition_id is None:
        wrong = "query_id" if query_id is None else "partition_id"
        raise Problem("invalid-request", f"{wrong} is none that this server has given")
    log = call.services.log
    async with log.database.connection() as conn:
        row = await (await conn.execute(_sql["query"], {"query": query_id})).fetchone()
    lane = await log.by_id.lane(partition_id)
    if row is None or lane is None:
        raise Problem("not-found", "the query is gone" if row is None else "the partition is gone")
    call.permit_found(row[4])
    return _Query(query_id, row[0], row[1]), lane


def _said(body: Cycle, lane: Lane, group: str) -> tuple[SaidById | None, Any, str | None]:
    """What is said of the source, under which lease, or what is wrong with it."""
    ack = body.ack
    if ack is None:
        return None, None, None
    lease = as_uuid(ack.lease_id)
    if lease is None:
        return None, None, _BAD_LEASE
    status: Any = _STATUSES.get(ack.status)
    if status is None:
        return None, None, f"{ack.status[:50]!r} cannot be said of a message"
    return SaidById(group, lane.partition_id, ack.transaction_id, status, ack.error or "", lease), lease, None


def _failed(body: Cycle, error: str) -> CycleDone:
    return CycleDone(False, body.query_id, body.partition_id, error=error)


async def _busy(conn: Any, lane: Lane, group: str, log: Log) -> str | None:
    """Why a partition is not idle, if it is not."""
    queue = await log.catalog.get_on(conn, lane.queue)
    params = {"queue": queue.id, "group": group, "partition": lane.partition_id}
    row = await (await conn.execute(_sql.table("busy", queue.id, queue.segment), params)).fetchone()
    if row is None:
        return None
    held, unread = row
    return (
        "a worker has the partition"
        if held
        else "the partition has messages that were not read yet"
        if unread
        else None
    )


def _endpoint(path: str, handler: Any, summary: str, roles: frozenset[Role], body: Any, answer: Any) -> Endpoint:
    return Endpoint(
        "POST",
        path,
        handler,
        summary,
        TAG,
        roles=roles,
        asks=True,
        body=body,
        answer=answer,
        plane=True,
        problems=("not-found", "conflict", "invalid-name", "invalid-event"),
    )


_CONSUMER = frozenset({Role.CONSUME})

ENDPOINTS = (
    _endpoint("/streams/v1/cycle", cycle, "Commit a cycle of a stream", _CONSUMER, Cycle, CycleDone),
    _endpoint(
        "/streams/v1/state/get",
        get_state,
        "Read the state of a stream",
        _CONSUMER | {Role.READ},
        StateGet,
        StateRows,
    ),
    _endpoint("/streams/v1/queries", register, "Register a stream", _CONSUMER, Register, RegisteredQuery),
)
