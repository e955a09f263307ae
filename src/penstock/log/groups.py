"""Consumer groups: where each stands, and moving it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.core.errors import GroupBusy, InvalidRequest, NotFound, shown
from penstock.core.names import check_name
from penstock.db.retry import patiently
from penstock.db.statements import Statements
from penstock.log.catalog import FRESH_SECONDS

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue

_sql = Statements("penstock.log", "groups.sql")

#: The group of a pop that names none.
DEFAULT_GROUP = "default"
#: How often it is written down that a group is asked for.
_SEEN_SECONDS = 60.0

#: Where a group is to stand: at an end of the log, at a time, or (in one partition) at an offset.
Place = Literal["beginning", "end", "now"] | datetime | int


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of a queue."""

    id: int
    queue_id: int
    name: str
    epoch: int
    subscribed_from: str
    query_id: str | None
    created_at: datetime

    def taken(self) -> str:
        """Why consumers may not use it; empty if they may."""
        if self.query_id is None:
            return ""
        return (
            f"group {self.name!r} belongs to the query {self.query_id!r}, which would miss what you take: use another"
        )


@dataclass(frozen=True, slots=True)
class GroupLane:
    """A group's standing in one partition."""

    partition: str
    partition_id: int
    epoch: int
    next_offset: int
    end_offset: int
    leased: bool
    available_at: datetime
    attempts: int
    moved_at: datetime | None

    @property
    def lag(self) -> int:
        """How many events it has yet to complete."""
        return self.end_offset - self.next_offset


@dataclass(frozen=True, slots=True)
class _Lane:
    id: int
    name: str
    epoch: int
    start: int
    end: int
    segment: int | None


