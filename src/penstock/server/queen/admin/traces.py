"""Traces: notes of consumers about messages, under names that connect several messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from psycopg.errors import DataError

from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.delivery.ack_by_id import AcksById
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import QUEUE_MODE, IdKind, decode_id, encode_id
from penstock.server.queen.pagination import Limit, Offset, Pagination
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "traces.sql")
routes = queen_routes()

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
    limit: Limit = 100
    offset: Offset = 0


class TraceNameListParameters(TraceListParameters):
    limit: Limit = 50


@dataclass(frozen=True, slots=True)
class _Total:
    total: int


@routes.post(
    "/api/v1/traces", "Add a trace to a message", Role.CONSUME, checks_queues=True, status=201, problems=("not-found",)
)
async def add_trace(call: ApiCall, body: NewTrace) -> AddedTrace:
    lookup = call.services.component(AcksById).lookup
    message = await lookup.find_event(decode_id(IdKind.PARTITION, body.partition_id), body.transaction_id)
    if message is None:
        # Queen's own server returns 500, which clients retry in vain.
        raise Problem("not-found", "Message not found", {"success": False})
    call.require_access_silently(message.partition.queue)
    params = {
        "partition": message.partition.partition_id,
        "offset": message.event.offset,
        "event": message.event.id,
        "group": check_text(body.consumer_group or QUEUE_MODE, "consumerGroup"),
        "kind": check_text(body.event_type or "info", "eventType"),
        "data": bytes(body.data).decode(),
        "names": _check_names(body.trace_names),
    }
    try:
        (added,) = await call.log.database.fetch(AddedTrace, _sql["add"], params)
    except DataError as error:
        raise Problem("invalid-request", f"data cannot be stored: {error.diag.message_primary}") from None
    return added


def _check_names(given: list[str] | str | None) -> list[str]:
    names = [given] if isinstance(given, str) else given or []
    if len(names) > _MAX_NAMES:
        raise Problem("invalid-request", f"traceNames may hold at most {_MAX_NAMES} names")
    return [check_text(name, "a trace name") for name in names if name]


# The next two are only for callers without a limit to some queues: a name connects messages of any queue.
@routes.get("/api/v1/traces/names", "List the names of traces", Role.READ, Role.CONSUME)
async def list_trace_names(call: ApiCall, query: TraceNameListParameters) -> TraceNames:
    database = call.log.database
    names = await database.fetch(TraceName, _sql["names"], {"limit": query.limit, "offset": query.offset})
    (count,) = await database.fetch(_Total, _sql["count_names"])
    return TraceNames(names, count.total, Pagination(query.limit, query.offset))


@routes.get("/api/v1/traces/by-name/{name}", "List the traces under a name", Role.READ, Role.CONSUME)
async def list_traces_by_name(call: ApiCall, query: TraceListParameters) -> NamedTraces:
    params = {"name": check_text(call.path["name"], "the name"), "limit": query.limit, "offset": query.offset}
    database = call.log.database
    traces = await database.fetch(NamedTrace, _sql["by_name"], params)
    (count,) = await database.fetch(_Total, _sql["count_by_name"], params)
    lookup = call.services.component(AcksById).lookup
    for trace in traces:
        # The database returns the number of the partition.
        partition_id = int(trace.partition_id)
        trace.partition_id = encode_id(IdKind.PARTITION, partition_id)
        if (message := await lookup.find_event(partition_id, trace.transaction_id)) is not None:
            trace.message_payload = Raw(message.event.raw)
    return NamedTraces(traces, count.total, Pagination(query.limit, query.offset))


@routes.get(
    "/api/v1/traces/{partition}/{transaction}",
    "List the traces of a message",
    Role.READ,
    Role.CONSUME,
    checks_queues=True,
)
async def list_message_traces(call: ApiCall) -> MessageTraces:
    partition_id = decode_id(IdKind.PARTITION, call.path["partition"])
    partition = await call.services.component(AcksById).lookup.find_partition(partition_id)
    call.require_access_silently(() if partition is None else partition.queue)
    params = {"partition": partition_id, "event": check_text(call.path["transaction"], "the transaction id")}
    return MessageTraces(await call.log.database.fetch(MessageTrace, _sql["of_event"], params))
