"""Consumer groups over HTTP: where each stands, and moving it."""

from __future__ import annotations

from msgspec import Struct

from penstock.core.errors import NotFound
from penstock.log.groups import check_place
from penstock.log.log import GroupInfo
from penstock.protocol import messages
from penstock.server.http.endpoint import Call, Endpoint, Role

_READ = frozenset({Role.READ, Role.CONSUME})
#: A consumer may go back to read again: that is a part of consuming.
_CONSUME = frozenset({Role.CONSUME})
_ADMIN = frozenset({Role.ADMIN})

_TAG = "Groups"


class Groups(Struct, frozen=True):
    """Groups, and how far each is behind."""

    groups: list[GroupInfo]


class GroupsQuery(Struct, frozen=True):
    """Whose groups: of one queue, or of all that the caller may see."""

    queue: str | None = None


async def groups(call: Call) -> Groups:
    """Every group, or those of a queue."""
    only: str | None = call.query.queue
    if only is not None:
        call.permit(only)
        return Groups(await call.services.log.groups(only))
    everything = call.sees_all()
    return Groups([each for each in await call.services.log.groups() if everything or call.sees(each.queue)])


async def groups_of_queue(call: Call) -> Groups:
    """The groups of a queue."""
    return Groups(await call.services.log.groups(call.path["queue"]))


async def lanes(call: Call) -> messages.GroupLanes:
    """Where a group stands in each partition."""
    return messages.GroupLanes(await call.services.log.group_lanes(call.path["queue"], call.path["group"]))


async def seek(call: Call) -> messages.Moved:
    """Move a group."""
    asked: messages.Seek = call.body
    place = check_place(asked.to)
    moved = await call.services.log.seek(call.path["queue"], call.path["group"], place, partition=asked.partition)
    return messages.Moved(moved)


async def change(call: Call) -> None:
    """Say whether a group counts for the queue's depth."""
    await call.services.log.configure_group(call.path["queue"], call.path["group"], counts=call.body.counts)


async def delete(call: Call) -> None:
    """Forget a group and where it stands."""
    queue, group = call.path["queue"], call.path["group"]
    if not await call.services.log.delete_group(queue, group):
        raise NotFound(f"queue {queue!r} has no group {group!r}")


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/groups",
        groups,
        "List groups",
        _TAG,
        _READ,
        asks=True,
        query=GroupsQuery,
        answer=Groups,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/groups",
        groups_of_queue,
        "The groups of a queue",
        _TAG,
        _READ,
        answer=Groups,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/groups/{group}/partitions",
        lanes,
        "Where a group stands in each partition",
        _TAG,
        _READ,
        answer=messages.GroupLanes,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/groups/{group}/seek",
        seek,
        "Move a group, back to read again or forward to skip",
        _TAG,
        _CONSUME,
        body=messages.Seek,
        answer=messages.Moved,
        problems=("not-found", "invalid-name", "group-busy"),
    ),
    Endpoint(
        "PATCH",
        "/v1/queues/{queue}/groups/{group}",
        change,
        "Whether a group counts for the depth of its queue",
        _TAG,
        _ADMIN,
        body=messages.GroupChange,
        problems=("not-found", "invalid-name"),
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{queue}/groups/{group}",
        delete,
        "Forget a group and where it stands",
        _TAG,
        _ADMIN,
        problems=("not-found", "invalid-name", "group-busy"),
    ),
)
