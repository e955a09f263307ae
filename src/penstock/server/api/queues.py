"""``/v1/queues``: create, inspect, change and delete queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import NotFound
from penstock.log.upkeep import Upkeep
from penstock.protocol import messages
from penstock.server.auth.identity import Role
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Queues", problems=("not-found", "invalid-name"))
_QUEUE = "/v1/queues/{queue}"
_OPTION_PROBLEMS = ("not-found", "invalid-name", "invalid-option")


class ListPartitionsQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 1_000


@routes.get("/v1/queues", "List queues", Role.READ, Role.PRODUCE, Role.CONSUME, checks_queues=True, problems=())
async def list_queues(call: ApiCall) -> messages.QueueList:
    """Return all queues that the caller may see."""
    can_see_all = call.can_see_all()
    queues = await call.log.queues()
    return messages.QueueList(
        [messages.QueueDocument.of(queue) for queue in queues if can_see_all or call.can_see(queue.name)]
    )


@routes.get(_QUEUE, "Get the configuration of a queue", Role.READ, Role.PRODUCE, Role.CONSUME)
async def get_queue(call: ApiCall) -> messages.QueueDocument:
    """Return the configuration of a queue, at most a second old. It is cached, so frequent requests are cheap."""
    return messages.QueueDocument.of(await call.log.catalog.get(call.path["queue"]))


@routes.get(f"{_QUEUE}/status", "Get the size and the groups of a queue", Role.READ)
async def get_queue_status(call: ApiCall) -> messages.QueueStatus:
    """Return a queue with its size, its groups and the number of its dead letters."""
    info = await call.log.describe(call.path["queue"])
    return messages.QueueStatus(messages.QueueDocument.of(info.queue), info.size, info.groups, info.dead_letters)


@routes.get(f"{_QUEUE}/partitions", "List the partitions of a queue", Role.READ)
async def list_partitions(call: ApiCall, query: ListPartitionsQuery) -> messages.PartitionList:
    """Return the partitions of a queue, the largest first."""
    return messages.PartitionList(await call.log.partitions(call.path["queue"], query.limit))


@routes.put(
    _QUEUE,
    "Create or change a queue",
    Role.ADMIN,
    body_required=False,
    problems=("conflict", "invalid-name", "invalid-option"),
)
async def configure_queue(call: ApiCall, body: messages.QueueConfiguration) -> messages.QueueDocument:
    """Create a queue, or change the given options of an existing one."""
    queue = await call.log.configure(
        call.path["queue"],
        body.options,
        partitioning=body.partitioning,
        partitions=body.partitions,
        only_new=body.only_new,
    )
    return messages.QueueDocument.of(queue)


@routes.patch(_QUEUE, "Change options of a queue", Role.ADMIN, problems=_OPTION_PROBLEMS)
async def update_queue(call: ApiCall, body: messages.QueueUpdate) -> messages.QueueDocument:
    name = call.path["queue"]
    await call.log.catalog.refresh(name)
    return messages.QueueDocument.of(await call.log.configure(name, body.options))


@routes.post(f"{_QUEUE}/repartition", "Change the partitioning of a queue", Role.ADMIN, problems=_OPTION_PROBLEMS)
async def repartition_queue(call: ApiCall, body: messages.RepartitionRequest) -> messages.QueueDocument:
    """Change the partitioning of a queue for new events."""
    queue = await call.log.repartition(call.path["queue"], body.partitioning, body.partitions)
    return messages.QueueDocument.of(queue)


@routes.delete(_QUEUE, "Delete a queue", Role.ADMIN)
async def delete_queue(call: ApiCall) -> None:
    """Delete a queue with its events, groups and dead letters."""
    name = call.path["queue"]
    if not await call.log.delete_queue(name):
        raise NotFound(f"there is no queue {name!r}")


@routes.post("/v1/upkeep", "Run the background maintenance now", Role.ADMIN, problems=())
async def run_upkeep(call: ApiCall) -> Upkeep:
    """Roll and drop segments and park partitions now, instead of at the next run in the background."""
    return await call.log.upkeep()
