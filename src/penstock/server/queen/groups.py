"""Consumer groups: how far they are, and moving them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.log.groups import Place
from penstock.log.log import GroupInfo, Log
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen.identifiers import Kind, message_id, moment, pack, read_moment
from penstock.server.queen.queues import TAG

_sql = Statements("penstock.server.queen", "groups.sql")

#: A group is late when its oldest unread message has waited for so many seconds.
_LATE_SECONDS = 300


class GroupState(msgspec.Struct, rename="camel"):
    """A group of a queue."""

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


class Lagging(msgspec.Struct):
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


class LaggingQuery(msgspec.Struct, rename="camel"):
    """How far behind."""

    min_lag_seconds: float = 3600


class GroupPartition(msgspec.Struct, rename="camel"):
    """Where a group stands in a partition."""

    partition: str
    worker_id: str | None
    last_consumed_at: datetime | None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: float
    lease_active: bool


class GroupPartitions(msgspec.Struct):
    """Where a group stands in a queue."""

    partitions: list[GroupPartition]


class DeleteQuery(msgspec.Struct, rename="camel"):
    """Whether where the group started is forgotten too; it always is."""

    delete_metadata: bool = True


class GroupDeleted(msgspec.Struct, rename="camel"):
    """What was forgotten."""

    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    success: bool = True


class QueueGroupDeleted(GroupDeleted, rename="camel"):
    """The same for one queue."""

    queue_name: str = ""


class Subscription(msgspec.Struct, rename="camel"):
    """From when on a group is said to read."""

    subscription_timestamp: str


class Subscribed(msgspec.Struct, rename="camel"):
    """In how many queues that was noted."""

    consumer_group: str
    new_timestamp: str
    rows_updated: int
    success: bool = True


class Seek(msgspec.Struct, rename="camel"):
    """Where a group is to go on."""

    timestamp: str | None = None
    to_end: bool | None = None


class Sought(msgspec.Struct, rename="camel"):
    """Where a group goes on now."""

    consumer_group: str
    queue_name: str
    seek_to_end: bool
    target_timestamp: str | None
    partitions_updated: int
    success: bool = True


class PartitionSought(msgspec.Struct, rename="camel"):
    """Where a group goes on in a partition: after this message, if there is one."""

    consumer_group: str
    queue_name: str
    partition: str
    updated: bool
    cursor_moved_to: str | None
    success: bool = True


class Refreshed(msgspec.Struct):
    """There is nothing to refresh: all figures are taken when they are asked for."""

    success: bool = True


@dataclass(frozen=True, slots=True)
class _Standing:
    partition: str
    partition_id: int
    next_offset: int
    end_offset: int
    leased: bool
    lease_id: UUID | None
    moved_at: datetime | None
    oldest: datetime | None
    now: datetime

    @property
    def behind(self) -> int:
        return max(self.end_offset - self.next_offset, 0)

    @property
    def seconds(self) -> float:
        return 0.0 if self.oldest is None else max((self.now - self.oldest).total_seconds(), 0.0)

    @property
    def worker(self) -> str | None:
        return str(self.lease_id) if self.leased and self.lease_id is not None else None

    @property
    def consumed_at(self) -> datetime | None:
        return moment(self.moved_at) if self.moved_at is not None and self.next_offset else None


async def list_groups(call: Call) -> list[GroupState]:
    """List every group of every queue."""
    log = call.services.log
    states: list[GroupState] = []
    for group in await _groups(call):
        lanes = await _standing(log, group.queue, group.group)
        waits = max((lane.seconds for lane in lanes), default=0.0)
        states.append(
            GroupState(
                group.group,
                [group.queue],
                group.queue,
                len({lane.lease_id for lane in lanes if lane.leased}),
                sum(1 for lane in lanes if lane.behind),
                sum(lane.behind for lane in lanes),
                round(waits, 3),
                "Lagging" if waits > _LATE_SECONDS else "Stable",
                _mode(group.subscribed_from),
                group.subscribed_from if _mode(group.subscribed_from) == "timestamp" else None,
                moment(group.created_at),
            )
        )
    return states


async def lagging(call: Call) -> list[Lagging]:
    """List the partitions in which groups are behind for long."""
    query: LaggingQuery = call.query
    found: list[Lagging] = []
    for group in await _groups(call):
        for lane in await _standing(call.services.log, group.queue, group.group):
            if lane.oldest is not None and lane.seconds >= query.min_lag_seconds:
                found.append(
                    Lagging(
                        group.group,
                        group.queue,
                        lane.partition,
                        pack(Kind.PARTITION, lane.partition_id),
                        lane.worker,
                        lane.behind,
                        round(lane.seconds, 3),
                        round(lane.seconds / 3600, 3),
                        moment(lane.oldest),
                        lane.consumed_at,
                    )
                )
    return found


async def describe(call: Call) -> dict[str, GroupPartitions]:
    """Where a group stands, by queue and partition."""
    groups = await _named(call)
    answer: dict[str, GroupPartitions] = {}
    for group in groups:
        lanes = await _standing(call.services.log, group.queue, group.group)
        answer[group.queue] = GroupPartitions(
            [
                GroupPartition(
                    lane.partition,
                    lane.worker,
                    lane.consumed_at,
                    lane.next_offset,
                    lane.behind,
                    round(lane.seconds, 3),
                    lane.leased,
                )
                for lane in lanes
            ]
        )
    return answer


async def delete(call: Call) -> GroupDeleted:
    """Forget a group in all its queues."""
    name = call.path["group"]
    partitions = sum([await _delete(call.services.log, group.queue, name) for group in await _named(call)])
    return GroupDeleted(name, partitions, call.query.delete_metadata)


async def delete_in_queue(call: Call) -> QueueGroupDeleted:
    """Forget a group in one queue."""
    name, queue = call.path["group"], call.path["queue"]
    partitions = await _delete(call.services.log, queue, name)
    return QueueGroupDeleted(name, partitions, call.query.delete_metadata, queue_name=queue)


async def subscribe(call: Call) -> Subscribed:
    """Note from when on a group is to have subscribed. It moves nothing: that is what seek is for."""
    body: Subscription = call.body
    time = _time(body.subscription_timestamp, "subscriptionTimestamp")
    log = call.services.log
    ids = []
    for group in await _named(call):
        found = await log.group_book.get(await log.catalog.get(group.queue), group.group)
        ids += [] if found is None else [found.id]
    async with log.database.connection() as conn:
        await conn.execute(_sql["set_subscription"], {"told": moment(time).isoformat(), "groups": ids})
    return Subscribed(call.path["group"], body.subscription_timestamp, len(ids))


async def seek(call: Call) -> Sought:
    """Move a group in a queue."""
    body: Seek = call.body
    place: Place = "end"
    if not body.to_end:
        if not body.timestamp:
            raise Problem("invalid-request", "Must specify either 'toEnd': true or 'timestamp'")
        place = _time(body.timestamp, "timestamp")
    moved = await call.services.log.seek(call.path["queue"], call.path["group"], place)
    told = None if body.to_end else body.timestamp
    return Sought(call.path["group"], call.path["queue"], bool(body.to_end), told, moved)


async def seek_partition(call: Call) -> PartitionSought:
    """Move a group to the end of a partition."""
    queue, group, partition = call.path["queue"], call.path["group"], call.path["partition"]
    log = call.services.log
    moved = await log.seek(queue, group, "end", partition=partition)
    lanes = [lane for lane in await _standing(log, queue, group) if lane.partition == partition]
    last = message_id(lanes[-1].partition_id, lanes[-1].next_offset - 1) if lanes and lanes[-1].next_offset else None
    return PartitionSought(group, queue, partition, moved > 0, last)


async def refresh(_call: Call) -> Refreshed:
    """Say that all figures are fresh."""
    return Refreshed()


async def _groups(call: Call) -> list[GroupInfo]:
    call.permit(())
    return [group for group in await call.services.log.groups() if call.sees(group.queue)]


async def _named(call: Call) -> list[GroupInfo]:
    """The group that the path names, in each of its queues."""
    found = [group for group in await _groups(call) if group.group == call.path["group"]]
    if not found:
        raise NotFound(f"there is no consumer group {call.path['group']!r}")
    return found


async def _delete(log: Log, queue: str, group: str) -> int:
    lanes = await _standing(log, queue, group)
    return len(lanes) if await log.delete_group(queue, group) else 0


async def _standing(log: Log, queue: str, group: str) -> Sequence[_Standing]:
    for look in range(3):
        try:
            known = await (log.catalog.get(queue) if look == 0 else log.catalog.refresh(queue))
        except NotFound:
            return []  # deleted meanwhile
        statement = _sql.table("standing", known.id, known.segment)
        try:
            async with log.database.connection() as conn:
                rows: list[Any] = await (await conn.execute(statement, {"queue": known.id, "group": group})).fetchall()
            return [_Standing(*row) for row in rows]
        except psycopg.errors.UndefinedTable:
            continue  # a segment was sealed and dropped meanwhile
    return []


def _mode(subscribed_from: str) -> str:
    return {"beginning": "all", "end": "new", "now": "new"}.get(subscribed_from, "timestamp")


def _time(text: str, name: str) -> datetime:
    try:
        return read_moment(text)
    except ValueError:
        raise Problem("invalid-request", f"{name} must be an ISO timestamp") from None


_READERS = frozenset({Role.READ, Role.CONSUME})
_CONSUMER = frozenset({Role.CONSUME})
_ADMIN = frozenset({Role.ADMIN})
_GROUP = "/api/v1/consumer-groups/{group}"


def _endpoint(method: str, path: str, handler: Any, summary: str, roles: frozenset[Role], **more: Any) -> Endpoint:
    return Endpoint(method, path, handler, summary, TAG, roles=roles, plane=True, **more)


ENDPOINTS = (
    _endpoint(
        "GET", "/api/v1/consumer-groups", list_groups, "List groups", _READERS, asks=True, answer=list[GroupState]
    ),
    _endpoint(
        "GET",
        "/api/v1/consumer-groups/lagging",
        lagging,
        "List partitions in which groups are far behind",
        _READERS,
        asks=True,
        query=LaggingQuery,
        answer=list[Lagging],
    ),
    _endpoint(
        "GET",
        _GROUP,
        describe,
        "Where a group stands",
        _READERS,
        asks=True,
        answer=dict[str, GroupPartitions],
        problems=("not-found",),
    ),
    _endpoint(
        "DELETE",
        _GROUP,
        delete,
        "Forget a group",
        _ADMIN,
        asks=True,
        query=DeleteQuery,
        answer=GroupDeleted,
        problems=("not-found", "group-busy"),
    ),
    _endpoint(
        "DELETE",
        f"{_GROUP}/queues/{{queue}}",
        delete_in_queue,
        "Forget a group in a queue",
        _ADMIN,
        query=DeleteQuery,
        answer=QueueGroupDeleted,
        problems=("not-found", "group-busy", "invalid-name"),
    ),
    _endpoint(
        "POST",
        f"{_GROUP}/subscription",
        subscribe,
        "Note when a group subscribed",
        _CONSUMER,
        asks=True,
        body=Subscription,
        answer=Subscribed,
        problems=("not-found",),
    ),
    _endpoint(
        "POST",
        f"{_GROUP}/queues/{{queue}}/seek",
        seek,
        "Move a group",
        _CONSUMER,
        body=Seek,
        body_required=False,
        answer=Sought,
        problems=("not-found", "group-busy", "invalid-name"),
    ),
    _endpoint(
        "POST",
        f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek",
        seek_partition,
        "Move a group to the end of a partition",
        _CONSUMER,
        answer=PartitionSought,
        problems=("not-found", "group-busy", "invalid-name"),
    ),
    # Under the name that they are refreshed by elsewhere.
    _endpoint("POST", "/api/v1/stats/refresh", refresh, "Refresh figures", _READERS, answer=Refreshed),
)
