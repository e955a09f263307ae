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
_GROUP = "/v1/queues/{queue}/groups/{group}"
_MOVE_PROBLEMS = ("not-found", "invalid-name", "group-busy")


class GroupList(Struct, frozen=True):
    groups: list[GroupInfo]


class ListGroupsQuery(Struct, frozen=True):
    """Whose groups to return: those of one queue, or of all queues that the caller may see."""

    queue: str | None = None


@routes.get("/v1/groups", "List groups", Role.READ, Role.CONSUME, checks_queues=True)
async def list_groups(call: ApiCall, query: ListGroupsQuery) -> GroupList:
    """Return all groups, or those of a queue."""
    if query.queue is not None:
        call.require_access(query.queue)
        return GroupList(await call.log.groups(query.queue))
    can_see_all = call.can_see_all()
    groups = await call.log.groups()
    return GroupList([group for group in groups if can_see_all or call.can_see(group.queue)])


@routes.get("/v1/queues/{queue}/groups", "List the groups of a queue", Role.READ, Role.CONSUME)
async def list_queue_groups(call: ApiCall) -> GroupList:
    return GroupList(await call.log.groups(call.path["queue"]))


@routes.get(f"{_GROUP}/partitions", "List the positions of a group", Role.READ, Role.CONSUME)
async def list_group_positions(call: ApiCall) -> messages.PartitionPositionList:
    positions = await call.log.group_positions(call.path["queue"], call.path["group"])
    return messages.PartitionPositionList(positions)


@routes.post(f"{_GROUP}/seek", "Move a group", Role.CONSUME, problems=_MOVE_PROBLEMS)
async def seek_group(call: ApiCall, body: messages.SeekRequest) -> messages.SeekResponse:
    """Move a group back to read events again, or forward to skip events."""
    position = parse_start_position(body.to)
    moved = await call.log.seek(call.path["queue"], call.path["group"], position, partition=body.partition)
    return messages.SeekResponse(moved)


@routes.patch(_GROUP, "Set whether a group counts for the depth of its queue", Role.ADMIN)
async def update_group(call: ApiCall, body: messages.GroupUpdate) -> None:
    await call.log.configure_group(call.path["queue"], call.path["group"], counts=body.counts)


@routes.delete(_GROUP, "Delete a group", Role.ADMIN, problems=_MOVE_PROBLEMS)
async def delete_group(call: ApiCall) -> None:
    """Delete a group with its positions."""
    queue, group = call.path["queue"], call.path["group"]
    if not await call.log.delete_group(queue, group):
        raise NotFound(f"queue {queue!r} has no group {group!r}")
