"""The endpoint that registers a client-computed stream query."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from psycopg.rows import class_row

from penstock.core.names import check_name, check_text
from penstock.db.statements import Statements
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import IdKind, encode_id
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.streams", "register.sql")
routes = queen_routes("not-found", "conflict", "invalid-name", "invalid-event")


class QueryRegistration(msgspec.Struct):
    """A query with the hash of its operators."""

    name: str
    source_queue: str
    config_hash: str
    sink_queue: str | None = None
    reset: bool = False


class RegistrationResult(msgspec.Struct):
    """A query after its registration. ``reset`` tells that its state was deleted."""

    query_id: str
    name: str
    config_hash: str
    fresh: bool
    reset: bool
    success: bool = True


@dataclass(frozen=True, slots=True)
class _KnownQuery:
    id: int
    config_hash: str
    source_queue: str


@routes.post("/streams/v1/queries", "Register a stream", Role.CONSUME, checks_queues=True)
async def register_query(call: ApiCall, body: QueryRegistration) -> RegistrationResult:
    """Register a query. If its hash has changed, the request must ask for a reset, which deletes its state."""
    for name in ("name", "source_queue", "config_hash"):
        if not getattr(body, name):
            raise Problem("invalid-request", f"{name} is required")
    check_name(body.name, "query")
    check_text(body.config_hash, "config_hash")
    call.require_access(check_name(body.source_queue, "queue"), Role.CONSUME)
    if body.sink_queue:
        call.require_access(check_name(body.sink_queue, "queue"), Role.PRODUCE)
    params = {
        "name": body.name,
        "source": body.source_queue,
        "sink": body.sink_queue,
        "hash": body.config_hash,
        "group": f"streams.{body.name}",
    }
    async with call.log.database.connection() as conn, conn.transaction():
        await conn.execute(_sql["lock_catalog"])
        if await (await conn.execute(_sql["find_spark_query"], params)).fetchone() is not None:
            raise Problem(
                "conflict",
                f"the query {body.name!r} runs on Spark: choose another queryId",
                {"success": False, "name": body.name},
            )
        cursor = conn.cursor(row_factory=class_row(_KnownQuery))
        known = await (await cursor.execute(_sql["find"], params)).fetchone()
        if known is None:
            created = await (await cursor.execute(_sql["create"], params)).fetchone()
            assert created is not None  # noqa: S101 - an INSERT that succeeds returns its row
            return RegistrationResult(encode_id(IdKind.QUERY, created.id), body.name, body.config_hash, True, False)
        # The name alone grants nothing: a registration with another source must not delete a foreign query's state.
        call.require_access_silently(known.source_queue, Role.CONSUME)
        has_changed = known.config_hash != body.config_hash
        query_id = encode_id(IdKind.QUERY, known.id)
        if has_changed and not body.reset:
            raise Problem(
                "conflict",
                f"config_hash mismatch: operator chain changed for queryId '{body.name}'. "
                "Pass reset:true to wipe existing state, or use a new queryId.",
                {"success": False, "query_id": query_id, "name": body.name},
            )
        if has_changed:
            await conn.execute(_sql["delete_state"], {"query": known.id})
        await conn.execute(_sql["update"], {**params, "query": known.id})
    return RegistrationResult(query_id, body.name, body.config_hash, False, has_changed)
