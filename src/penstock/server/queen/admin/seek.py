"""The endpoints that move consumer groups."""

from __future__ import annotations

import msgspec

from penstock.db.statements import Statements
from penstock.log.start_position import StartPosition
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.admin.group_positions import groups_in_path, read_positions
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import encode_message_id, parse_timestamp
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "seek.sql")
routes = queen_routes("not-found", "group-busy", "invalid-name")

_GROUP = "/api/v1/consumer-groups/{group}"


class Subscription(msgspec.Struct, rename="camel"):
    """The start time to record for a group."""

    subscription_timestamp: str


class UpdatedSubscription(msgspec.Struct, rename="camel"):
    """The recorded start time and the number of queues in which it changed."""

    consumer_group: str
    new_timestamp: str
    rows_updated: int
    success: bool = True


class GroupSeek(msgspec.Struct, rename="camel"):
    """The target position of a group: a time or the end."""

    timestamp: str | None = None
    to_end: bool | None = None


class GroupSeekResult(msgspec.Struct, rename="camel"):
    consumer_group: str
    queue_name: str
    seek_to_end: bool
    target_timestamp: str | None
    partitions_updated: int
    success: bool = True


class PartitionSeekResult(msgspec.Struct, rename="camel"):
    """The new position of a group in a partition: after the message ``cursor_moved_to``."""

    consumer_group: str
    queue_name: str
    partition: str
    updated: bool
    cursor_moved_to: str | None
    success: bool = True


@routes.post(
    f"{_GROUP}/subscription",
    "Record the start time of a group",
    Role.CONSUME,
    checks_queues=True,
    problems=("not-found",),
)
async def set_subscription(call: ApiCall, body: Subscription) -> UpdatedSubscription:
    """Record the start time of a group. This does not move the group; seek does."""
    time = parse_timestamp(body.subscription_timestamp, "subscriptionTimestamp must be an ISO timestamp")
    ids: list[int] = []
    for group in await groups_in_path(call):
        stored = await call.log.consumer_groups.get(await call.log.catalog.get(group.queue), group.group)
        if stored is not None:
            ids.append(stored.id)
    async with call.log.database.connection() as conn:
        await conn.execute(_sql["set_subscription"], {"start": time.isoformat(), "groups": ids})
    return UpdatedSubscription(call.path["group"], body.subscription_timestamp, len(ids))


@routes.post(f"{_GROUP}/queues/{{queue}}/seek", "Move a group", Role.CONSUME, body_required=False)
async def seek_group(call: ApiCall, body: GroupSeek) -> GroupSeekResult:
    """Move a group in a queue to a time or to the end."""
    target: StartPosition = "end"
    if not body.to_end:
        if not body.timestamp:
            raise Problem("invalid-request", "Must specify either 'toEnd': true or 'timestamp'")
        target = parse_timestamp(body.timestamp, "timestamp must be an ISO timestamp")
    moved = await call.log.seek(call.path["queue"], call.path["group"], target)
    timestamp = None if body.to_end else body.timestamp
    return GroupSeekResult(call.path["group"], call.path["queue"], bool(body.to_end), timestamp, moved)


@routes.post(
    f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek", "Move a group to the end of a partition", Role.CONSUME
)
async def seek_partition(call: ApiCall) -> PartitionSeekResult:
    queue, group, partition = call.path["queue"], call.path["group"], call.path["partition"]
    moved = await call.log.seek(queue, group, "end", partition=partition)
    last = None
    for position in await read_positions(call.log, queue, group):
        if position.partition == partition and position.total_consumed:
            last = encode_message_id(position.partition_id, position.total_consumed - 1)
    return PartitionSeekResult(group, queue, partition, moved > 0, last)
