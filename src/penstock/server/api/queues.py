"""Queues over HTTP: made, looked at, changed, deleted."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import NotFound
from penstock.log.storage.segments import Upkeep
from penstock.protocol import messages
from penstock.server.http.endpoint import Call, Endpoint, Role

_READ = frozenset({Role.READ})
_ADMIN = frozenset({Role.ADMIN})
#: Whoever works with a queue may know how it is set up.
_ANYONE = frozenset({Role.READ, Role.PRODUCE, Role.CONSUME})

_TAG = "Queues"


class PartitionsQuery(Struct, frozen=True):
    """How many partitions to list."""

    limit: Annotated[int, Meta(ge=1, le=100_000)] = 1_000


async def queues(call: Call) -> messages.Queues:
    """All queues that the caller may see."""
    everything = call.sees_all()
    found = await call.services.log.queues()
    return messages.Queues([messages.QueueDocument.of(queue) for queue in found if everything or call.sees(queue.name)])


async def queue(call: Call) -> messages.QueueDocument:
    """A queue as it was at most a second ago: cheap, so it may be asked often."""
    return messages.QueueDocument.of(await call.services.log.catalog.get(call.path["queue"]))


async def status(call: Call) -> messages.QueueStatus:
    """A queue with its size, its groups and its dead letters."""
    found = await call.services.log.describe(call.path["queue"])
    return messages.QueueStatus(messages.QueueDocument.of(found.queue), found.size, found.groups, found.dead_letters)


async def partitions(call: Call) -> messages.Partitions:
    """Its partitions, the fullest first."""
    return messages.Partitions(await call.services.log.partitions(call.path["queue"], call.query.limit))


async def configure(call: Call) -> messages.QueueDocument:
    """Make a queue, or change the options that are named."""
    asked: messages.QueueConfiguration = call.body
    made = await call.services.log.configure(
        call.path["queue"],
        asked.options,
        partitioning=asked.partitioning,
        partitions=asked.partitions,
        only_new=asked.only_new,
    )
    return messages.QueueDocument.of(made)


async def change(call: Call) -> messages.QueueDocument:
    """Change the options that are named, of a queue that is there."""
    name = call.path["queue"]
    await call.services.log.catalog.refresh(name)
    return messages.QueueDocument.of(await call.services.log.configure(name, call.body.options))


async def repartition(call: Call) -> messages.QueueDocument:
    """Partition a queue differently from now on."""
    asked: messages.Repartition = call.body
    changed = await call.services.log.repartition(call.path["queue"], asked.partitioning, asked.partitions)
    return messages.QueueDocument.of(changed)


async def delete(call: Call) -> None:
    """Delete a queue with its events, groups and dead letters."""
    name = call.path["queue"]
    if not await call.services.log.delete_queue(name):
        raise NotFound(f"there is no queue {name!r}")


async def upkeep(call: Call) -> Upkeep:
    """Roll, drop and park what is due."""
    return await call.services.log.upkeep()


ENDPOINTS = (
    Endpoint("GET", "/v1/queues", queues, "List the queues", _TAG, _ANYONE, asks=True, answer=messages.Queues),
    Endpoint(
        "GET",
        "/v1/queues/{queue}",
        queue,
        "How a queue is set up",
        _TAG,
        _ANYONE,
        answer=messages.QueueDocument,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "PUT",
        "/v1/queues/{queue}",
        configure,
        "Make a queue, or change it",
        _TAG,
        _ADMIN,
        body=messages.QueueConfiguration,
        body_required=False,
        answer=messages.QueueDocument,
        problems=("conflict", "invalid-name", "invalid-option"),
    ),
    Endpoint(
        "PATCH",
        "/v1/queues/{queue}",
        change,
        "Change the options of a queue",
        _TAG,
        _ADMIN,
        body=messages.QueueChange,
        answer=messages.QueueDocument,
        problems=("not-found", "invalid-name", "invalid-option"),
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{queue}",
        delete,
        "Delete a queue with all that is in it",
        _TAG,
        _ADMIN,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/status",
        status,
        "How much a queue holds, and who reads it",
        _TAG,
        _READ,
        answer=messages.QueueStatus,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/partitions",
        partitions,
        "The partitions of a queue, the fullest first",
        _TAG,
        _READ,
        query=PartitionsQuery,
        answer=messages.Partitions,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/repartition",
        repartition,
        "Partition a queue differently from now on",
        _TAG,
        _ADMIN,
        body=messages.Repartition,
        answer=messages.QueueDocument,
        problems=("not-found", "invalid-name", "invalid-option"),
    ),
    Endpoint("POST", "/v1/upkeep", upkeep, "Do now what is done every few seconds", _TAG, _ADMIN, answer=Upkeep),
)
