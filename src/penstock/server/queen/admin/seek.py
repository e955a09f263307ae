"""The endpoints that move consumer groups."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.db.statements import Statements
from penstock.log.start_position import StartPosition
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.admin.group_positions import groups_in_path, read_positions
from penstock.server.queen.endpoint import queen_endpoint
from penstock.server.queen.identifiers import encode_message_id, parse_timestamp, to_utc
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "seek.sql")


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
    """The new position of a group in a queue."""

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


async def set_subscription(call: ApiCall) -> UpdatedSubscription:
    """Record the start time of a group. This does not move the group; seek does."""
    body: Subscription = call.body
    time = _parse_time(body.subscription_timestamp, "subscriptionTimestamp")
    log = call.services.log
    ids: list[int] = []
    for group in await groups_in_path(call):
        stored = await log.consumer_groups.get(await log.catalog.get(group.queue), group.group)
        if stored is not None:
            ids.append(stored.id)
    async with log.database.connection() as conn:
        await conn.execute(_sql["set_subscription"], {"start": to_utc(time).isoformat(), "groups": ids})
    return UpdatedSubscription(call.path["group"], body.subscription_timestamp, len(ids))


async def seek_group(call: ApiCall) -> GroupSeekResult:
    """Move a group in a queue to a time or to the end."""
    body: GroupSeek = call.body
    target: StartPosition = "end"
    if not body.to_end:
        if not body.timestamp:
            raise Problem("invalid-request", "Must specify either 'toEnd': true or 'timestamp'")
        target = _parse_time(body.timestamp, "timestamp")
    moved = await call.services.log.seek(call.path["queue"], call.path["group"], target)
    timestamp = None if body.to_end else body.timestamp
    return GroupSeekResult(call.path["group"], call.path["queue"], bool(body.to_end), timestamp, moved)


async def seek_partition(call: ApiCall) -> PartitionSeekResult:
    queue, group, partition = call.path["queue"], call.path["group"], call.path["partition"]
    log = call.services.log
    moved = await log.seek(queue, group, "end", partition=partition)
    last = None
    for position in await read_positions(log, queue, group):
        if position.partition == partition:
            has_messages = position.next_offset > 0
            last = encode_message_id(position.partition_id, position.next_offset - 1) if has_messages else None
    return PartitionSeekResult(group, queue, partition, moved > 0, last)


def _parse_time(text: str, name: str) -> datetime:
    try:
        return parse_timestamp(text)
    except ValueError:
        raise Problem("invalid-request", f"{name} must be an ISO timestamp") from None


_GROUP = "/api/v1/consumer-groups/{group}"

ENDPOINTS = (
    queen_endpoint(
        "POST",
        f"{_GROUP}/subscription",
        set_subscription,
        "Record the start time of a group",
        {Role.CONSUME},
        checks_queues=True,
        body=Subscription,
        response=UpdatedSubscription,
        problems=("not-found",),
    ),
    queen_endpoint(
        "POST",
        f"{_GROUP}/queues/{{queue}}/seek",
        seek_group,
        "Move a group",
        {Role.CONSUME},
        body=GroupSeek,
        body_required=False,
        response=GroupSeekResult,
        problems=("not-found", "group-busy", "invalid-name"),
    ),
    queen_endpoint(
        "POST",
        f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek",
        seek_partition,
        "Move a group to the end of a partition",
        {Role.CONSUME},
        response=PartitionSeekResult,
        problems=("not-found", "group-busy", "invalid-name"),
    ),
)
