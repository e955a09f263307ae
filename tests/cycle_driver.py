"""Commits cycles of a query without Spark: the test gives the partial aggregates that Spark would compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.db.statements import Statements
from penstock.engine import cycle_plan as plans
from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.compile.windows.window_output import WindowOutput, window_output
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget, CycleResult
from penstock.engine.cycle.partials import SessionMove, WatermarkScope
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.worker.task_reports import PartitionReport, TaskReport
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.time_rules import TimeRules
from penstock.stream.windows import Window

_plan = Statements("penstock.engine.planning", "planner.sql")

_ANYTHING: Any = None  # the Spark expression, which is not used
COLUMNS = (
    ResultColumn("count", "bigint", (StateColumn("a0", "bigint", _ANYTHING, "{state} + {partial}"),), "{a0}"),
    ResultColumn(
        "total", "numeric", (StateColumn("a1", "numeric", _ANYTHING, "{state} + {partial}"),), "trim_scale({a1})"
    ),
)
_SECOND = 1_000_000
_NEVER_US = 10**15


class CycleDriver:
    """Drives one query with windows of a minute over partition 1. A stream determines its outputs."""

    def __init__(
        self,
        log: Log,
        name: str,
        query_id: int,
        fence: int,
        *,
        sessions: bool = False,
        stream: Definition | None = None,
        windows: Sequence[Window] = (),
        idle_flush_us: int = _NEVER_US,
    ) -> None:
        self.name = name
        self.id = query_id
        self.fence = fence
        self._log = log
        columns = list(COLUMNS)
        shape = WindowOutput() if stream is None else window_output(stream, columns)
        self.tables = ResultTables(
            query_id,
            name,
            columns,
            has_key_index=sessions,
            output=shape,
            windows=windows,
            idle_flush_us=idle_flush_us,
        )
        rules = TimeRules(idle_flush_us=_NEVER_US)
        sink = None if stream is None else stream.sink
        self._target = CommitTarget(
            query_id, name, fence, 30.0, [], self.tables, rules, WatermarkScope.PARTITION, sink, "drop", 3600.0
        )
        self._committer = Committer(log, self._target)

    @classmethod
    async def start(
        cls,
        log: Log,
        name: str,
        *,
        sessions: bool = False,
        stream: Definition | None = None,
        windows: Sequence[Window] = (),
        idle_flush_us: int = _NEVER_US,
    ) -> CycleDriver:
        registry = Registry(log)
        made = await registry.register(
            name, ["from orders"], "1", sink=None if stream is None else stream.sink, history_seconds=3600
        )
        fence = await registry.acquire_lease(made, "a test", 30.0)
        assert fence is not None
        driver = cls(
            log,
            name,
            made.id,
            fence,
            sessions=sessions,
            stream=stream,
            windows=windows,
            idle_flush_us=idle_flush_us,
        )
        await registry.create_tables(driver.tables)
        return driver

    async def cycle(
        self,
        partials: Iterable[tuple[str, int, int, int]] = (),
        *,
        upto: int | None = None,
        appended: datetime | None = None,
        moves: Sequence[SessionMove] = (),
        end: int | None = None,
    ) -> CommitStats:
        """Commit a cycle with partials (key, window start in seconds, count, total) and ``upto`` as event time."""
        rows = list(partials)
        table = pa.table(
            {
                "key": [row[0] for row in rows],
                "start_us": [row[1] * _SECOND for row in rows],
                "end_us": [(row[1] + 60 if end is None else end) * _SECOND for row in rows],
                "is_late": [False] * len(rows),
                "partition_id": [1] * len(rows),
                "a0": [row[2] for row in rows],
                "a1": [row[3] for row in rows],
            }
        )
        params: dict[str, Any] = {"query": self.id, "fence": self.fence, "lease": "30 s"}
        async with self._log.database.connection() as conn, conn.transaction():
            begun = await (await conn.execute(_plan["begin_cycle"], params)).fetchone()
            assert begun is not None
            plan = CyclePlan(begun[0], True, [], [])
            await conn.execute(
                _plan["store_plan"], {**params, "cycle": plan.cycle, "plan": plans.encode(plan), "planned": len(rows)}
            )
        moment = appended or datetime.now(UTC)
        micros = int(moment.timestamp() * _SECOND)
        high = None if upto is None else upto * _SECOND
        reports = [
            TaskReport([PartitionReport(1, high, len(rows), sum(row[2] for row in rows), micros, micros)], [], {})
        ]
        return await self._committer.commit(
            CycleResult(plan, reports, table, [], None, datetime.now(UTC), {"read": 1.0}, session_moves=moves)
        )

    async def close(self) -> None:
        await self._committer.close()
