"""The endpoints that list, show and delete consumer groups."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.log.log import Log
from penstock.server.auth.identity import Role
from penstock.server.queen.admin.group_positions import groups_in_path, read_positions, visible_groups
from penstock.server.queen.endpoint import queen_endpoint
from penstock.server.queen.identifiers import IdKind, encode_id, to_utc
from penstock.server.routing.call import ApiCall

#: A group is lagging when its oldest unread message has waited for this many seconds.
_LAGGING_SECONDS = 300


class QueueGroup(msgspec.Struct, rename="camel"):
    name: str
    topics: list[str]
    queue_name: str
    members: int
    partitions_with_lag: int
    total_lag: int
    max_time_lag: float
    state: str
    subscription_mode: str
    subscription_timestamp: str | None
    subscription_created_at: datetime


class LaggingPartition(msgspec.Struct):
    """A partition in which a group is behind."""

    consumer_group: str
    queue_name: str
    partition_name: str
    partition_id: str
    worker_id: str | None
    offset_lag: int
    time_lag_seconds: float
    lag_hours: float
    oldest_unconsumed_at: datetime
    last_consumed_at: datetime | None


class LaggingParameters(msgspec.Struct, rename="camel"):
    """The lag from which a partition is listed."""

    min_lag_seconds: float = 3600


class GroupPartition(msgspec.Struct, rename="camel"):
    """The position of a group in a partition."""

    partition: str
    worker_id: str | None
    last_consumed_at: datetime | None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: float
    lease_active: bool


class GroupPartitions(msgspec.Struct):
    """The positions of a group in a queue."""

    partitions: list[GroupPartition]


class DeleteGroupParameters(msgspec.Struct, rename="camel"):
    """Whether to delete the start position of the group too. It is always deleted."""

    delete_metadata: bool = True


class DeletedGroup(msgspec.Struct, rename="camel"):
    """The result of deleting a group in all its queues."""

    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    success: bool = True


class DeletedQueueGroup(DeletedGroup, rename="camel"):
    """The result of deleting a group in one queue."""

    queue_name: str = ""


class RefreshedStatistics(msgspec.Struct):
    """Statistics need no refresh: every request computes them."""

    success: bool = True


async def list_groups(call: ApiCall) -> list[QueueGroup]:
    groups: list[QueueGroup] = []
    for group in await visible_groups(call):
        positions = await read_positions(call.services.log, group.queue, group.group)
        max_lag = max((position.lag_seconds for position in positions), default=0.0)
        mode = _subscription_mode(group.subscribed_from)
        groups.append(
            QueueGroup(
                group.group,
                [group.queue],
                group.queue,
                len({position.lease_id for position in positions if position.is_leased}),
                sum(1 for position in positions if position.lag),
                sum(position.lag for position in positions),
                round(max_lag, 3),
                "Lagging" if max_lag > _LAGGING_SECONDS else "Stable",
                mode,
                group.subscribed_from if mode == "timestamp" else None,
                to_utc(group.created_at),
            )
        )
    return groups


async def list_lagging_partitions(call: ApiCall) -> list[LaggingPartition]:
    """List the partitions in which a group lags by at least ``minLagSeconds``."""
    query: LaggingParameters = call.query
    return [
        LaggingPartition(
            group.group,
            group.queue,
            position.partition,
            encode_id(IdKind.PARTITION, position.partition_id),
            position.worker_id,
            position.lag,
            round(position.lag_seconds, 3),
            round(position.lag_seconds / 3600, 3),
            to_utc(position.oldest_at),
            position.consumed_at,
        )
        for group in await visible_groups(call)
        for position in await read_positions(call.services.log, group.queue, group.group)
        if position.oldest_at is not None and position.lag_seconds >= query.min_lag_seconds
    ]


async def get_group(call: ApiCall) -> dict[str, GroupPartitions]:
    """Show the positions of a group, by queue and partition."""
    described: dict[str, GroupPartitions] = {}
    for group in await groups_in_path(call):
        positions = await read_positions(call.services.log, group.queue, group.group)
        described[group.queue] = GroupPartitions(
            [
                GroupPartition(
                    position.partition,
                    position.worker_id,
                    position.consumed_at,
                    position.next_offset,
                    position.lag,
                    round(position.lag_seconds, 3),
                    position.is_leased,
                )
                for position in positions
            ]
        )
    return described


async def delete_group(call: ApiCall) -> DeletedGroup:
    name = call.path["group"]
    partitions = sum([await _delete(call.services.log, group.queue, name) for group in await groups_in_path(call)])
    return DeletedGroup(name, partitions, call.query.delete_metadata)


async def delete_queue_group(call: ApiCall) -> DeletedQueueGroup:
    name, queue = call.path["group"], call.path["queue"]
    partitions = await _delete(call.services.log, queue, name)
    return DeletedQueueGroup(name, partitions, call.query.delete_metadata, queue_name=queue)


async def refresh_statistics(_call: ApiCall) -> RefreshedStatistics:
    """Do nothing: every request computes the statistics."""
    return RefreshedStatistics()


async def _delete(log: Log, queue: str, group: str) -> int:
    positions = await read_positions(log, queue, group)
    return len(positions) if await log.delete_group(queue, group) else 0


def _subscription_mode(subscribed_from: str) -> str:
    return {"beginning": "all", "end": "new", "now": "new"}.get(subscribed_from, "timestamp")


_READERS = {Role.READ, Role.CONSUME}
_GROUPS = "/api/v1/consumer-groups"
_GROUP = f"{_GROUPS}/{{group}}"

ENDPOINTS = (
    queen_endpoint(
        "GET", _GROUPS, list_groups, "List consumer groups", _READERS, checks_queues=True, response=list[QueueGroup]
    ),
    queen_endpoint(
        "GET",
        f"{_GROUPS}/lagging",
        list_lagging_partitions,
        "List partitions in which groups lag",
        _READERS,
        checks_queues=True,
        query=LaggingParameters,
        response=list[LaggingPartition],
    ),
    queen_endpoint(
        "GET",
        _GROUP,
        get_group,
        "Show the positions of a group",
        _READERS,
        checks_queues=True,
        response=dict[str, GroupPartitions],
        problems=("not-found",),
    ),
    queen_endpoint(
        "DELETE",
        _GROUP,
        delete_group,
        "Delete a group",
        {Role.ADMIN},
        checks_queues=True,
        query=DeleteGroupParameters,
        response=DeletedGroup,
        problems=("not-found", "group-busy"),
    ),
    queen_endpoint(
        "DELETE",
        f"{_GROUP}/queues/{{queue}}",
        delete_queue_group,
        "Delete a group in a queue",
        {Role.ADMIN},
        query=DeleteGroupParameters,
        response=DeletedQueueGroup,
        problems=("not-found", "group-busy", "invalid-name"),
    ),
    queen_endpoint(
        "POST",
        "/api/v1/stats/refresh",
        refresh_statistics,
        "Refresh statistics",
        _READERS,
        response=RefreshedStatistics,
    ),
)
