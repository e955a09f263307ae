"""Runs a query with session windows without Spark.

Planner, reader, assignment to sessions and commit are the real ones. pyarrow groups the rows, as Spark would.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.engine.compile.windows.session_windows import SESSION_COLUMNS, SessionAssigner
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.cycle_result import CommitTarget, CycleResult
from penstock.engine.cycle.partials import WatermarkScope, empty_partials, split_result
from penstock.engine.cycle_plan import CyclePlan, SourceGroup
from penstock.engine.planning.planner import Planner, PlannerConfig
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.worker.event_reader import read_task
from penstock.engine.worker.preaggregate import GROUP_COLUMNS
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.spark_task import CycleJob, worker_connection
from penstock.log.log import Log
from penstock.stream.time_rules import TimeRules, close_delay_us
from penstock.stream.windows import SessionWindow
from tests.cycle_driver import COLUMNS
from tests.log.logs import opened

_FIELDS = pa.schema([("ts", pa.int64()), ("who", pa.string()), ("amount", pa.int64())])
_GROUPS = [*GROUP_COLUMNS, "__old_start", "__old_end", "__old_is_closed"]
_LEASE_SECONDS = 30.0
#: The share of cycles in which a driver dies, half of them after the commit.
_KILLS = 0.2


class SessionDriver:
    """Counts events and adds up ``amount`` in sessions by the event's key, or by the field ``who``."""

    def __init__(self, log: Log, query_id: int, group: SourceGroup, gap_us: int, rules: TimeRules, by_field: bool):
        self._log = log
        self._id = query_id
        self._group = group
        self._rules = rules
        self._by_field = by_field
        self._scope = WatermarkScope.GLOBAL if by_field else WatermarkScope.KEYLESS_GLOBAL
        self._delay_us = close_delay_us([SessionWindow(gap_us)], rules)
        self.tables = ResultTables(query_id, group.group, COLUMNS, has_key_index=True)
        self._config = ReadConfig(
            log.database.conninfo,
            query_id,
            group.group,
            _FIELDS,
            {group.queue_id: group.queue},
            rules.event_time,
            rules.lateness_us,
            (),
            with_event_json=False,
        )
        schema = pa.schema([*self._config.event_schema, ("__group_key", pa.string()), *SESSION_COLUMNS])
        self._assigner = SessionAssigner(gap_us, rules, self._config, schema)

    @classmethod
    async def create(
        cls, log: Log, name: str, queue: str, gap_us: int, rules: TimeRules, *, by_field: bool
    ) -> SessionDriver:
        registry = Registry(log)
        query = await registry.register(name, ["sessions"], "1", sink=f"{name}.out", history_seconds=1e9)
        source = await log.catalog.refresh(queue)
        group = await log.consumer_groups.subscribe(source, name, "beginning", query_id=name)
        driver = cls(log, query.id, SourceGroup(queue, source.id, name, group.id), gap_us, rules, by_field)
        await registry.create_tables(driver.tables)
        return driver

    async def run(self, *, max_events: int, flush: bool, chance: random.Random | None = None) -> None:
        """Read all events. With ``chance``, some drivers die before or after a commit, and another one takes over."""
        while not await self._run_until_killed(max_events, flush, chance):
            pass

    async def _run_until_killed(self, max_events: int, flush: bool, chance: random.Random | None) -> bool:
        registry = Registry(self._log)
        query = await registry.register(
            self._group.group, ["sessions"], "1", sink=f"{self._group.group}.out", history_seconds=1e9
        )
        fence = await registry.acquire_lease(query, "a test", _LEASE_SECONDS)
        assert fence is not None
        committer, planner = Committer(self._log, self._target(fence)), self._planner(fence, max_events)
        try:
            while (plan := planner.next_cycle(0)) is not None:
                result = await self._compute(committer, plan, fence)
                moment = 1.0 if chance is None else chance.random()
                if moment < _KILLS / 2:
                    return False
                await committer.commit(result)
                if moment < _KILLS:
                    return False
            if flush:
                empty = empty_partials(["a0", "a1"])
                done = CycleResult(planner.plan_flush(), [], empty, [], None, datetime.now(UTC), {}, is_flush=True)
                await committer.commit(done)
        finally:
            planner.close()
            await committer.close()
            await registry.release_lease(self._id, fence)
        return True

    def _target(self, fence: int) -> CommitTarget:
        return CommitTarget(
            self._id,
            self._group.group,
            fence,
            _LEASE_SECONDS,
            [self._group],
            self.tables,
            self._rules,
            self._scope,
            f"{self._group.group}.out",
            self._rules.late,
            1e9,
            self._delay_us,
        )

    def _planner(self, fence: int, max_events: int) -> Planner:
        return Planner(
            PlannerConfig(
                conninfo=self._log.database.conninfo,
                query_id=self._id,
                query=self._group.group,
                fence=fence,
                groups=[self._group],
                lease_seconds=_LEASE_SECONDS,
                interval_seconds=0.0,
                small_events=max_events,
                max_events=max_events,
                state_table=f"penstock.state_{self._id}",
                idle_us=self._rules.idle_flush_us,
                close_delay_us=self._delay_us + self._rules.lateness_us,
            )
        )

    async def _compute(self, committer: Committer, plan: CyclePlan, fence: int) -> CycleResult:
        empty = empty_partials(["a0", "a1"])
        if not plan.partitions:
            return CycleResult(plan, [], empty, [], None, datetime.now(UTC), {})
        job = CycleJob(fence, plan.cycle)
        batches = [batch for task in range(len(plan.tasks)) for batch in read_task(self._config, job, plan, task, 0)]
        table = pa.Table.from_batches(batches, schema=self._config.event_schema)
        key = table.column("who" if self._by_field else "__key")
        keyed = table.append_column("__group_key", key.fill_null(""))
        rows = pa.Table.from_batches(self._assigner(iter(keyed.to_batches())), schema=self._assigner.schema)
        grouped = rows.group_by(_GROUPS, use_threads=False).aggregate(
            [("__partition", "max"), ([], "count_all"), ("amount", "sum")]
        )
        names = {"__partition_max": "__window_partition", "count_all": "a0", "amount_sum": "a1"}
        partials = split_result(
            grouped.rename_columns([names.get(name, name) for name in grouped.column_names]), ["a0", "a1"], self._scope
        )
        reports = await committer.load_reports(plan.cycle)
        return CycleResult(
            plan,
            reports,
            partials.table,
            partials.late,
            None,
            datetime.now(UTC),
            {},
            session_moves=partials.moves,
        )


class SessionRunner:
    """Runs session queries from tests that are not asynchronous."""

    def __init__(self, runner: asyncio.Runner, log: Log) -> None:
        self._runner = runner
        self._log = log

    def create(self, name: str, queue: str, gap_us: int, rules: TimeRules, *, by_field: bool) -> SessionDriver:
        return self._runner.run(SessionDriver.create(self._log, name, queue, gap_us, rules, by_field=by_field))

    def run(self, driver: SessionDriver, **options: Any) -> None:
        self._runner.run(driver.run(**options))


@contextmanager
def session_runner(url: str) -> Iterator[SessionRunner]:
    with asyncio.Runner() as runner:
        context = opened(url)
        log = runner.run(context.__aenter__())
        try:
            yield SessionRunner(runner, log)
        finally:
            runner.run(context.__aexit__(None, None, None))
            worker_connection(log.database.conninfo).close()
