"""A group that stands where a stream of Spark's stands: for lag, for retention and for backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg

from penstock.connector.database import Conninfo
from penstock.connector.read.offsets import Places
from penstock.connector.write.staging import opened
from penstock.core.errors import GroupBusy
from penstock.db.statements import Statements

_sql = Statements("penstock.connector.read", "offsets.sql")
_groups = Statements("penstock.log", "groups.sql")


class Standing:
    """Publishes how far a stream has come. Its own checkpoint stays what counts."""

    def __init__(self, database: Conninfo, queues: tuple[str, ...], name: str) -> None:
        self._database = database
        self._queues = queues
        self._name = name

    def subscribe(self) -> None:
        """Make the group where there is none."""
        asyncio.run(self._subscribe())

    async def _subscribe(self) -> None:
        async with opened(self._database) as log:
            for name in self._queues:
                group = await log.group_book.subscribe(await log.queue(name), self._name)
                if group.query_id is not None:
                    raise GroupBusy(
                        f"group {self._name!r} of queue {name!r} belongs to the query {group.query_id!r}: choose "
                        "another name for the option 'group'"
                    )

    def ids(self, conn: psycopg.Connection[Any], places: Places) -> dict[int, int]:
        """The number of the group in each queue."""
        found = {}
        for queue in places.names:
            row = conn.execute(_sql["group"], {"queue": queue, "name": self._name}).fetchone()
            if row is not None:
                found[queue] = row[0]
        return found

    def publish(self, conn: psycopg.Connection[Any], places: Places, offsets: Mapping[int, int]) -> None:
        """Move the group forward to these offsets, never back."""
        segments = {head.queue: head.segment for head in places.heads().values()}
        for queue, group in self.ids(conn, places).items():
            if queue in segments:
                with conn.transaction():
                    self._move(conn, queue, segments[queue], group, offsets)

    def _move(
        self, conn: psycopg.Connection[Any], queue: int, segment: int, group: int, offsets: Mapping[int, int]
    ) -> None:
        held = {"group": group, "skew": timedelta()}
        conn.execute(_groups["lock_group"], held)
        conn.execute(_groups["lock_group_cursors"], held)
        while (row := conn.execute(_groups["lock_positions"], held).fetchone()) is not None and row[0] != row[1]:
            pass  # some were moved while we looked
        lanes = conn.execute(_groups.table("group_lanes", queue, segment), held).fetchall()
        # Of each: name, number, epoch, where the group stands, where the partition ends.
        stands = {number: max(stood, offsets.get(number, 0)) for _, number, _, stood, *_ in lanes}
        moved = [number for _, number, _, stood, *_ in lanes if stands[number] > stood]
        if moved:
            places = {"partitions": moved, "offsets": [stands[number] for number in moved]}
            conn.execute(_groups["move_positions"], {**held, **places})
        unread = [epoch for _, number, epoch, _, end, *_ in lanes if stands[number] < end]
        newest = max((epoch for _, _, epoch, *_ in lanes), default=0)
        conn.execute(_groups["set_epoch"], {"group": group, "epoch": min(unread, default=newest)})
        conn.execute(_groups["saw_group"], held)
