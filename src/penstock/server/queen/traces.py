"""Traces: what consumers note about a message on its way, under names that lead from one message to the next."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from psycopg.errors import DataError

from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.server.http.endpoint import Call, Endpoint, Role, json_response
from penstock.server.http.errors import Problem
from penstock.server.queen.dead_letters import Limit, Offset, Page
from penstock.server.queen.identifiers import Kind, moment, pack, unpack
from penstock.server.queen.pop import QUEUE_MODE
from penstock.server.queen.queues import TAG

_sql = Statements("penstock.server.queen", "traces.sql")

_MOST_NAMES = 100


class NewTrace(msgspec.Struct, rename="camel"):
    """A note about a message."""

    transaction_id: str
    partition_id: str
    data: Raw
    consumer_group: str | None = None
    trace_names: list[str] | str | None = None
    event_type: str | None = None


class TraceMade(msgspec.Struct, rename="camel"):
    """Where the note is."""

    trace_id: str
    success: bool = True


class Trace(msgspec.Struct):
    """A note about a message."""

    id: str
    event_type: str
    data: Any
    consumer_group: str
    worker_id: str | None
    created_at: datetime
    trace_names: list[str]


class NamedTrace(Trace):
    """A note, and of which message it is."""

    queue_name: str = ""
    partition_name: str = ""
    partition_id: str = ""
    transaction_id: str = ""
    message_payload: Raw | UnsetType = UNSET


class Traces(msgspec.Struct):
    """The notes about a message, oldest first."""

    traces: list[Trace]


class NamedTraces(msgspec.Struct):
    """The notes under a name, oldest first."""

    traces: list[NamedTrace]
    total: int
    pagination: Page


class TraceName(msgspec.Struct):
    """A name that notes have."""

    trace_name: str
    trace_count: int
    message_count: int
    last_seen: datetime


class TraceNames(msgspec.Struct):
    """The names of notes, the latest first."""

    trace_names: list[TraceName]
    total: int
    pagination: Page


class TracesQuery(msgspec.Struct):
    """A page of notes."""

    limit: Limit = 100
    offset: Offset = 0


class TraceNamesQuery(msgspec.Struct):
    """A page of names."""

    limit: Limit = 50
    offset: Offset = 0


async def add(call: Call) -> Any:
    """Note something about a message."""
    body: NewTrace = call.body
    call.permit(())
    partition_id = unpack(Kind.PARTITION, body.partition_id)
    log = call.services.log
    found = None if partition_id is None else await log.by_id.locate(partition_id, body.transaction_id)
    if found is None:
        # The status is the one that clients know for it, and retry; 404 is the one that it means.
        return json_response({"success": False, "error": "Message not found"}, 404)
    lane, event = found
    call.permit_found(lane.queue)
    params = {
        "partition": lane.partition_id,
        "offset": event.offset,
        "event": event.id,
        "group": check_text(body.consumer_group or QUEUE_MODE, "consumerGroup"),
        "kind": check_text(body.event_type or "info", "eventType"),
        "data": bytes(body.data).decode(),
        "names": _names(body.trace_names),
    }
    try:
        async with log.database.connection() as conn:
            row = await (await conn.execute(_sql["add"], params)).fetchone()
    except DataError as error:
        raise Problem("invalid-request", f"data cannot be stored: {error.diag.message_primary}") from None
    return TraceMade(str(row[0]) if row is not None else "")


def _names(told: list[str] | str | None) -> list[str]:
    names = [told] if isinstance(told, str) else told or []
    if len(names) > _MOST_NAMES:
        raise Problem("invalid-request", f"traceNames may be {_MOST_NAMES} at the most")
    return [check_text(name, "a trace name") for name in names if name]


async def of_message(call: Call) -> Traces:
    """What was noted about a message."""
    call.permit(())
    partition_id = unpack(Kind.PARTITION, call.path["partition"])
    log = call.services.log
    lane = None if partition_id is None else await log.by_id.lane(partition_id)
    if lane is None:
        return Traces([])
    call.permit_found(lane.queue)
    params = {"partition": partition_id, "event": check_text(call.path["transaction"], "the transaction id")}
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["of_event"], params)).fetchall()
    return Traces([Trace(*_columns(row)) for row in rows])


async def by_name(call: Call) -> NamedTraces:
    """What was noted under a name."""
    query: TracesQuery = call.query
    log = call.services.log
    params = {"name": check_text(call.path["name"], "the name"), "limit": query.limit, "offset": query.offset}
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["by_name"], params)).fetchall()
        total = await (await conn.execute(_sql["count_by_name"], params)).fetchone()
    found: list[NamedTrace] = []
    for row in rows:
        queue, partition, partition_id, event_id = row[6:]
        located = await log.by_id.locate(partition_id, event_id)
        payload = UNSET if located is None else Raw(located[1].raw)
        place = (queue, partition, pack(Kind.PARTITION, partition_id), event_id)
        found.append(NamedTrace(*_columns(row), *place, payload))
    return NamedTraces(found, total[0] if total is not None else 0, Page(query.limit, query.offset))


async def names(call: Call) -> TraceNames:
    """The names under which something was noted."""
    query: TraceNamesQuery = call.query
    async with call.services.log.database.connection() as conn:
        rows = await (await conn.execute(_sql["names"], {"limit": query.limit, "offset": query.offset})).fetchall()
    found = [TraceName(name, notes, messages, moment(last)) for name, notes, messages, last, _ in rows]
    return TraceNames(found, rows[0][4] if rows else 0, Page(query.limit, query.offset))


def _columns(row: Any) -> tuple[str, str, Any, str, None, datetime, list[str]]:
    id, kind, data, group, created_at, names = row[:6]
    return str(id), kind, data, group, None, moment(created_at), names


_READERS = frozenset({Role.READ, Role.CONSUME})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/traces",
        add,
        "Note something about a message",
        TAG,
        roles=frozenset({Role.CONSUME}),
        asks=True,
        body=NewTrace,
        answer=TraceMade,
        status=201,
        plane=True,
        problems=("not-found",),
    ),
    # For callers who are limited to no queues: a name leads through all of them.
    Endpoint(
        "GET",
        "/api/v1/traces/names",
        names,
        "List names of traces",
        TAG,
        roles=_READERS,
        query=TraceNamesQuery,
        answer=TraceNames,
        plane=True,
    ),
    Endpoint(
        "GET",
        "/api/v1/traces/by-name/{name}",
        by_name,
        "List traces of a name",
        TAG,
        roles=_READERS,
        query=TracesQuery,
        answer=NamedTraces,
        plane=True,
    ),
    Endpoint(
        "GET",
        "/api/v1/traces/{partition}/{transaction}",
        of_message,
        "List traces of a message",
        TAG,
        roles=_READERS,
        asks=True,
        answer=Traces,
        plane=True,
    ),
)
