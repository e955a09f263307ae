"""Traces: notes of consumers about messages, under names that connect several messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from psycopg.errors import DataError
from psycopg.rows import class_row

from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.http.responses import json_response
from penstock.server.queen.delivery.ack_by_id import AcksById
from penstock.server.queen.endpoint import queen_endpoint
from penstock.server.queen.identifiers import QUEUE_MODE, IdKind, decode_id, encode_id, to_utc
from penstock.server.queen.pagination import Limit, Offset, Pagination
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "traces.sql")

_MAX_NAMES = 100


class NewTrace(msgspec.Struct, rename="camel"):
    transaction_id: str
    partition_id: str
    data: Raw
    consumer_group: str | None = None
    trace_names: list[str] | str | None = None
    event_type: str | None = None


class AddedTrace(msgspec.Struct, rename="camel"):
    trace_id: str
    success: bool = True


class MessageTrace(msgspec.Struct):
    id: str
    event_type: str
    data: Any
    consumer_group: str
    worker_id: str | None
    created_at: datetime
    trace_names: list[str]


class NamedTrace(MessageTrace):
    """A trace with its message."""

    queue_name: str = ""
    partition_name: str = ""
    partition_id: str = ""
    transaction_id: str = ""
    message_payload: Raw | UnsetType = UNSET


class MessageTraces(msgspec.Struct):
    """The traces of a message, oldest first."""

    traces: list[MessageTrace]


class NamedTraces(msgspec.Struct):
    """The traces under a name, oldest first."""

    traces: list[NamedTrace]
    total: int
    pagination: Pagination


class TraceName(msgspec.Struct):
    trace_name: str
    trace_count: int
    message_count: int
    last_seen: datetime


class TraceNames(msgspec.Struct):
    """The names of traces, most recently used first."""

    trace_names: list[TraceName]
    total: int
    pagination: Pagination


class TraceListParameters(msgspec.Struct):
    """Pages the traces under a name."""

    limit: Limit = 100
    offset: Offset = 0


class TraceNameListParameters(msgspec.Struct):
    """Pages the names of traces."""

    limit: Limit = 50
    offset: Offset = 0


@dataclass(frozen=True, slots=True)
class _TraceRow:
    id: int
    kind: str
    data: Any
    group_name: str
    created_at: datetime
    names: list[str]


@dataclass(frozen=True, slots=True)
class _NamedTraceRow(_TraceRow):
    queue: str
    partition: str
    partition_id: int
    event_id: str


@dataclass(frozen=True, slots=True)
class _TraceNameRow:
    name: str
    traces: int
    messages: int
    last_at: datetime
    total: int


async def add_trace(call: ApiCall) -> Any:
    body: NewTrace = call.body
    call.require_access(())
    partition_id = decode_id(IdKind.PARTITION, body.partition_id)
    lookup = call.services.component(AcksById).lookup
    message = None if partition_id is None else await lookup.find_event(partition_id, body.transaction_id)
    if message is None:
        # Queen's own server returns 500, which clients retry in vain.
        return json_response({"success": False, "error": "Message not found"}, 404)
    partition, event = message
    call.require_access_silently(partition.queue)
    params = {
        "partition": partition.partition_id,
        "offset": event.offset,
        "event": event.id,
        "group": check_text(body.consumer_group or QUEUE_MODE, "consumerGroup"),
        "kind": check_text(body.event_type or "info", "eventType"),
        "data": bytes(body.data).decode(),
        "names": _check_names(body.trace_names),
    }
    try:
        async with call.services.log.database.connection() as conn:
            row = await (await conn.execute(_sql["add"], params)).fetchone()
    except DataError as error:
        raise Problem("invalid-request", f"data cannot be stored: {error.diag.message_primary}") from None
    return AddedTrace(str(row[0]) if row is not None else "")


def _check_names(given: list[str] | str | None) -> list[str]:
    names = [given] if isinstance(given, str) else given or []
    if len(names) > _MAX_NAMES:
        raise Problem("invalid-request", f"traceNames may hold at most {_MAX_NAMES} names")
    return [check_text(name, "a trace name") for name in names if name]


async def list_message_traces(call: ApiCall) -> MessageTraces:
    call.require_access(())
    partition_id = decode_id(IdKind.PARTITION, call.path["partition"])
    lookup = call.services.component(AcksById).lookup
    partition = None if partition_id is None else await lookup.find_partition(partition_id)
    if partition is None:
        return MessageTraces([])
    call.require_access_silently(partition.queue)
    params = {"partition": partition_id, "event": check_text(call.path["transaction"], "the transaction id")}
    async with call.services.log.database.connection() as conn:
        cursor = conn.cursor(row_factory=class_row(_TraceRow))
        rows = await (await cursor.execute(_sql["of_event"], params)).fetchall()
    return MessageTraces(
        [
            MessageTrace(str(row.id), row.kind, row.data, row.group_name, None, to_utc(row.created_at), row.names)
            for row in rows
        ]
    )


async def list_traces_by_name(call: ApiCall) -> NamedTraces:
    query: TraceListParameters = call.query
    params = {"name": check_text(call.path["name"], "the name"), "limit": query.limit, "offset": query.offset}
    async with call.services.log.database.connection() as conn:
        cursor = conn.cursor(row_factory=class_row(_NamedTraceRow))
        rows = await (await cursor.execute(_sql["by_name"], params)).fetchall()
        total = await (await conn.execute(_sql["count_by_name"], params)).fetchone()
    lookup = call.services.component(AcksById).lookup
    traces: list[NamedTrace] = []
    for row in rows:
        message = await lookup.find_event(row.partition_id, row.event_id)
        traces.append(
            NamedTrace(
                str(row.id),
                row.kind,
                row.data,
                row.group_name,
                None,
                to_utc(row.created_at),
                row.names,
                row.queue,
                row.partition,
                encode_id(IdKind.PARTITION, row.partition_id),
                row.event_id,
                UNSET if message is None else Raw(message.event.raw),
            )
        )
    return NamedTraces(traces, total[0] if total is not None else 0, Pagination(query.limit, query.offset))


async def list_trace_names(call: ApiCall) -> TraceNames:
    query: TraceNameListParameters = call.query
    async with call.services.log.database.connection() as conn:
        cursor = conn.cursor(row_factory=class_row(_TraceNameRow))
        await cursor.execute(_sql["names"], {"limit": query.limit, "offset": query.offset})
        rows = await cursor.fetchall()
    names = [TraceName(row.name, row.traces, row.messages, to_utc(row.last_at)) for row in rows]
    return TraceNames(names, rows[0].total if rows else 0, Pagination(query.limit, query.offset))


_READERS = {Role.READ, Role.CONSUME}

ENDPOINTS = (
    queen_endpoint(
        "POST",
        "/api/v1/traces",
        add_trace,
        "Add a trace to a message",
        {Role.CONSUME},
        checks_queues=True,
        body=NewTrace,
        response=AddedTrace,
        status=201,
        problems=("not-found",),
    ),
    # The next two are only for callers without a limit to some queues: a name connects messages of any queue.
    queen_endpoint(
        "GET",
        "/api/v1/traces/names",
        list_trace_names,
        "List the names of traces",
        _READERS,
        query=TraceNameListParameters,
        response=TraceNames,
    ),
    queen_endpoint(
        "GET",
        "/api/v1/traces/by-name/{name}",
        list_traces_by_name,
        "List the traces under a name",
        _READERS,
        query=TraceListParameters,
        response=NamedTraces,
    ),
    queen_endpoint(
        "GET",
        "/api/v1/traces/{partition}/{transaction}",
        list_message_traces,
        "List the traces of a message",
        _READERS,
        checks_queues=True,
        response=MessageTraces,
    ),
)