class Groups:
    """The groups of all queues."""

    def __init__(self, pool: AsyncConnectionPool[Any], catalog: Catalog, clock: Clock, retry_seconds: float) -> None:
        self._pool = pool
        self._retry_seconds = retry_seconds
        self._catalog = catalog
        self._clock = clock
        self._known: dict[tuple[int, str], tuple[float, Group]] = {}
        self._seen: dict[int, float] = {}

    async def get(self, queue: Queue, name: str) -> Group | None:
        """The group, as it was at most a second ago, or None."""
        cached = self._known.get((queue.id, name))
        if cached is not None and time.monotonic() - cached[0] < FRESH_SECONDS:
            return cached[1]
        return await patiently(self._pool, self._retry_seconds, lambda conn: self.get_on(conn, queue, name))

    async def get_on(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> Group | None:
        """The same, with a connection at hand: who holds one must not wait for another."""
        cached = self._known.get((queue.id, name))
        if cached is not None and time.monotonic() - cached[0] < FRESH_SECONDS:
            return cached[1]
        row = await (await conn.execute(_sql["group"], {"queue": queue.id, "name": name})).fetchone()
        if row is None:
            self._known.pop((queue.id, name), None)
            return None
        group = Group(*row)
        self._known[queue.id, name] = (time.monotonic(), group)
        return group

    def forget(self, queue: Queue, name: str) -> None:
        """Do not rely on what was known of the group."""
        self._known.pop((queue.id, name), None)

    async def subscribe(
        self, queue: Queue, name: str, place: Place = "beginning", *, query_id: str | None = None
    ) -> Group:
        """The group of that name; if there is none it is made, and starts at the place given."""
        check_name(name, "group")
        group = await self.get(queue, name)
        if group is not None:
            return group
        place = check_place(place)
        await patiently(
            self._pool, self._retry_seconds, lambda conn: self._subscribe_on(conn, queue, name, place, query_id)
        )
        made = await self.get(queue, name)
        if made is None:
            raise NotFound(f"queue {queue.name!r} was deleted meanwhile")
        return made

    async def _subscribe_on(
        self, conn: AsyncConnection[Any], queue: Queue, name: str, place: Place, query_id: str | None
    ) -> None:
        async with conn.transaction():
            # No partition is made while the queue is locked, so the group gets a cursor for every one of them.
            queue = await self._current(conn, queue)
            params = {"queue": queue.id, "name": name, "subscribed_from": _spell(place), "query": query_id}
            params["skew"] = self._clock.skew
            row = await (await conn.execute(_sql["create_group"], params)).fetchone()
            if row is not None:
                await conn.execute(_sql["create_cursors"], {"group": row[0], "queue": queue.id})
                await self._place(conn, queue, row[0], place, None)

    async def seek(self, queue: Queue, name: str, place: Place, *, partition: str | None = None) -> int:
        """Move the group; the answer is in how many partitions. What it held under leases is delivered anew."""
        place = check_place(place)
        if isinstance(place, int) and partition is None:
            raise InvalidRequest("an offset is a place in one partition: name the partition too")
        self._known.pop((queue.id, name), None)
        group = await self.get(queue, name)
        if group is None:
            raise NotFound(f"queue {queue.name!r} has no group {name!r}")
        if group.query_id is not None:
            raise GroupBusy(
                f"group {name!r} belongs to the query {group.query_id!r}, which would count events twice; "
                "stop the query and start it with reset=True instead"
            )
        async with self._pool.connection() as conn, conn.transaction():
            queue = await self._current(conn, queue)
            await conn.execute(_sql["lock_group"], {"group": group.id})
            await conn.execute(_sql["lock_group_cursors"], {"group": group.id})
            await self._hold_positions(conn, group.id)
            moved = await self._place(conn, queue, group.id, place, partition)
            await conn.execute(_sql["saw_group"], {"group": group.id, "skew": self._clock.skew})
        self._known.pop((queue.id, name), None)
        if moved == 0 and partition is not None:
            raise NotFound(f"queue {queue.name!r} has no partition {partition!r}")
        return moved

    async def saw(self, group: Group) -> None:
        """Note that somebody asks for events of the group: one that nobody asks for stops to hold up pushes."""
        now = time.monotonic() + self._clock.skew.total_seconds()
        if now - self._seen.get(group.id, -math.inf) < _SEEN_SECONDS:
            return
        if len(self._seen) > 10_000:
            self._seen.clear()
        self._seen[group.id] = now
        params = {"group": group.id, "skew": self._clock.skew}
        await patiently(self._pool, self._retry_seconds, lambda conn: conn.execute(_sql["saw_group"], params))

    async def set_counts(self, queue: Queue, name: str, *, counts: bool) -> None:
        """Say whether the group counts for the queue's depth."""
        params = {"queue": queue.id, "name": name, "counts": counts}
        async with self._pool.connection() as conn:
            if await (await conn.execute(_sql["set_counts"], params)).fetchone() is None:
                raise NotFound(f"queue {queue.name!r} has no group {name!r}")

    async def advance(self, conn: AsyncConnection[Any], queue: Queue, group: Group) -> bool:
        """Go over to the next epoch of partitions, if nothing of the one before is left to read."""
        self._known.pop((queue.id, group.name), None)
        async with conn.transaction():
            held = await (await conn.execute(_sql["lock_group"], {"group": group.id})).fetchone()
            if held is None or held[1] != group.epoch:
                return held is not None
            statement = _sql.table("has_unread", queue.id, queue.segment)
            row = await (await conn.execute(statement, {"group": group.id, "epoch": group.epoch})).fetchone()
            if row is None or row[0]:
                return False
            await conn.execute(_sql["set_epoch"], {"group": group.id, "epoch": group.epoch + 1})
        return True

    async def delete(self, queue: Queue, name: str) -> bool:
        """Forget the group and its positions."""
        self._known.pop((queue.id, name), None)
        group = await self.get(queue, name)
        if group is None:
            return False
        if group.query_id is not None:
            raise GroupBusy(
                f"group {name!r} belongs to the query {group.query_id!r}; stop and delete the query instead"
            )
        async with self._pool.connection() as conn, conn.transaction():
            await self._delete(conn, group.id)
        self._known.pop((queue.id, name), None)
        return True

    async def delete_of_query(self, conn: AsyncConnection[Any], query: str) -> None:
        """Forget the groups of a query, in the transaction that forgets the query."""
        for group_id, queue_id, name in await (await conn.execute(_sql["of_query"], {"query": query})).fetchall():
            await self._delete(conn, group_id)
            self._known.pop((queue_id, name), None)

    async def _delete(self, conn: AsyncConnection[Any], group_id: int) -> None:
        for statement in ("lock_group", "lock_group_cursors", "delete_group", "delete_group_positions"):
            await conn.execute(_sql[statement], {"group": group_id})

    async def names(self, queue: Queue | None = None) -> list[tuple[str, str, str, str | None, datetime]]:
        """Queue, group, where it subscribed from, its query and its age, for all groups or one queue's."""
        async with self._pool.connection() as conn:
            params = {"queue": None if queue is None else queue.id}
            rows: list[tuple[str, str, str, str | None, datetime]] = await (
                await conn.execute(_sql["groups"], params)
            ).fetchall()
        return rows

    async def lanes(self, queue: Queue, group: Group) -> list[GroupLane]:
        """Where the group stands in each partition."""
        async with self._pool.connection() as conn:
            statement = _sql.table("group_lanes", queue.id, queue.segment)
            rows = await (await conn.execute(statement, {"group": group.id, "skew": self._clock.skew})).fetchall()
        return [GroupLane(*row) for row in rows]

    async def _hold_positions(self, conn: AsyncConnection[Any], group_id: int) -> None:
        """Lock every position of the group; acks do not ask for the cursors, so some may slip away at first."""
        while True:
            row = await (await conn.execute(_sql["lock_positions"], {"group": group_id})).fetchone()
            if row is None or row[0] == row[1]:
                return

    async def _current(self, conn: AsyncConnection[Any], queue: Queue) -> Queue:
        found = await self._catalog.lock_on(conn, queue)
        if found is None or found.id != queue.id:
            raise NotFound(f"queue {queue.name!r} was deleted meanwhile")
        return found

    async def _place(
        self, conn: AsyncConnection[Any], queue: Queue, group_id: int, place: Place, partition: str | None
    ) -> int:
        moment = place if isinstance(place, datetime) else datetime.max.replace(tzinfo=UTC)
        statement = _sql.table("lanes", queue.id, queue.segment)
        params = {"queue": queue.id, "name": partition, "time": moment}
        lanes = [_Lane(*row) for row in await (await conn.execute(statement, params)).fetchall()]
        if not lanes:
            return 0
        offsets = await self._offsets(conn, queue, lanes, place)
        moves = {
            "group": group_id,
            "partitions": [lane.id for lane in lanes],
            "offsets": offsets,
            "skew": self._clock.skew,
        }
        await conn.execute(_sql["move_positions"], moves)
        unread = [lane.epoch for lane, offset in zip(lanes, offsets, strict=True) if offset < lane.end]
        epoch = min(unread, default=queue.epoch)
        if partition is not None:
            held = await (await conn.execute("SELECT epoch FROM penstock.groups WHERE id = %s", (group_id,))).fetchone()
            epoch = min(epoch, held[0]) if held is not None else epoch
        await conn.execute(_sql["set_epoch"], {"group": group_id, "epoch": epoch})
        return len(lanes)

    async def _offsets(self, conn: AsyncConnection[Any], queue: Queue, lanes: list[_Lane], place: Place) -> list[int]:
        if place == "beginning":
            return [lane.start for lane in lanes]
        if place in ("end", "now"):
            return [lane.end for lane in lanes]
        if isinstance(place, int):
            return [min(max(place, lane.start), lane.end) for lane in lanes]
        found: dict[int, int] = {}
        for segment in {lane.segment for lane in lanes}:
            some = [lane.id for lane in lanes if lane.segment == segment]
            statement = _sql.table("offsets_at", queue.id, queue.segment if segment is None else segment)
            rows = await (await conn.execute(statement, {"partitions": some, "time": place})).fetchall()
            found.update(rows)
        return [found.get(lane.id, lane.end) for lane in lanes]


def check_place(place: object) -> Place:
    """Return the place if a group can be put there."""
    if isinstance(place, str):
        if place in ("beginning", "all", "earliest"):
            return "beginning"
        if place in ("end", "latest", "now", "new", "new-only"):
            return "end"
        try:
            place = datetime.fromisoformat(place)
        except ValueError:
            raise InvalidRequest(
                f"{shown(place)} is no place to start from: give 'beginning', 'now' or a time such as "
                "2026-01-31T12:00:00Z"
            ) from None
    if isinstance(place, datetime):
        if place.utcoffset() is None:
            raise InvalidRequest(f"the time {place} has no time zone; add one, such as a Z at the end")
        return place
    if isinstance(place, int) and not isinstance(place, bool):
        if place < 0:
            raise InvalidRequest(f"an offset is 0 or more, not {shown(place)}")
        return place
    raise InvalidRequest(f"{shown(place)} is no place to start from: give 'beginning', 'now', a time or an offset")


def _spell(place: Place) -> str:
    return place.isoformat() if isinstance(place, datetime) else str(place)
