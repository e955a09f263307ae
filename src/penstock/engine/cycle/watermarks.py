"""How far time has come, and so which windows close: for each partition, or for all of them together, as 0."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from penstock.core.timestamps import to_micros
from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.cycle.models import Target, Work
from penstock.engine.cycle.partials import Closing
from penstock.engine.result_tables import ResultTables
from penstock.log.catalog import Catalog

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_sql = Statements("penstock.engine.cycle", "commit.sql")


class Bounds:
    """The bounds of one query, within the transactions of its commits."""

    def __init__(self, catalog: Catalog, target: Target) -> None:
        self._catalog = catalog
        self._target = target
        #: Whether there may be windows of events without a key, which all partitions close together.
        self._has_keyless: bool | None = None

    async def after(
        self, conn: AsyncConnection[Any], work: Work, now: datetime, closed_us: int | None
    ) -> dict[int, int]:
        """How far time has come with a cycle: for each partition (or for all, as 0) up to where windows close."""
        target = self._target
        marks = [mark for report in work.reports for mark in report.marks]
        bounds: dict[int, int] = {}
        if marks:
            params = {
                "query": target.query,
                "partitions": numbers([mark.partition_id for mark in marks]),
                "highs": [mark.high_us for mark in marks],
                "lasts": numbers([mark.last_us for mark in marks]),
            }
            rows = await (await conn.execute(_sql["note_progress"], params)).fetchall()
            for partition_id, high, floor in rows:
                bound = _bound(high, floor, target.rules.lateness_us)
                if bound is not None:
                    bounds[partition_id] = bound
        if target.waiting is not None:
            return await (self._wait_is_over(conn) if work.flush else self._joint_bound(conn, now, closed_us))
        if target.tables is None:
            return {}
        if work.flush:
            return await self._flush_bounds(conn)
        if target.closing is Closing.TOGETHER:
            return await self._joint_bound(conn, now, closed_us)
        await self._close_idle(conn, now, bounds)
        if await self._keyless(conn, target.tables, work.partials):
            bounds |= await self._joint_bound(conn, now, closed_us)
        return bounds

    async def _keyless(self, conn: AsyncConnection[Any], tables: ResultTables, partials: pa.Table | None) -> bool:
        if self._has_keyless is None:
            # Also where there should be none: the queue may have been partitioned otherwise before.
            row = await (await conn.execute(tables.statement("has_keyless"))).fetchone()
            self._has_keyless = row is not None and bool(row[0])
        if not self._has_keyless and partials is not None and partials.num_rows:
            self._has_keyless = pa.compute.min(partials.column("p")).as_py() == 0
        return self._has_keyless

    async def _flush_bounds(self, conn: AsyncConnection[Any]) -> dict[int, int]:
        """Every window that is open closes; what comes later for it is late."""
        assert self._target.tables is not None  # noqa: S101 - the caller looked
        rows = await (await conn.execute(self._target.tables.statement("last_ends"))).fetchall()
        bounds = {partition: end + self._target.rules.grace_us for partition, end in rows}
        if 0 in bounds:
            await self._raise_closed(conn, bounds[0])
        floors = {partition: bound for partition, bound in bounds.items() if partition}
        if floors:
            await self._raise_floors(conn, floors)
        return bounds

    async def _wait_is_over(self, conn: AsyncConnection[Any]) -> dict[int, int]:
        """Nothing waits any longer in a join; what comes later for it is late."""
        waiting = self._target.waiting
        assert waiting is not None  # noqa: S101 - the caller looked
        row = await (await conn.execute(waiting.statement("last_end"), waiting.params())).fetchone()
        if row is None or row[0] is None:
            return {}
        await self._raise_closed(conn, row[0])
        return {0: row[0]}

    async def _close_idle(self, conn: AsyncConnection[Any], now: datetime, bounds: dict[int, int]) -> None:
        """Let the clock close the windows of partitions that are idle and have nothing unread."""
        target = self._target
        assert target.tables is not None  # noqa: S101 - the caller looked
        rules = target.rules
        params = {
            "query": target.query,
            "now": now,
            "idle": timedelta(microseconds=rules.idle_flush_us),
            "wait": timedelta(microseconds=rules.grace_us + rules.lateness_us),
        }
        rows = await (await conn.execute(target.tables.statement("idle_partitions"), params)).fetchall()
        idle = {partition for (partition,) in rows if partition}
        if not idle:
            return
        for queue_name, queue_id, _, group_id in target.groups:
            queue = await self._catalog.get(queue_name)
            asked = {"group": group_id, "partitions": numbers(sorted(idle))}
            statement = _sql.table("unread", queue_id, queue.segment)
            idle -= {p for (p,) in await (await conn.execute(statement, asked)).fetchall()}
        floor = to_micros(now) - rules.idle_flush_us - rules.lateness_us
        if idle:
            await self._raise_floors(conn, dict.fromkeys(idle, floor))
        for partition in idle:
            bounds[partition] = max(floor, bounds.get(partition, floor))

    async def _joint_bound(self, conn: AsyncConnection[Any], now: datetime, closed_us: int | None) -> dict[int, int]:
        """Up to where all partitions together have come; those that are idle do not count."""
        rules = self._target.rules
        clock = to_micros(now) - rules.idle_flush_us - rules.lateness_us
        lowest: int | None = None
        for queue_name, queue_id, _, group_id in self._target.groups:
            queue = await self._catalog.get(queue_name)
            params = {
                "query": self._target.query,
                "group": group_id,
                "now": now,
                "idle": timedelta(microseconds=rules.idle_flush_us),
            }
            statement = _sql.table("all_partitions", queue_id, queue.segment)
            for _, high, floor, is_quiet, has_unread in await (await conn.execute(statement, params)).fetchall():
                own = _bound(high, floor, rules.lateness_us)
                if not has_unread and is_quiet:
                    own = clock if own is None else max(own, clock)
                if own is None:
                    return {} if closed_us is None else {0: closed_us}
                lowest = own if lowest is None else min(lowest, own)
        if closed_us is not None:
            lowest = closed_us if lowest is None else max(lowest, closed_us)
        if lowest is None:
            return {}
        if lowest != closed_us:
            await self._raise_closed(conn, lowest)
        return {0: lowest}

    async def _raise_floors(self, conn: AsyncConnection[Any], floors: dict[int, int]) -> None:
        params = {
            "query": self._target.query,
            "partitions": numbers(list(floors)),
            "floors": numbers(list(floors.values())),
        }
        await conn.execute(_sql["raise_floors"], params)

    async def _raise_closed(self, conn: AsyncConnection[Any], bound: int) -> None:
        await conn.execute(_sql["raise_closed"], {"query": self._target.query, "closed": bound})


def _bound(high: int | None, floor: int | None, lateness_us: int) -> int | None:
    if high is None:
        return floor
    return high - lateness_us if floor is None else max(high - lateness_us, floor)
