"""The endpoints that list, show and delete consumer groups."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.log.log import Log
from penstock.server.auth.identity import Role
from penstock.server.queen.admin.group_positions import groups_in_path, read_positions, visible_groups
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import IdKind, encode_id
from penstock.server.routing.call import ApiCall

routes = queen_routes("not-found", "group-busy")

_GROUPS = "/api/v1/consumer-groups"
_GROUP = f"{_GROUPS}/{{group}}"

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
    partition: str
    worker_id: str | None
    last_consumed_at: datetime | None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: float
    lease_active: bool


class GroupPartitions(msgspec.Struct):
    partitions: list[GroupPartition]


class DeleteGroupParameters(msgspec.Struct, rename="camel"):
    """Whether to delete the start position of the group too. It is always deleted."""

    delete_metadata: bool = True


class DeletedGroup(msgspec.Struct, rename="camel"):
    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    success: bool = True


class DeletedQueueGroup(DeletedGroup, rename="camel"):
    queue_name: str = ""


class RefreshedStatistics(msgspec.Struct):
    success: bool = True


@routes.get(_GROUPS, "List consumer groups", Role.READ, Role.CONSUME, checks_queues=True, problems=())
async def list_groups(call: ApiCall) -> list[QueueGroup]:
    groups: list[QueueGroup] = []
    for group in await visible_groups(call):
        positions = await read_positions(call.log, group.queue, group.group)
        max_lag = max((position.time_lag_seconds for position in positions), default=0.0)
        mode = _subscription_mode(group.subscribed_from)
        groups.append(
            QueueGroup(
                group.group,
                [group.queue],
                group.queue,
                len({position.worker_id for position in positions if position.lease_active}),
                sum(1 for position in positions if position.offset_lag),
                sum(position.offset_lag for position in positions),
                max_lag,
                "Lagging" if max_lag > _LAGGING_SECONDS else "Stable",
                mode,
                group.subscribed_from if mode == "timestamp" else None,
                group.created_at,
            )
        )
    return groups


@routes.get(
    f"{_GROUPS}/lagging",
    "List partitions in which groups lag",
    Role.READ,
    Role.CONSUME,
    checks_queues=True,
    problems=(),
)
async def list_lagging_partitions(call: ApiCall, query: LaggingParameters) -> list[LaggingPartition]:
    """List the partitions in which a group lags by at least ``minLagSeconds``."""
    return [
        LaggingPartition(
            group.group,
            group.queue,
            position.partition,
            encode_id(IdKind.PARTITION, position.partition_id),
            position.worker_id,
            position.offset_lag,
            position.time_lag_seconds,
            round(position.time_lag_seconds / 3600, 3),
            position.oldest_unconsumed_at,
            position.last_consumed_at,
        )
        for group in await visible_groups(call)
        for position in await read_positions(call.log, group.queue, group.group)
        if position.oldest_unconsumed_at is not None and position.time_lag_seconds >= query.min_lag_seconds
    ]


@routes.get(
    _GROUP, "Show the positions of a group", Role.READ, Role.CONSUME, checks_queues=True, problems=("not-found",)
)
async def get_group(call: ApiCall) -> dict[str, GroupPartitions]:
    described: dict[str, GroupPartitions] = {}
    for group in await groups_in_path(call):
        positions = await read_positions(call.log, group.queue, group.group)
        described[group.queue] = GroupPartitions(msgspec.convert(positions, list[GroupPartition], from_attributes=True))
    return described


@routes.delete(_GROUP, "Delete a group", Role.ADMIN, checks_queues=True)
async def delete_group(call: ApiCall, query: DeleteGroupParameters) -> DeletedGroup:
    name = call.path["group"]
    partitions = sum([await _delete(call.log, group.queue, name) for group in await groups_in_path(call)])
    return DeletedGroup(name, partitions, query.delete_metadata)


@routes.delete(
    f"{_GROUP}/queues/{{queue}}",
    "Delete a group in a queue",
    Role.ADMIN,
    problems=("not-found", "group-busy", "invalid-name"),
)
async def delete_queue_group(call: ApiCall, query: DeleteGroupParameters) -> DeletedQueueGroup:
    name, queue = call.path["group"], call.path["queue"]
    partitions = await _delete(call.log, queue, name)
    return DeletedQueueGroup(name, partitions, query.delete_metadata, queue_name=queue)


@routes.post("/api/v1/stats/refresh", "Refresh statistics", Role.READ, Role.CONSUME, problems=())
async def refresh_statistics(_call: ApiCall) -> RefreshedStatistics:
    """Do nothing: every request computes the statistics."""
    return RefreshedStatistics()


async def _delete(log: Log, queue: str, group: str) -> int:
    positions = await read_positions(log, queue, group)
    return len(positions) if await log.delete_group(queue, group) else 0


def _subscription_mode(subscribed_from: str) -> str:
    return {"beginning": "all", "end": "new", "now": "new"}.get(subscribed_from, "timestamp")
