"""A consumer group at the position of a Spark stream: for lag, retention and backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg

from penstock.connector.database import Conninfo
from penstock.connector.log_session import open_log
from penstock.connector.read.offsets import QueueOffsets
from penstock.core.errors import GroupBusy
from penstock.db.statements import Statements
from penstock.log.groups import PartitionPosition

_sql = Statements("penstock.connector.read", "offsets.sql")
_groups = Statements("penstock.log", "groups.sql")


class GroupProgress:
    """Publishes the position of a stream as that of a group. The stream itself continues from its checkpoint."""

    def __init__(self, database: Conninfo, queues: tuple[str, ...], name: str) -> None:
        self._database = database
        self._queues = queues
        self._name = name

    def subscribe(self) -> None:
        """Create the group if it does not exist."""
        asyncio.run(self._subscribe())

    async def _subscribe(self) -> None:
        async with open_log(self._database) as log:
            for name in self._queues:
                group = await log.consumer_groups.subscribe(await log.queue(name), self._name)
                if group.query_id is not None:
                    raise GroupBusy(
                        f"group {self._name!r} of queue {name!r} belongs to the query {group.query_id!r}: choose "
                        "another name for the option 'group'"
                    )

    def find_ids(self, conn: psycopg.Connection[Any], offsets: QueueOffsets) -> dict[int, int]:
        """Return the id of the group by the id of the queue."""
        ids = {}
        for queue_id in offsets.names:
            row = conn.execute(_sql["group"], {"queue": queue_id, "name": self._name}).fetchone()
            if row is not None:
                (ids[queue_id],) = row
        return ids

    def publish(self, conn: psycopg.Connection[Any], offsets: QueueOffsets, next_offsets: Mapping[int, int]) -> None:
        """Move the group forward to these offsets. It never moves back."""
        open_segments = {partition.queue_id: partition.open_segment for partition in offsets.partitions().values()}
        for queue_id, group_id in self.find_ids(conn, offsets).items():
            if queue_id in open_segments:
                with conn.transaction():
                    self._move(conn, queue_id, open_segments[queue_id], group_id, next_offsets)

    def _move(
        self,
        conn: psycopg.Connection[Any],
        queue_id: int,
        open_segment: int,
        group_id: int,
        next_offsets: Mapping[int, int],
    ) -> None:
        params = {"group": group_id, "skew": timedelta()}
        conn.execute(_groups["lock_group"], params)
        conn.execute(_groups["lock_group_cursors"], params)
        self._lock_positions(conn, params)
        rows = conn.execute(_groups.table("group_positions", queue_id, open_segment), params).fetchall()
        positions = [PartitionPosition(*row) for row in rows]
        targets = {
            each.partition_id: max(each.next_offset, next_offsets.get(each.partition_id, 0)) for each in positions
        }
        moved = [each.partition_id for each in positions if targets[each.partition_id] > each.next_offset]
        if moved:
            moves = {"partitions": moved, "offsets": [targets[partition_id] for partition_id in moved]}
            conn.execute(_groups["move_positions"], {**params, **moves})
        unread_epochs = [each.epoch for each in positions if targets[each.partition_id] < each.end_offset]
        newest_epoch = max((each.epoch for each in positions), default=0)
        conn.execute(_groups["set_epoch"], {"group": group_id, "epoch": min(unread_epochs, default=newest_epoch)})
        conn.execute(_groups["record_activity"], params)

    def _lock_positions(self, conn: psycopg.Connection[Any], params: Mapping[str, Any]) -> None:
        """Lock all positions of the group. A position that moves while the statement waits is not locked."""
        while (row := conn.execute(_groups["lock_positions"], params).fetchone()) is not None:
            locked, total = row
            if locked == total:
                return
