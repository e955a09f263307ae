"""The transaction that ends a cycle: it stores state, outputs, positions and dead letters together or not at all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection

from penstock.core.errors import LeaseLost
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry
from penstock.db.statements import Statements
from penstock.engine.alerts.alert_events import AlertEvent
from penstock.engine.alerts.evaluate import evaluate_rules
from penstock.engine.cycle.commit_steps import (
    LockedQuery,
    PositionMove,
    advance_positions,
    delete_old_cycles,
    finish_cycle,
    lock_query,
    open_commit_connection,
    widen_search,
)
from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget, CycleResult
from penstock.engine.cycle.dead_letters import store_dead_letters
from penstock.engine.cycle.output_events import partition_outputs, rekey_window, windows_to_outputs
from penstock.engine.cycle.partials import ALL_PARTITIONS
from penstock.engine.cycle.result_merge import (
    merge_closed_sessions,
    merge_open_sessions,
    merge_partials,
    stage_partials,
)
from penstock.engine.cycle.watermarks import Watermarks
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.planning import poison_search
from penstock.engine.planning.poison_search import PoisonSearch
from penstock.engine.results.output_rows import OutputEvent, OutputRows
from penstock.engine.views.view_changes import change_events
from penstock.engine.worker.event_time import to_timestamp
from penstock.engine.worker.task_reports import TaskReport, decode_reports
from penstock.log.catalog import MAX_LAYOUT_RETRIES, is_layout_change
from penstock.log.log import Log
from penstock.log.notify import cycle_topic
from penstock.log.queue import Queue
from penstock.log.write.flush import AppendRequest

_sql = Statements("penstock.engine.cycle", "commit.sql")
_reports = Statements("penstock.engine.worker", "task_reports.sql")

#: Old cycles, reports and history are deleted every so many commits.
_CLEANUP_COMMITS = 100


class CycleTooLarge(Exception):
    """A value of a cycle is too large for a table or an index. The search for a poison event finds its cause."""


class _Stopwatch:
    """Measures the parts of a commit in milliseconds."""

    def __init__(self, took: dict[str, float]) -> None:
        self._took = took
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self._took[part] = (now - self._last) * 1000
        self._last = now


#: Alerts by queue.
_Alerts: TypeAlias = Sequence[tuple[Queue, Sequence[AlertEvent]]]


class Committer:
    """Commits the cycles of one query over its own connection."""

    def __init__(self, log: Log, target: CommitTarget) -> None:
        self._log = log
        self._target = target
        self._conn: AsyncConnection[Any] | None = None
        self._commits_since_cleanup = 0
        self._alert_queues: set[str] = set()
        self._watermarks = Watermarks(log.catalog, target)

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def commit(self, result: CycleResult) -> CommitStats:
        """Commit a cycle exactly once, also if the connection is lost meanwhile."""
        retry = DatabaseRetry(self._log.retry_seconds)
        may_be_committed = False
        for attempt in count():
            try:
                conn = await self._connection()
                if may_be_committed and await self._lock_cycle(conn, result.plan.cycle):
                    return CommitStats(events_in=result.plan.events)
                stats, request = await self._commit_once(conn, result)
                if request is not None:
                    self._log.appender.announce([request])
                self._log.notifier.notify(cycle_topic(self._target.query_id))
                await self._clean_up(conn, result.plan.cycle)
                return stats
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error) or attempt > MAX_LAYOUT_RETRIES or self._target.sink is None:
                    raise
                for queue in (self._target.sink, *self._alert_queues):
                    await self._log.catalog.refresh(queue)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if attempt > MAX_LAYOUT_RETRIES:
                    raise
            except psycopg.errors.ProgramLimitExceeded as error:
                # A subclass of OperationalError, but no retry helps.
                raise CycleTooLarge(str(error).strip()) from error
            except (*CONNECTION_ERRORS, psycopg.errors.IdleInTransactionSessionTimeout) as error:
                may_be_committed = True
                await self.close()
                await retry.pause(error)
        raise AssertionError

    async def load_reports(self, cycle: int) -> list[TaskReport]:
        conn = await self._connection()
        rows = await conn.execute(_reports["load_reports"], self._cycle_params(cycle), binary=True)
        return decode_reports(await rows.fetchall())

    async def record_failure(self, plan: CyclePlan, error: str, search: PoisonSearch | None) -> None:
        """Write the error of a cycle to the ledger, and store the search for the event that causes it."""
        conn = await self._connection()
        params = {"query": self._target.query_id, "cycle": plan.cycle, "error": error[:10_000]}
        await conn.execute(_sql["fail_cycle"], params)
        if search is not None:
            params = {
                "query": self._target.query_id,
                "fence": self._target.fence,
                "poison_search": poison_search.encode(search),
            }
            await conn.execute(_sql["store_poison_search"], params)

    async def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            conn = await open_commit_connection(self._log.database, self._target.lease_seconds)
            if self._target.result_tables is not None:
                await conn.execute(self._target.result_tables.statement("create_staging_table"))
            if self._target.view_table is not None:
                await conn.execute(self._target.view_table.create_staging_table())
            self._conn = conn
        return self._conn

    def _cycle_params(self, cycle: int) -> dict[str, int]:
        return {"query": self._target.query_id, "fence": self._target.fence, "cycle": cycle}

    async def _lock_cycle(self, conn: AsyncConnection[Any], cycle: int) -> bool | None:
        """Lock a cycle in the ledger. Returns whether it is committed; None if it does not exist."""
        row = await (await conn.execute(_sql["lock_cycle"], self._cycle_params(cycle))).fetchone()
        return None if row is None else row == (True,)

    async def _commit_once(
        self, conn: AsyncConnection[Any], result: CycleResult
    ) -> tuple[CommitStats, AppendRequest | None]:
        target = self._target
        stats = CommitStats(
            events_in=sum(partition.events for report in result.reports for partition in report.partitions),
            dropped=sum(sum(report.dropped.values()) for report in result.reports),
        )
        stopwatch = _Stopwatch(result.took)
        async with conn.transaction():
            # Before locks are taken: the server does not time out a COPY that hangs.
            if target.result_tables is not None and result.partials is not None:
                await stage_partials(conn, target.result_tables, result.partials)
            if target.view_table is not None and result.view_changes is not None:
                await target.view_table.stage(conn, result.view_changes)
            stopwatch.lap("copy")
            query = await lock_query(conn, target)
            if await self._lock_cycle(conn, result.plan.cycle) is not False:
                raise LeaseLost(
                    f"cycle {result.plan.cycle} of query {target.name!r} is committed or no longer in the ledger"
                )
            moves = [PositionMove(p.group_id, p.partition_id, p.start, p.stop) for p in result.plan.partitions]
            await advance_positions(conn, target.name, moves, query.now)
            watermarks = await self._watermarks.advance(conn, result, query)
            stopwatch.lap("advance")
            window_events, alerts = await self._merge_windows(conn, result, query, watermarks, stats)
            if target.join_state is not None:
                flushed_us = watermarks.get(ALL_PARTITIONS) if result.is_flush else None
                await target.join_state.apply(conn, result.plan, result.job_token, flushed_us)
            view_events = await self._apply_view_changes(conn, result, query, stats)
            stopwatch.lap("merge")
            await store_dead_letters(conn, self._log, target, result, stats)
            stopwatch.lap("dead letters")
            outputs = view_events or result.outputs or OutputRows.of(window_events)
            stats.events_out = len(outputs)
            request = await self._append(conn, outputs, alerts)
            stopwatch.lap("append")
            await self._finish_cycle(conn, result, stats, query.poison_search, watermarks)
        return stats, request

    async def _merge_windows(
        self,
        conn: AsyncConnection[Any],
        result: CycleResult,
        query: LockedQuery,
        watermarks: Mapping[int, int],
        stats: CommitStats,
    ) -> tuple[Sequence[OutputEvent], _Alerts]:
        """Merge partial aggregates into the result tables and close windows. Returns their events and alerts."""
        target, tables, now = self._target, self._target.result_tables, query.now
        if tables is None or result.partials is None:
            return [], []
        closing_ends = {partition: us - target.close_delay_us for partition, us in watermarks.items()}
        await merge_open_sessions(conn, tables, result.session_moves, now)
        replaced = await merge_closed_sessions(conn, tables, result.session_moves, closing_ends, now)
        if query.is_repartitioned:
            await conn.execute(tables.statement("reassign_partitions"))
        closed = await merge_partials(conn, tables, result.partials, closing_ends, now)
        events = windows_to_outputs(closed)
        stats.windows = len(events)
        alerts: _Alerts = []
        if target.sink is not None:
            ends = [hidden_end for _, _, event, hidden_end in closed if event is not None]
            alerts = await evaluate_rules(conn, self._log.catalog, target.sink, events, ends, now)
        # Events that retract a session come before the session that replaces it.
        outputs = [*replaced, *events]
        if target.window_key is not None:
            outputs = [rekey_window(line, target.window_key) for _, line in outputs]
        return outputs, alerts

    async def _apply_view_changes(
        self, conn: AsyncConnection[Any], result: CycleResult, query: LockedQuery, stats: CommitStats
    ) -> OutputRows | None:
        """Apply the changes of a view to its table. Returns the events of its changes queue."""
        table, changes = self._target.view_table, result.view_changes
        if table is None or changes is None:
            return None
        await table.apply(conn, changes, result.job_token, query.now)
        # A cycle that expires state may need more for a moment.
        if self._target.state_limit is not None and not result.plan.is_expiry:
            await self._target.state_limit.check(conn)
        stats.changes = changes.count
        if self._target.sink is None:
            return None
        return change_events(changes, table.columns, result.plan.cycle, query.now)

    async def _append(self, conn: AsyncConnection[Any], outputs: OutputRows, alerts: _Alerts) -> AppendRequest | None:
        if not len(outputs) or self._target.sink is None:
            return None
        pieces = [partition_outputs(await self._log.catalog.get(self._target.sink), outputs)]
        for queue, events in alerts:
            self._alert_queues.add(queue.name)
            keyed = OutputRows.of([(event.key, event.line) for event in events])
            pieces.append(partition_outputs(queue, keyed, [event.id for event in events]))
        request = AppendRequest(pieces)
        partition_ids = await self._log.appender.partition_ids([request])
        await self._log.appender.append_on(conn, [request], partition_ids)
        return request

    async def _finish_cycle(
        self,
        conn: AsyncConnection[Any],
        result: CycleResult,
        stats: CommitStats,
        search: bytes | None,
        watermarks: Mapping[int, int],
    ) -> None:
        """Write the cycle to the ledger, and extend the lease."""
        appended = [partition.first_appended_us for report in result.reports for partition in report.partitions]
        oldest = min(filter(None, appended), default=None)
        await finish_cycle(
            conn,
            self._target,
            result,
            stats,
            oldest=None if oldest is None else to_timestamp(oldest),
            watermark=to_timestamp(min(watermarks.values())) if watermarks else None,
        )
        params = {
            "query": self._target.query_id,
            "lease": timedelta(seconds=self._target.lease_seconds),
            "poison_search": widen_search(search, result.plan),
        }
        await conn.execute(_sql["extend_lease"], params)

    async def _clean_up(self, conn: AsyncConnection[Any], cycle: int) -> None:
        """Delete reports, old cycles and old history from time to time."""
        target = self._target
        self._commits_since_cleanup += 1
        if self._commits_since_cleanup < _CLEANUP_COMMITS:
            return
        self._commits_since_cleanup = 0
        await delete_old_cycles(conn, target, cycle)
        if target.result_tables is not None:
            statement = target.result_tables.statement("delete_old_history")
            await conn.execute(statement, {"seconds": target.history_seconds})
