"""Advances the watermarks of a query, within a commit. They decide which windows close."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute
from psycopg import AsyncConnection

from penstock.core.clock import to_micros
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.cycle.commit_steps import LockedQuery
from penstock.engine.cycle.cycle_result import CommitTarget, CycleResult
from penstock.engine.cycle.partials import ALL_PARTITIONS, WatermarkScope
from penstock.engine.joins.join_state import JoinState
from penstock.engine.results.result_tables import ResultTables
from penstock.log.catalog import Catalog

_sql = Statements("penstock.engine.cycle", "commit.sql")


class Watermarks:
    """The watermarks of one query, by partition. ``ALL_PARTITIONS`` is the watermark of all of them together."""

    def __init__(self, catalog: Catalog, target: CommitTarget) -> None:
        self._catalog = catalog
        self._target = target
        #: Whether there may be windows that all partitions close together; None: unknown.
        self._has_global_windows: bool | None = None

    async def advance(self, conn: AsyncConnection[Any], result: CycleResult, query: LockedQuery) -> dict[int, int]:
        """Store the progress of a cycle, and return the watermarks that close windows."""
        target = self._target
        watermarks = await self._store_progress(conn, result)
        if target.join_state is not None:
            if result.is_flush:
                return await self._expire_join_state(conn, target.join_state)
            return await self._advance_global(conn, query)
        if target.result_tables is None:
            return {}
        if result.is_flush:
            return await self._close_all(conn, target.result_tables)
        if target.watermark_scope is WatermarkScope.GLOBAL:
            return await self._advance_global(conn, query)
        watermarks |= await self._advance_idle(conn, target.result_tables, query.now, watermarks)
        if await self._needs_global(conn, target.result_tables, result.partials):
            watermarks |= await self._advance_global(conn, query)
        return watermarks

    async def _store_progress(self, conn: AsyncConnection[Any], result: CycleResult) -> dict[int, int]:
        partitions = [partition for report in result.reports for partition in report.partitions]
        if not partitions:
            return {}
        params = {
            "query": self._target.query_id,
            "partitions": int_array([partition.partition_id for partition in partitions]),
            "highs": [partition.high_us for partition in partitions],
            "lasts": int_array([partition.last_appended_us for partition in partitions]),
        }
        rows = await (await conn.execute(_sql["store_progress"], params)).fetchall()
        lateness_us = self._target.time_rules.lateness_us
        watermarks = {partition_id: _watermark(high, floor, lateness_us) for partition_id, high, floor in rows}
        return {partition_id: us for partition_id, us in watermarks.items() if us is not None}

    async def _needs_global(self, conn: AsyncConnection[Any], tables: ResultTables, partials: pa.Table | None) -> bool:
        if self._has_global_windows is None:
            # Ask in any case: the queue may have been partitioned in another way before.
            row = await (await conn.execute(tables.statement("has_global_windows"))).fetchone()
            self._has_global_windows = row == (True,)
        if not self._has_global_windows and partials is not None and partials.num_rows:
            self._has_global_windows = pa.compute.min(partials.column("partition_id")).as_py() == ALL_PARTITIONS
        return self._has_global_windows

    async def _close_all(self, conn: AsyncConnection[Any], tables: ResultTables) -> dict[int, int]:
        """Advance the watermarks so that every open window closes. Later events of these windows are late."""
        rows = await (await conn.execute(tables.statement("last_window_ends"))).fetchall()
        watermarks = {partition_id: end_us + self._target.close_delay_us for partition_id, end_us in rows}
        if ALL_PARTITIONS in watermarks:
            await self._store_global(conn, watermarks[ALL_PARTITIONS])
        floors = {partition_id: us for partition_id, us in watermarks.items() if partition_id != ALL_PARTITIONS}
        if floors:
            await self._raise_floors(conn, floors)
        return watermarks

    async def _expire_join_state(self, conn: AsyncConnection[Any], join_state: JoinState) -> dict[int, int]:
        """Advance the watermark so that all rows of a join expire. Later events that would match them are late."""
        end_us = await join_state.last_end(conn)
        if end_us is None:
            return {}
        await self._store_global(conn, end_us)
        return {ALL_PARTITIONS: end_us}

    async def _advance_idle(
        self, conn: AsyncConnection[Any], tables: ResultTables, now: datetime, watermarks: dict[int, int]
    ) -> dict[int, int]:
        """Advance the watermarks of idle partitions by the clock. Returns their watermarks."""
        target, rules = self._target, self._target.time_rules
        params = {
            "query": target.query_id,
            "now": now,
            "idle": timedelta(microseconds=rules.idle_flush_us),
            "wait": timedelta(microseconds=target.close_delay_us + rules.lateness_us),
        }
        rows = await (await conn.execute(tables.statement("idle_partitions"), params)).fetchall()
        idle = {partition_id for (partition_id,) in rows if partition_id != ALL_PARTITIONS}
        if not idle:
            return {}
        for source in target.groups:
            queue = await self._catalog.get(source.queue)
            params = {"group": source.group_id, "partitions": int_array(sorted(idle))}
            statement = _sql.table("unread_partitions", source.queue_id, queue.segment)
            idle -= {partition_id for (partition_id,) in await (await conn.execute(statement, params)).fetchall()}
        floor_us = self._idle_watermark(now)
        if idle:
            await self._raise_floors(conn, dict.fromkeys(idle, floor_us))
        return {partition_id: max(floor_us, watermarks.get(partition_id, floor_us)) for partition_id in idle}

    async def _advance_global(self, conn: AsyncConnection[Any], query: LockedQuery) -> dict[int, int]:
        """Advance the watermark of all partitions to the lowest one. Idle partitions follow the clock."""
        rules = self._target.time_rules
        idle_us = self._idle_watermark(query.now)
        lowest: int | None = None
        for source in self._target.groups:
            queue = await self._catalog.get(source.queue)
            params = {
                "query": self._target.query_id,
                "group": source.group_id,
                "now": query.now,
                "idle": timedelta(microseconds=rules.idle_flush_us),
            }
            statement = _sql.table("partition_progress", source.queue_id, queue.segment)
            for high, floor, is_quiet, has_unread in await (await conn.execute(statement, params)).fetchall():
                watermark = _watermark(high, floor, rules.lateness_us)
                if is_quiet and not has_unread:
                    watermark = idle_us if watermark is None else max(watermark, idle_us)
                if watermark is None:
                    return {} if query.closed_us is None else {ALL_PARTITIONS: query.closed_us}
                lowest = watermark if lowest is None else min(lowest, watermark)
        if query.closed_us is not None:
            lowest = query.closed_us if lowest is None else max(lowest, query.closed_us)
        if lowest is None:
            return {}
        if lowest != query.closed_us:
            await self._store_global(conn, lowest)
        return {ALL_PARTITIONS: lowest}

    def _idle_watermark(self, now: datetime) -> int:
        rules = self._target.time_rules
        return to_micros(now) - rules.idle_flush_us - rules.lateness_us

    async def _raise_floors(self, conn: AsyncConnection[Any], floors: dict[int, int]) -> None:
        params = {
            "query": self._target.query_id,
            "partitions": int_array(list(floors)),
            "floors": int_array(list(floors.values())),
        }
        await conn.execute(_sql["raise_floors"], params)

    async def _store_global(self, conn: AsyncConnection[Any], watermark_us: int) -> None:
        await conn.execute(_sql["raise_closed"], {"query": self._target.query_id, "closed": watermark_us})


def _watermark(high_us: int | None, floor_us: int | None, lateness_us: int) -> int | None:
    """The watermark of a partition: its highest event time minus the allowed lateness, but not below its floor."""
    if high_us is None:
        return floor_us
    return high_us - lateness_us if floor_us is None else max(high_us - lateness_us, floor_us)
