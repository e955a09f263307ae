"""``/v1/groups``: inspect, move, change and delete consumer groups."""

from __future__ import annotations

from msgspec import Struct

from penstock.core.errors import NotFound
from penstock.log.queue_info import GroupInfo
from penstock.log.start_position import parse_start_position
from penstock.protocol import messages
from penstock.server.auth.identity import Role
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Groups", problems=("not-found", "invalid-name"))


class GroupList(Struct, frozen=True):
    groups: list[GroupInfo]


class ListGroupsQuery(Struct, frozen=True):
    """Whose groups to return: those of one queue, or of all queues that the caller may see."""

    queue: str | None = None


@routes.get("/v1/groups", "List groups", Role.READ, Role.CONSUME, checks_queues=True)
async def list_groups(call: ApiCall, query: ListGroupsQuery) -> GroupList:
    """Return all groups, or those of a queue."""
    queue: str | None = query.queue
    if queue is not None:
        call.require_access(queue)
        return GroupList(await call.log.groups(queue))
    can_see_all = call.can_see_all()
    groups = await call.log.groups()
    return GroupList([group for group in groups if can_see_all or call.can_see(group.queue)])


@routes.get("/v1/queues/{queue}/groups", "List the groups of a queue", Role.READ, Role.CONSUME)
async def list_queue_groups(call: ApiCall) -> GroupList:
    return GroupList(await call.log.groups(call.path["queue"]))


@routes.get("/v1/queues/{queue}/groups/{group}/partitions", "List the positions of a group", Role.READ, Role.CONSUME)
async def list_group_positions(call: ApiCall) -> messages.PartitionPositionList:
    positions = await call.log.group_positions(call.path["queue"], call.path["group"])
    return messages.PartitionPositionList(positions)


@routes.post(
    "/v1/queues/{queue}/groups/{group}/seek",
    "Move a group",
    Role.CONSUME,
    problems=("not-found", "invalid-name", "group-busy"),
)
async def seek_group(call: ApiCall, body: messages.SeekRequest) -> messages.SeekResponse:
    """Move a group back to read events again, or forward to skip events."""
    position = parse_start_position(body.to)
    moved = await call.log.seek(call.path["queue"], call.path["group"], position, partition=body.partition)
    return messages.SeekResponse(moved)


@routes.patch("/v1/queues/{queue}/groups/{group}", "Set whether a group counts for the depth of its queue", Role.ADMIN)
async def update_group(call: ApiCall, body: messages.GroupUpdate) -> None:
    await call.log.configure_group(call.path["queue"], call.path["group"], counts=body.counts)


@routes.delete(
    "/v1/queues/{queue}/groups/{group}",
    "Delete a group",
    Role.ADMIN,
    problems=("not-found", "invalid-name", "group-busy"),
)
async def delete_group(call: ApiCall) -> None:
    """Delete a group with its positions."""
    queue, group = call.path["queue"], call.path["group"]
    if not await call.log.delete_group(queue, group):
        raise NotFound(f"queue {queue!r} has no group {group!r}")
