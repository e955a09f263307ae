"""Cycles of a query, committed by the engine's own committer, without Spark: a test says what Spark would find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.db.statements import Statements
from penstock.engine import plan as plans
from penstock.engine.compile.aggregate_columns import Kept, ResultColumn, Shape, shape_of
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.models import Outcome, Target, Work
from penstock.engine.cycle.partials import Closing
from penstock.engine.plan import CyclePlan
from penstock.engine.registry import Registry
from penstock.engine.result_tables import ResultTables
from penstock.engine.worker.reports import Mark, Report
from penstock.log.log import Log
from penstock.stream.definition import Definition, TimeRules

_plan = Statements("penstock.engine.planning", "planner.sql")

_ANYTHING: Any = None  # what Spark would compute, which nobody asks for here
COLUMNS = (
    ResultColumn("count", "bigint", (Kept("a0", "bigint", _ANYTHING, "{s} + {p}"),), "{a0}"),
    ResultColumn("total", "numeric", (Kept("a1", "numeric", _ANYTHING, "{s} + {p}"),), "trim_scale({a1})"),
)
_SECOND = 1_000_000


class Driver:
    """Drives one query: windows of a minute over partition 1; where they go and as what, a stream says."""

    def __init__(
        self,
        log: Log,
        name: str,
        query_id: int,
        fence: int,
        *,
        sessions: bool = False,
        stream: Definition | None = None,
    ) -> None:
        self.name = name
        self.id = query_id
        self.fence = fence
        self._log = log
        columns = list(COLUMNS)
        shape = Shape() if stream is None else shape_of(stream, columns)
        self.tables = ResultTables(query_id, name, columns, by_key=sessions, shape=shape)
        rules = TimeRules(idle_flush_us=10**15)
        sink = None if stream is None else stream.sink
        self._target = Target(
            query_id, name, fence, 30.0, [], self.tables, rules, Closing.BY_PARTITION, sink, "drop", 3600.0
        )
        self._committer = Committer(log, self._target)

    @classmethod
    async def start(cls, log: Log, name: str, *, sessions: bool = False, stream: Definition | None = None) -> Driver:
        registry = Registry(log)
        made = await registry.register(
            name, ["from orders"], "1", sink=None if stream is None else stream.sink, history_seconds=3600
        )
        fence = await registry.take(name, "a test", 30.0, made.at)
        assert fence is not None
        driver = cls(log, name, made.id, fence, sessions=sessions, stream=stream)
        await registry.make_tables(driver.tables)
        return driver

    async def cycle(
        self,
        partials: Iterable[tuple[str, int, int, int]] = (),
        *,
        upto: int | None = None,
        appended: datetime | None = None,
        moves: Sequence[dict[str, Any]] = (),
        end: int | None = None,
    ) -> Outcome:
        """Commit a cycle that found (key, window's start in seconds, count, total); ``upto``: how far time has come."""
        rows = list(partials)
        table = pa.table(
            {
                "key": [row[0] for row in rows],
                "ws": [row[1] * _SECOND for row in rows],
                "we": [(row[1] + 60 if end is None else end) * _SECOND for row in rows],
                "late": [False] * len(rows),
                "p": [1] * len(rows),
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
        reports = [Report([Mark(1, len(rows), sum(row[2] for row in rows), high, micros, micros)], [], {})]
        return await self._committer.commit(
            Work(plan, reports, table, [], [], datetime.now(UTC), {"read": 1.0}, moves=moves)
        )

    async def close(self) -> None:
        await self._committer.close()
