"""Queues as the plane sees them: configured, made on first use, found by namespace and task, deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from psycopg.types.json import Jsonb

from penstock.core.errors import Conflict, NotFound
from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.queue import DEFAULT_KEY, Queue
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.queen import queue_options
from penstock.server.queen.identifiers import Kind, pack
from penstock.server.queen.queue_options import Options

_sql = Statements("penstock.server.queen", "queues.sql")

TAG = "Message plane"


class Configure(msgspec.Struct):
    """What a queue is to be."""

    queue: str
    namespace: str | None = None
    task: str | None = None
    options: Options = msgspec.field(default_factory=Options)
    #: "replace" gives every option that is absent its default; else it stays as it was.
    mode: str | None = None


class Configured(msgspec.Struct, rename="camel"):
    """A queue as it is now."""

    queue_id: str
    partition_id: str
    queue: str
    namespace: str
    task: str
    options: dict[str, Any]
    configured: bool = True


class QueueDeleted(msgspec.Struct):
    """Whether there was such a queue."""

    queue: str
    existed: bool
    deleted: bool = True


@dataclass(frozen=True, slots=True)
class Known:
    """A queue with its namespace and task."""

    id: int
    name: str
    namespace: str
    task: str
    created_at: datetime


async def ensure(log: Log, name: str) -> Queue:
    """The queue of that name; if there is none it is made, as the plane's queues are."""
    try:
        return await log.catalog.get(name)
    except NotFound:
        return await log.configure(name, queue_options.ours(queue_options.DEFAULTS))


async def find(log: Log, namespace: str | None = None, task: str | None = None) -> list[Known]:
    """The queues of a namespace, of a task, or of both; all of them, if neither is given."""
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["catalog"], {"namespace": namespace, "task": task})).fetchall()
    return [Known(*row) for row in rows]


async def configure(call: Call) -> Configured:
    """Make a queue, or change what is told of it.

    Clients call it by themselves before they push or pop, so it is for all who may do that: a queue that is there
    already as it is told is answered. To change one takes an administrator.
    """
    call.permit(call.body.queue)
    for name in ("namespace", "task"):
        if getattr(call.body, name) is not None:
            check_text(getattr(call.body, name), name)
    while True:
        try:
            return await _configure(call)
        except Conflict:
            # Somebody else has made it meanwhile.
            continue


async def _configure(call: Call) -> Configured:
    body: Configure = call.body
    log = call.services.log
    before = await log.catalog.find(body.queue)
    about = (None, None, None) if before is None else await _about(log, before.id)
    namespace = about[0] if body.namespace is None else body.namespace
    task = about[1] if body.task is None else body.task
    known = queue_options.DEFAULTS if before is None else about[2] or queue_options.theirs(before)
    told = body.options.told()
    options = queue_options.merged(known, told, replace=body.mode == "replace")
    changes = queue_options.ours(options)
    if before is not None and body.mode != "replace":
        was = queue_options.ours(known)
        changes = {name: value for name, value in changes.items() if name not in was or was[name] != value}
    if before is not None:
        differs = any(getattr(before, name, value) != value for name, value in changes.items())
        if differs or options != known or (namespace, task) != about[:2]:
            call.permit(body.queue, Role.ADMIN)
    queue = await log.configure(body.queue, changes, only_new=before is None)
    async with log.database.connection() as conn:
        params = {"queue": queue.id, "namespace": namespace, "task": task, "options": Jsonb(options)}
        await conn.execute(_sql["keep"], params)
    first = DEFAULT_KEY if queue.partition_count is None else "0"
    lanes = await log.catalog.lanes(queue, [first])
    parts = body.queue.split(".")
    return Configured(
        pack(Kind.QUEUE, queue.id),
        pack(Kind.PARTITION, lanes[first]),
        queue.name,
        namespace if namespace is not None else parts[0] if len(parts) > 1 else "",
        task if task is not None else parts[1] if len(parts) > 1 else "",
        options,
    )


async def _about(log: Log, queue_id: int) -> tuple[str | None, str | None, dict[str, Any] | None]:
    async with log.database.connection() as conn:
        row = await (await conn.execute(_sql["about"], {"queue": queue_id})).fetchone()
    return (None, None, None) if row is None else row


async def delete(call: Call) -> QueueDeleted:
    """Delete a queue with all that belongs to it."""
    name = call.path["queue"]
    return QueueDeleted(name, await call.services.log.delete_queue(name))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/configure",
        configure,
        "Make or change a queue",
        TAG,
        roles=frozenset({Role.PRODUCE, Role.CONSUME}),
        asks=True,
        body=Configure,
        answer=Configured,
        plane=True,
        problems=("invalid-option", "invalid-name"),
    ),
    Endpoint(
        "DELETE",
        "/api/v1/resources/queues/{queue}",
        delete,
        "Delete a queue",
        TAG,
        roles=frozenset({Role.ADMIN}),
        answer=QueueDeleted,
        plane=True,
        problems=("invalid-name",),
    ),
)
