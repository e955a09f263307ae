"""The endpoints that list queues, namespaces, tasks and partitions."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from penstock.core.errors import NotFound
from penstock.log.log import Log
from penstock.server.auth.identity import Role
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import IdKind, encode_id
from penstock.server.queen.pagination import Limit, Offset
from penstock.server.queen.queue_options import from_queue
from penstock.server.queen.queues import NamespacedQueue, find_queues
from penstock.server.routing.call import ApiCall

routes = queen_routes("not-found")

_ANYONE = (Role.READ, Role.CONSUME, Role.PRODUCE)


class QueueListParameters(msgspec.Struct):
    namespace: str = ""
    task: str = ""
    limit: Limit = 1000
    offset: Offset = 0


class QueueResource(msgspec.Struct, rename="camel"):
    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    messages: int
    pending: int
    dead_letters: int
    created_at: datetime


class QueueResourceDetail(QueueResource, rename="camel", kw_only=True):
    options: dict[str, Any]


class QueueResources(msgspec.Struct):
    queues: list[QueueResource]
    total: int


class QueueCount(msgspec.Struct):
    """A namespace or task with the number of its queues."""

    name: str
    queues: int


class Namespaces(msgspec.Struct):
    namespaces: list[QueueCount]


class Tasks(msgspec.Struct):
    tasks: list[QueueCount]


class PartitionListParameters(msgspec.Struct):
    queue: str
    partition: str = ""
    limit: Limit = 1000
    offset: Offset = 0


class PartitionResource(msgspec.Struct, rename="camel"):
    id: str
    queue: str
    name: str
    messages: int


class PartitionResources(msgspec.Struct):
    partitions: list[PartitionResource]


@routes.get("/api/v1/resources/queues", "List queues", *_ANYONE, checks_queues=True, problems=())
async def list_queues(call: ApiCall, query: QueueListParameters) -> QueueResources:
    queues = await _visible_queues(call, query.namespace, query.task)
    listed: list[QueueResource] = []
    for queue in queues[query.offset : query.offset + query.limit]:
        with contextlib.suppress(NotFound):  # deleted meanwhile
            listed.append(QueueResource(**await _describe(call.log, queue)))
    return QueueResources(listed, len(queues))


@routes.get("/api/v1/resources/queues/{queue}", "Show a queue", *_ANYONE)
async def get_queue(call: ApiCall) -> QueueResourceDetail:
    """Show one queue with its options."""
    for queue in await find_queues(call.log):
        if queue.name == call.path["queue"]:
            options = from_queue(await call.log.catalog.get(queue.name))
            return QueueResourceDetail(**await _describe(call.log, queue), options=options)
    raise NotFound("Queue not found")


@routes.get("/api/v1/resources/namespaces", "List namespaces", *_ANYONE, checks_queues=True, problems=())
async def list_namespaces(call: ApiCall) -> Namespaces:
    """List namespaces with the number of their queues."""
    return Namespaces(_count_queues(queue.namespace for queue in await _visible_queues(call)))


@routes.get("/api/v1/resources/tasks", "List tasks", *_ANYONE, checks_queues=True, problems=())
async def list_tasks(call: ApiCall) -> Tasks:
    """List tasks with the number of their queues."""
    return Tasks(_count_queues(queue.task for queue in await _visible_queues(call)))


@routes.get(
    "/api/v1/resources/partitions",
    "List the partitions of a queue",
    *_ANYONE,
    checks_queues=True,
    problems=("not-found", "invalid-name"),
)
async def list_partitions(call: ApiCall, query: PartitionListParameters) -> PartitionResources:
    call.require_access(query.queue)
    partitions = await call.log.partitions(query.queue, limit=query.offset + query.limit)
    return PartitionResources(
        [
            PartitionResource(
                encode_id(IdKind.PARTITION, partition.id),
                query.queue,
                partition.name,
                partition.end - partition.first,
            )
            for partition in partitions[query.offset :]
            if not query.partition or partition.name == query.partition
        ]
    )


async def _visible_queues(call: ApiCall, namespace: str = "", task: str = "") -> list[NamespacedQueue]:
    call.require_access(())
    queues = await find_queues(call.log, namespace or None, task or None)
    return [queue for queue in queues if call.can_see(queue.name)]


async def _describe(log: Log, queue: NamespacedQueue) -> dict[str, Any]:
    info = await log.describe(queue.name)
    return {
        "id": encode_id(IdKind.QUEUE, queue.id),
        "name": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "partitions": info.size.partitions,
        "messages": info.size.events,
        "pending": max((group.lag for group in info.groups), default=info.size.events),
        "dead_letters": info.dead_letters,
        "created_at": queue.created_at,
    }


def _count_queues(names: Iterable[str]) -> list[QueueCount]:
    return [QueueCount(name, count) for name, count in sorted(Counter(names).items()) if name]
