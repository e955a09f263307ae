"""What there is: queues with their namespaces and tasks, and partitions."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

import msgspec

from penstock.core.errors import NotFound
from penstock.log.log import Log
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.queen import queues
from penstock.server.queen.dead_letters import Limit, Offset
from penstock.server.queen.identifiers import Kind, moment, pack
from penstock.server.queen.queue_options import theirs
from penstock.server.queen.queues import TAG, Known


class ResourcesQuery(msgspec.Struct):
    """Which queues."""

    namespace: str = ""
    task: str = ""
    limit: Limit = 1000
    offset: Offset = 0


class QueueListed(msgspec.Struct, rename="camel"):
    """A queue."""

    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    messages: int
    pending: int
    dead_letters: int
    created_at: datetime


class QueueDetail(QueueListed, rename="camel", kw_only=True):
    """A queue with its options."""

    options: dict[str, Any]


class QueuesListed(msgspec.Struct):
    """Queues by name."""

    queues: list[QueueListed]
    total: int


class Named(msgspec.Struct):
    """A namespace or task, and how many queues it has."""

    name: str
    queues: int


class Namespaces(msgspec.Struct):
    """The namespaces of queues."""

    namespaces: list[Named]


class Tasks(msgspec.Struct):
    """The tasks of queues."""

    tasks: list[Named]


class PartitionsQuery(msgspec.Struct):
    """The partitions of a queue, or one of them."""

    queue: str
    partition: str = ""
    limit: Limit = 1000
    offset: Offset = 0


class PartitionListed(msgspec.Struct, rename="camel"):
    """A partition."""

    id: str
    queue: str
    name: str
    messages: int


class PartitionsListed(msgspec.Struct):
    """Partitions of a queue."""

    partitions: list[PartitionListed]


async def list_queues(call: Call) -> QueuesListed:
    """List queues."""
    query: ResourcesQuery = call.query
    found = await _visible(call, query.namespace, query.task)
    listed: list[QueueListed] = []
    for each in found[query.offset : query.offset + query.limit]:
        # One that is deleted meanwhile is not missed.
        with contextlib.suppress(NotFound):
            listed.append(QueueListed(**await _facts(call.services.log, each)))
    return QueuesListed(listed, len(found))


async def get_queue(call: Call) -> QueueDetail:
    """Look at a queue."""
    log = call.services.log
    for each in await queues.find(log):
        if each.name == call.path["queue"]:
            return QueueDetail(**await _facts(log, each), options=theirs(await log.catalog.get(each.name)))
    raise NotFound("Queue not found")


async def namespaces(call: Call) -> Namespaces:
    """List namespaces."""
    return Namespaces(_counted([each.namespace for each in await _visible(call)]))


async def tasks(call: Call) -> Tasks:
    """List tasks."""
    return Tasks(_counted([each.task for each in await _visible(call)]))


async def list_partitions(call: Call) -> PartitionsListed:
    """List the partitions of a queue."""
    query: PartitionsQuery = call.query
    call.permit(query.queue)
    found = await call.services.log.partitions(query.queue, limit=query.offset + query.limit)
    return PartitionsListed(
        [
            PartitionListed(pack(Kind.PARTITION, each.id), query.queue, each.name, each.end - each.first)
            for each in found[query.offset :]
            if not query.partition or each.name == query.partition
        ]
    )


async def _visible(call: Call, namespace: str = "", task: str = "") -> list[Known]:
    call.permit(())
    found = await queues.find(call.services.log, namespace or None, task or None)
    return [each for each in found if call.sees(each.name)]


async def _facts(log: Log, queue: Known) -> dict[str, Any]:
    info = await log.describe(queue.name)
    return {
        "id": pack(Kind.QUEUE, queue.id),
        "name": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "partitions": info.size.partitions,
        "messages": info.size.events,
        "pending": max((group.lag for group in info.groups), default=info.size.events),
        "dead_letters": info.dead_letters,
        "created_at": moment(queue.created_at),
    }


def _counted(names: list[str]) -> list[Named]:
    return [Named(name, names.count(name)) for name in sorted(set(names)) if name]


_READERS = frozenset({Role.READ, Role.CONSUME, Role.PRODUCE})
_ROOT = "/api/v1/resources"


def _endpoint(path: str, handler: Any, summary: str, answer: Any, **more: Any) -> Endpoint:
    more = {"asks": True, **more}
    return Endpoint("GET", f"{_ROOT}{path}", handler, summary, TAG, roles=_READERS, answer=answer, plane=True, **more)


ENDPOINTS = (
    _endpoint("/queues", list_queues, "List queues", QueuesListed, query=ResourcesQuery),
    _endpoint("/queues/{queue}", get_queue, "Look at a queue", QueueDetail, asks=False, problems=("not-found",)),
    _endpoint("/namespaces", namespaces, "List namespaces", Namespaces),
    _endpoint("/tasks", tasks, "List tasks", Tasks),
    _endpoint(
        "/partitions",
        list_partitions,
        "List partitions of a queue",
        PartitionsListed,
        query=PartitionsQuery,
        problems=("not-found", "invalid-name"),
    ),
)
