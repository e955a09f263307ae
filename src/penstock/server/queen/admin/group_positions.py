"""The positions of consumer groups in their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.queue_info import GroupInfo
from penstock.server.queen.identifiers import to_utc
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "group_positions.sql")

#: Attempts to read positions while segments are dropped.
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class PartitionLag:
    partition: str
    partition_id: int
    next_offset: int
    end_offset: int
    is_leased: bool
    lease_id: UUID | None
    moved_at: datetime | None
    #: When the first unread event was appended; in a sealed segment, when its last event was.
    oldest_at: datetime | None
    now: datetime

    @property
    def lag(self) -> int:
        """The number of unread events."""
        return max(self.end_offset - self.next_offset, 0)

    @property
    def lag_seconds(self) -> float:
        """How long the first unread event waits."""
        return 0.0 if self.oldest_at is None else max((self.now - self.oldest_at).total_seconds(), 0.0)

    @property
    def worker_id(self) -> str | None:
        """The id of the active lease."""
        return str(self.lease_id) if self.is_leased and self.lease_id is not None else None

    @property
    def consumed_at(self) -> datetime | None:
        """When the group last moved; None if it has read nothing."""
        return to_utc(self.moved_at) if self.moved_at is not None and self.next_offset else None


async def visible_groups(call: ApiCall) -> list[GroupInfo]:
    """Return the groups of the queues that the caller may use."""
    call.require_access(())
    return [group for group in await call.services.log.groups() if call.can_see(group.queue)]


async def groups_in_path(call: ApiCall) -> list[GroupInfo]:
    """Return the group that the path names, once for each of its queues."""
    groups = [group for group in await visible_groups(call) if group.group == call.path["group"]]
    if not groups:
        raise NotFound(f"there is no consumer group {call.path['group']!r}")
    return groups


async def read_positions(log: Log, queue_name: str, group: str) -> Sequence[PartitionLag]:
    """Return the positions of a group in a queue, by partition; empty if the queue was deleted."""
    for attempt in range(_MAX_ATTEMPTS):
        try:
            queue = await (log.catalog.get(queue_name) if attempt == 0 else log.catalog.refresh(queue_name))
        except NotFound:
            return []  # deleted meanwhile
        statement = _sql.table("positions", queue.id, queue.segment)
        try:
            async with log.database.connection() as conn:
                cursor = conn.cursor(row_factory=class_row(PartitionLag))
                await cursor.execute(statement, {"queue": queue.id, "group": group})
                return await cursor.fetchall()
        except psycopg.errors.UndefinedTable:
            continue  # the segment was sealed and dropped meanwhile
    return []
