"""The endpoints that configure and delete queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from psycopg.types.json import Jsonb

from penstock.core.errors import Conflict
from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.log.queue import DEFAULT_KEY
from penstock.server.auth.identity import Role
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import IdKind, encode_id
from penstock.server.queen.queue_options import (
    DEFAULTS,
    GivenOptions,
    from_queue,
    merge_options,
    to_log_options,
)
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "configure.sql")
routes = queen_routes("invalid-option", "invalid-name")


class ConfigureRequest(msgspec.Struct):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: GivenOptions | None = None
    #: "replace" resets absent options to their defaults; otherwise they keep their values.
    mode: str | None = None


class ConfiguredQueue(msgspec.Struct, rename="camel"):
    queue_id: str
    partition_id: str
    queue: str
    namespace: str
    task: str
    options: dict[str, Any]
    configured: bool = True


class DeletedQueue(msgspec.Struct):
    queue: str
    existed: bool
    deleted: bool = True


@dataclass(frozen=True, slots=True)
class _StoredConfiguration:
    """The part of a queue's configuration that only this protocol uses."""

    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] | None = None


@routes.post("/api/v1/configure", "Create or change a queue", Role.PRODUCE, Role.CONSUME, checks_queues=True)
async def configure_queue(call: ApiCall, body: ConfigureRequest) -> ConfiguredQueue:
    """Create a queue or change its configuration.

    Clients call this before they push or pop, so producers and consumers may call it for a new queue or an unchanged
    configuration. A change needs the role admin.
    """
    call.require_access(body.queue)
    for name in ("namespace", "task"):
        if getattr(body, name) is not None:
            check_text(getattr(body, name), name)
    while True:
        try:
            return await _configure(call, body)
        except Conflict:
            continue  # another request has created the queue meanwhile


async def _configure(call: ApiCall, body: ConfigureRequest) -> ConfiguredQueue:
    log = call.log
    before = await log.catalog.find(body.queue)
    rows = (
        [] if before is None else await log.database.fetch(_StoredConfiguration, _sql["stored"], {"queue": before.id})
    )
    stored = rows[0] if rows else _StoredConfiguration()
    namespace = stored.namespace if body.namespace is None else body.namespace
    task = stored.task if body.task is None else body.task
    current = DEFAULTS if before is None else stored.options or from_queue(before)
    options = merge_options(current, body.options or GivenOptions(), replace=body.mode == "replace")
    changes = to_log_options(options)
    if before is not None and body.mode != "replace":
        was = to_log_options(current)
        changes = {name: value for name, value in changes.items() if name not in was or was[name] != value}
    if before is not None:
        if before.dedup_window_seconds <= 0:
            changes.pop("dedup_window_seconds", None)
        differs = any(getattr(before, name, value) != value for name, value in changes.items())
        if differs or options != current or (namespace, task) != (stored.namespace, stored.task):
            call.require_access(body.queue, Role.ADMIN)
    queue = await log.configure(body.queue, changes, only_new=before is None)
    async with log.database.connection() as conn:
        params = {"queue": queue.id, "namespace": namespace, "task": task, "options": Jsonb(options)}
        await conn.execute(_sql["store"], params)
    first = DEFAULT_KEY if queue.partition_count is None else "0"
    partitions = await log.catalog.partition_ids(queue, [first])
    parts = body.queue.split(".")
    return ConfiguredQueue(
        encode_id(IdKind.QUEUE, queue.id),
        encode_id(IdKind.PARTITION, partitions[first]),
        queue.name,
        namespace if namespace is not None else parts[0] if len(parts) > 1 else "",
        task if task is not None else parts[1] if len(parts) > 1 else "",
        options,
    )


@routes.delete("/api/v1/resources/queues/{queue}", "Delete a queue", Role.ADMIN, problems=("invalid-name",))
async def delete_queue(call: ApiCall) -> DeletedQueue:
    """Delete a queue with its messages, groups and dead letters."""
    name = call.path["queue"]
    return DeletedQueue(name, await call.log.delete_queue(name))
