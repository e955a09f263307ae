"""Queries without Spark: tests provide the partial aggregates, and the engine's SQL merges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.core import json
from penstock.db.statements import Statements
from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint

_plan = Statements("penstock.engine.planning", "planner.sql")
_commit = Statements("penstock.engine.cycle", "commit.sql")
_LEASE = timedelta(seconds=60)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: The columns of every query: number of events, and total.
COLUMNS = (
    ResultColumn("events", "bigint", (StateColumn("a0", "bigint", None, "{state} + {partial}"),), "{a0}"),  # type: ignore[arg-type]
    ResultColumn("total", "numeric", (StateColumn("a1", "numeric", None, "{state} + {partial}"),), "trim_scale({a1})"),  # type: ignore[arg-type]
)


@dataclass
class ScriptedQuery:
    """A query whose cycles a test runs."""

    log: Log
    name: str
    id: int
    fence: int
    groups: list[tuple[str, int]]
    sink: str | None
    tables: ResultTables

    @classmethod
    async def start(cls, log: Log, name: str, stream: Definition) -> ScriptedQuery:
        """Register a query and acquire its lease."""
        registry = Registry(log)
        lines = describe(stream)
        query = await registry.register(name, lines, fingerprint(lines), sink=stream.sink, history_seconds=86_400)
        fence = await registry.acquire_lease(query, "tests", _LEASE.total_seconds())
        assert fence is not None
        groups = []
        for source in stream.sources:
            group = await log.consumer_groups.subscribe(await log.catalog.refresh(source), name, query_id=name)
            groups.append((source, group.id))
        tables = ResultTables(query.id, name, COLUMNS)
        if stream.windows:
            await registry.create_tables(tables)
        return cls(log, name, query.id, fence, groups, stream.sink, tables)

    async def cycle(
        self,
        partials: Mapping[str, tuple[int, float]],
        window: tuple[datetime, datetime],
        *,
        took: Mapping[str, float] | None = None,
        closes: datetime | None = None,
        late: int = 0,
        dead: int = 0,
    ) -> None:
        """Commit a cycle that reads all unread events, merges ``partials`` and closes windows up to ``closes``."""
        ranges = [
            (group_id, position.partition_id, position.next_offset, position.end_offset)
            for queue, group_id in self.groups
            for position in await self.log.group_positions(queue, self.name)
            if position.end_offset > position.next_offset
        ]
        cycle, begun = await self.begin(self.log, sum(stop - start for *_, start, stop in ranges)), datetime.now(UTC)
        async with self.log.database.connection() as conn, conn.transaction():
            now = datetime.now(UTC)
            columns: list[Any] = [list(column) for column in zip(*ranges, strict=True)] or [[], [], [], []]
            moves = dict(zip(("groups", "partitions", "starts", "stops"), columns, strict=True))
            await conn.execute(_commit["advance_positions"], {**moves, "now": now})
            closed = await self._merge(conn, partials, window, closes, now)
            finished = {
                "query": self.id,
                "cycle": cycle,
                "started": begun,
                "events_in": sum(stop - start for *_, start, stop in ranges),
                "events_out": closed,
                "windows": closed,
                "late": late,
                "dead": dead,
                "dropped": 0,
                "changes": None,
                "took": json.encode(
                    took or {"spark": 120.0, "prepare": 4.0, "copy": 6.0, "merge": 22.0, "append": 9.0}
                ).decode(),
                "oldest": now - timedelta(seconds=0.4),
                "watermark": window[0],
            }
            await conn.execute(_commit["finish_cycle"], finished)

    async def fail(self, error: str) -> None:
        """Record a failed cycle."""
        cycle = await self.begin(self.log, 1)
        async with self.log.database.connection() as conn:
            await conn.execute(_commit["fail_cycle"], {"query": self.id, "cycle": cycle, "error": error})

    async def stop(self, *, has_failed: bool = False) -> None:
        """Release the lease. The group of a query that failed still holds pushes back."""
        await Registry(self.log).release_lease(self.id, self.fence, stopped=not has_failed)

    async def begin(self, log: Log, planned: int) -> int:
        """Plan a cycle of so many events, and return its number."""
        params = {"query": self.id, "fence": self.fence, "lease": _LEASE}
        async with log.database.connection() as conn, conn.transaction():
            row = await (await conn.execute(_plan["begin_cycle"], params)).fetchone()
            assert row is not None
            await conn.execute(_plan["store_plan"], {**params, "cycle": row[0], "plan": b"", "planned": planned})
        return int(row[0])

    async def _merge(
        self,
        conn: Any,
        partials: Mapping[str, tuple[int, float]],
        window: tuple[datetime, datetime],
        closes: datetime | None,
        now: datetime,
    ) -> int:
        if not partials and closes is None:
            return 0
        start, end = (int((moment - _EPOCH).total_seconds() * 1_000_000) for moment in window)
        await conn.execute(self.tables.statement("create_staging_table"))
        async with conn.cursor().copy(self.tables.statement("copy_partials")) as copy:
            for key, (events, total) in partials.items():
                await copy.write(f'"{key}",{start},{end},false,0,{events},{total}\n')
        ends = [] if closes is None else [closes]
        bounds = {
            "partitions": [0] * len(ends),
            "ends": [int((moment - _EPOCH).total_seconds() * 1_000_000) for moment in ends],
            "end_times": ends,
            "latest": closes or _EPOCH,
            "now": now,
            "late": False,
        }
        await conn.execute(self.tables.statement("merge_open"), bounds)
        if closes is None:
            return 0
        rows = await (await conn.execute(self.tables.statement("close_windows", corrects=False), bounds)).fetchall()
        if rows and self.sink is not None:
            await self.log.push(
                [Batch(self.sink, [{"key": key, "data": json.decode(line)} for key, _, line, _ in rows])]
            )
        return len(rows)
