"""The positions of consumer groups in their partitions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import psycopg

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.queue_info import GroupInfo
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "group_positions.sql")

#: Attempts to read positions while segments are dropped.
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The position of a group in a partition. The fields are named as in the protocol."""

    partition: str
    partition_id: int
    #: The next offset.
    total_consumed: int
    lease_active: bool
    #: The id of the active lease.
    worker_id: str | None
    last_consumed_at: datetime | None
    offset_lag: int
    oldest_unconsumed_at: datetime | None
    time_lag_seconds: float


async def visible_groups(call: ApiCall) -> list[GroupInfo]:
    """Return the groups of the queues that the caller may use."""
    call.require_access(())
    return [group for group in await call.log.groups() if call.can_see(group.queue)]


async def groups_in_path(call: ApiCall) -> list[GroupInfo]:
    """Return the group that the path names, once for each of its queues."""
    groups = [group for group in await visible_groups(call) if group.group == call.path["group"]]
    if not groups:
        raise NotFound(f"there is no consumer group {call.path['group']!r}")
    return groups


async def read_positions(log: Log, queue_name: str, group: str) -> list[PartitionLag]:
    """Return the positions of a group in a queue, by partition; empty if the queue was deleted."""
    for attempt in range(_MAX_ATTEMPTS):
        try:
            queue = await (log.catalog.get(queue_name) if attempt == 0 else log.catalog.refresh(queue_name))
        except NotFound:
            return []  # deleted meanwhile
        statement = _sql.table("positions", queue.id, queue.segment)
        try:
            return await log.database.fetch(PartitionLag, statement, {"queue": queue.id, "group": group})
        except psycopg.errors.UndefinedTable:
            continue  # the segment was sealed and dropped meanwhile
    return []
