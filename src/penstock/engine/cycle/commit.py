"""The transaction that ends a cycle: state, outputs, cursors and dead letters appear together, or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import pyarrow as pa
import pyarrow.compute

from penstock.core.errors import Refused, WindowKeyFailed
from penstock.core.json import decode
from penstock.db.pg_arrays import numbers
from penstock.db.retry import LOST, Patience
from penstock.db.statements import Statements
from penstock.engine.alerts import evaluate
from penstock.engine.arrow_csv import as_csv
from penstock.engine.cycle.models import Outcome, Target, Work
from penstock.engine.cycle.session_merge import move_open, take_back
from penstock.engine.cycle.watermarks import Bounds
from penstock.engine.plan import CyclePlan
from penstock.engine.planning import poison_search
from penstock.engine.planning.poison_search import Suspicion
from penstock.engine.result_tables import ResultTables
from penstock.engine.worker.event_time import to_moment
from penstock.engine.worker.udf import Failure
from penstock.log.notify import cycles_of
from penstock.log.queue import Queue
from penstock.log.read.position import Signal
from penstock.log.storage import chunk
from penstock.log.write.append import MOST_LOOKS, moved_on
from penstock.log.write.encode import PIECE_EVENTS, Piece
from penstock.log.write.flush import Request

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.engine.alerts.evaluate import Rung
    from penstock.log.log import Log

_sql = Statements("penstock.engine.cycle", "commit.sql")
_reports = Statements("penstock.engine.worker", "reports.sql")

#: The ledger keeps so many cycles of a query.
LEDGER = 10_000

#: A window that has closed: its key, how often it was corrected, what is sent on of it if it is, and when it ended if
#: that may not be told there.
_Closed: TypeAlias = tuple[str, int, str | None, datetime | None]


class TooLarge(Exception):
    """A cycle that no table holds; whoever looks for the event that is to blame finds it."""


class _Stopwatch:
    """Takes down how many milliseconds each part of a commit took."""

    def __init__(self, took: dict[str, float]) -> None:
        self._took = took
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self._took[part] = (now - self._last) * 1000
        self._last = now


class Committer:
    """Commits the cycles of one query, over a connection of its own."""

    def __init__(self, log: Log, target: Target) -> None:
        self._log = log
        self._target = target
        self._conn: AsyncConnection[Any] | None = None
        self._since_tidied = 0
        #: Queues that were appended to besides the sink.
        self._alerted: set[str] = set()
        self._bounds = Bounds(log.catalog, target)

    async def close(self) -> None:
        """Let go of the connection."""
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def commit(self, work: Work) -> Outcome:
        """Commit a cycle, once, whatever happens to the connection meanwhile."""
        patience = Patience(60)
        unsure = False
        for looks in count():
            try:
                conn = await self._connection()
                if unsure and await self._is_committed(conn, work.plan.cycle):
                    return Outcome(events_in=work.plan.events)
                outcome, request = await self._once(conn, work)
                if request is not None:
                    self._log.appender.announce([request])
                self._log.signals.pushed(cycles_of(self._target.query))
                await self._tidy(conn, work.plan.cycle)
                return outcome
            except psycopg.ProgrammingError as error:
                if not moved_on(error) or looks > MOST_LOOKS or self._target.sink is None:
                    raise
                for queue in (self._target.sink, *self._alerted):
                    await self._log.catalog.refresh(queue)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if looks > MOST_LOOKS:
                    raise
            except psycopg.errors.ProgramLimitExceeded as error:
                # The database is there, and will say the same again: a value is too large for a table or an index.
                raise TooLarge(str(error).strip()) from error
            except (*LOST, psycopg.errors.IdleInTransactionSessionTimeout) as error:
                unsure = True
                await self.close()
                await patience.pause(error)
        raise AssertionError

    async def reports(self, cycle: int) -> list[tuple[int, int, bytes]]:
        """What the tasks of a cycle said."""
        conn = await self._connection()
        params = {"query": self._target.query, "fence": self._target.fence, "cycle": cycle}
        rows: list[tuple[int, int, bytes]] = await (
            await conn.execute(_reports["reports"], params, binary=True)
        ).fetchall()
        return rows

    async def fail(self, plan: CyclePlan, error: str, suspects: Suspicion | None) -> None:
        """Take note of a cycle that came to nothing, and of where to look for what stopped it."""
        conn = await self._connection()
        await conn.execute(
            _sql["fail_cycle"], {"query": self._target.query, "cycle": plan.cycle, "error": error[:10_000]}
        )
        if suspects is not None:
            params = {
                "query": self._target.query,
                "fence": self._target.fence,
                "suspicion": poison_search.encode(suspects),
            }
            await conn.execute(_sql["suspect"], params)

    async def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            conn = await self._log.database.connect()
            # Merges join thousands of rows, unlike everything else.
            # A driver that stands still in a transaction holds the query's row: no longer than its lease.
            await conn.execute(
                "SELECT set_config('TimeZone', 'UTC', false), set_config('jit', 'off', false), "
                "set_config('work_mem', '64MB', false), set_config('synchronous_commit', "
                "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
                "ELSE current_setting('synchronous_commit') END, false), "
                "set_config('idle_in_transaction_session_timeout', %s, false)",
                (f"{self._target.lease_seconds * 1000:.0f}ms",),
            )
            if self._target.tables is not None:
                await conn.execute(self._target.tables.statement("stage"))
            if self._target.waiting is not None:
                await self._target.waiting.prepare(conn)
            self._conn = conn
        return self._conn

    async def _is_committed(self, conn: AsyncConnection[Any], cycle: int) -> bool:
        params = {"query": self._target.query, "fence": self._target.fence, "cycle": cycle}
        row = await (await conn.execute(_sql["lock_cycle"], params)).fetchone()
        return row is not None and row[0] is not None

    async def _once(self, conn: AsyncConnection[Any], work: Work) -> tuple[Outcome, Request | None]:
        target, plan = self._target, work.plan
        outcome = Outcome(
            events_in=sum(mark.events for report in work.reports for mark in report.marks),
            dropped=sum(sum(report.dropped.values()) for report in work.reports),
        )
        watch = _Stopwatch(work.took)
        async with conn.transaction():
            # Before anything is locked: a COPY that stands still is not ended by the server.
            await self._stage(conn, work.partials)
            if target.waiting is not None:
                await target.waiting.stage(conn, work.kept)
            watch.lap("copy")
            row = await (await conn.execute(_sql["lock_query"], {"query": target.query})).fetchone()
            if row is None or row[0] != target.fence:
                raise Refused(f"query {target.name!r} was taken over by another driver")
            closed_us, now, suspects, is_repartitioned = row[1:]
            params = {"query": target.query, "fence": target.fence, "cycle": plan.cycle}
            held = await (await conn.execute(_sql["lock_cycle"], params)).fetchone()
            if held is None or held[0] is not None:
                raise Refused(f"cycle {plan.cycle} of query {target.name!r} is not there to be committed")
            await self._move(conn, plan, now)
            bounds = await self._bounds.after(conn, work, now, closed_us)
            watch.lap("advance")
            lines: list[tuple[str | None, bytes]] = list(work.outputs)
            alerts: list[tuple[Queue, list[Rung]]] = []
            if target.tables is not None and work.partials is not None:
                # Windows that end then, or before, close.
                ends = {partition: bound - target.rules.grace_us for partition, bound in bounds.items()}
                await move_open(conn, target.tables, work.moves, now)
                replaced = await take_back(conn, target.tables, work.moves, ends, now)
                if is_repartitioned:
                    await conn.execute(target.tables.statement("follow"))
                rows = await self._merge(conn, work.partials, ends, now)
                closed = _events(rows)
                outcome.windows = len(closed)
                if target.sink is not None:
                    untold = [row[3] for row in rows if row[2] is not None]
                    alerts = await evaluate.ring(conn, self._log.catalog, target.sink, closed, untold, now)
                # What is gone comes first.
                sent = [*replaced, *closed]
                lines += sent if target.window_key is None else [_rekeyed(line, target.window_key) for _, line in sent]
            if target.waiting is not None:
                await target.waiting.apply(conn, work.kept, closed_us, bounds.get(0) if work.flush else None)
            watch.lap("merge")
            await self._bury(conn, work, outcome)
            watch.lap("dead letters")
            outcome.events_out = len(lines)
            request = await self._append(conn, lines, alerts)
            watch.lap("append")
            await self._finish(conn, work, outcome, suspects, bounds)
        return outcome, request

    async def _move(self, conn: AsyncConnection[Any], plan: CyclePlan, now: datetime) -> None:
        if not plan.lanes:
            return
        params = {
            "groups": numbers([lane.group_id for lane in plan.lanes]),
            "partitions": numbers([lane.partition_id for lane in plan.lanes]),
            "starts": numbers([lane.start for lane in plan.lanes]),
            "stops": numbers([lane.stop for lane in plan.lanes]),
            "now": now,
        }
        row = await (await conn.execute(_sql["move"], params)).fetchone()
        if row is None or row[0] != len(plan.lanes):
            raise Refused(
                f"query {self._target.name!r}: its group is no longer where cycle {plan.cycle} began, "
                "so the cycle is planned anew"
            )

    async def _stage(self, conn: AsyncConnection[Any], partials: pa.Table | None) -> None:
        if self._target.tables is not None and partials is not None and partials.num_rows:
            async with conn.cursor().copy(self._target.tables.statement("copy")) as copy:
                await copy.write(as_csv(partials))

    async def _merge(
        self, conn: AsyncConnection[Any], partials: pa.Table, ends: dict[int, int], now: datetime
    ) -> list[_Closed]:
        """Merge the partials into the live rows; returns the windows that closed."""
        tables = self._target.tables
        assert tables is not None  # noqa: S101 - the caller looked
        has_late = bool(partials.num_rows) and pa.compute.any(partials.column("late")).as_py()
        params = {
            "partitions": numbers(list(ends)),
            "bounds": numbers(list(ends.values())),
            "closed": [to_moment(end) for end in ends.values()],
            "latest": to_moment(max(ends.values(), default=0)),
            "now": now,
            "late": False,
        }
        closed: list[_Closed] = []
        if partials.num_rows:
            await conn.execute(tables.statement("keep_open"), params)
        if ends:
            closed += await self._close(conn, tables, params)
        if has_late:
            await conn.execute(tables.statement("keep_open"), {**params, "late": True})
            closed += await (await conn.execute(tables.statement("reopen"), params)).fetchall()
        return closed

    async def _close(self, conn: AsyncConnection[Any], tables: ResultTables, params: dict[str, Any]) -> list[_Closed]:
        """Close windows. That one was closed before is rare, and minding it costs a fifth: so it is tried without."""
        try:
            async with conn.transaction():
                rows = await (await conn.execute(tables.statement("close", corrects=False), params)).fetchall()
        except psycopg.errors.UniqueViolation:
            rows = await (await conn.execute(tables.statement("close"), params)).fetchall()
        return rows

    async def _bury(self, conn: AsyncConnection[Any], work: Work, outcome: Outcome) -> None:
        """Dead letters: what failed, and what came late where late events are kept."""
        dead: dict[tuple[int, int], Failure] = {}
        for report in work.reports:
            for failure in report.failures:
                dead.setdefault((failure.partition, failure.offset), failure)
        late = [where for where in dict.fromkeys(work.late) if where not in dead]
        outcome.late = len(late)
        if self._target.keeps_late == "dead_letter":
            for partition, offset in late:
                dead[partition, offset] = Failure(partition, offset, *_late_reason(self._target))
        outcome.dead = len(dead)
        names = {lane.partition_id: lane.queue_id for lane in work.plan.lanes}
        if work.waited is not None:
            names[work.waited.partition_id] = work.waited.queue_id
        by_id = {queue_id: (queue, group) for queue, queue_id, group, _ in self._target.groups}
        by_lane: dict[int, list[tuple[Signal, int]]] = {}
        for (partition, _), failure in sorted(dead.items()):
            signal = Signal(failure.offset, "dead_letter", failure.error, failure.stage, failure.traceback)
            by_lane.setdefault(partition, []).append((signal, failure.attempts))
        copy = None if work.waited is None else work.waited.as_event()
        for partition, signals in by_lane.items():
            queue_name, group = by_id[names[partition]]
            await self._log.burials.bury(conn, await self._queue(queue_name), group, partition, signals, copy)

    async def _append(
        self,
        conn: AsyncConnection[Any],
        lines: list[tuple[str | None, bytes]],
        alerts: Sequence[tuple[Queue, list[Rung]]],
    ) -> Request | None:
        if not lines or self._target.sink is None:
            return None
        parts = [pieces(await self._queue(self._target.sink), lines)]
        for queue, some in alerts:
            self._alerted.add(queue.name)
            parts.append(pieces(queue, [(each.key, each.line) for each in some], [each.id for each in some]))
        request = Request(parts)
        lanes = await self._log.appender.lanes([request])
        await self._log.appender.append_on(conn, [request], lanes)
        return request

    async def _finish(
        self,
        conn: AsyncConnection[Any],
        work: Work,
        outcome: Outcome,
        suspects: bytes | None,
        bounds: dict[int, int],
    ) -> None:
        target = self._target
        oldest = min((mark.first_us for report in work.reports for mark in report.marks if mark.first_us), default=None)
        params = {
            "query": target.query,
            "cycle": work.plan.cycle,
            "started": work.started_at,
            "events_in": outcome.events_in,
            "events_out": outcome.events_out,
            "windows": outcome.windows,
            "late": outcome.late,
            "dead": outcome.dead,
            "dropped": outcome.dropped,
            "took": json.dumps({name: round(ms, 1) for name, ms in work.took.items()}),
            "oldest": None if oldest is None else to_moment(oldest),
            "watermark": to_moment(min(bounds.values())) if bounds else None,
        }
        await conn.execute(_sql["finish_cycle"], params)
        left = None if suspects is None else poison_search.after_success(poison_search.decode(suspects), work.plan)
        params = {
            "query": target.query,
            "lease": timedelta(seconds=target.lease_seconds),
            "suspicion": None if left is None else poison_search.encode(left),
        }
        await conn.execute(_sql["extend_lease"], params)

    async def _tidy(self, conn: AsyncConnection[Any], cycle: int) -> None:
        """Forget what nobody asks for any more, now and then."""
        self._since_tidied += 1
        # The reports of a join have what begins to wait in them.
        if self._since_tidied < (100 if self._target.waiting is None else 10):
            return
        self._since_tidied = 0
        params = {"query": self._target.query, "fence": self._target.fence, "cycle": cycle}
        await conn.execute(_reports["forget"], params)
        await conn.execute(_sql["forget_cycles"], {"query": self._target.query, "cycle": cycle - LEDGER})
        if self._target.tables is not None:
            await conn.execute(
                self._target.tables.statement("forget_history"), {"seconds": self._target.history_seconds}
            )

    async def _queue(self, name: str) -> Queue:
        return await self._log.catalog.get(name)


def _late_reason(target: Target) -> tuple[str, str]:
    """The stage that an event came too late for, and what can be done."""
    if target.waiting is not None:
        return "join", "late: what it belongs to waits no longer; redrive it to join it with what still waits"
    return "window", "late: its window was closed before it came; redrive it to correct the window"


def _rekeyed(line: bytes, key: Any) -> tuple[str | None, bytes]:
    """A closed window with the key that a function of it, or one of its fields, gives."""
    window = decode(line)
    try:
        found = key(window) if callable(key) else window.get(key)
    except Exception as error:
        raise WindowKeyFailed(
            f".to(..., partition=...) failed for the window {line[:200].decode(errors='replace')}: "
            f"{type(error).__name__}: {error}; mend the function and start the query again"
        ) from error
    return None if found is None else str(found), line


def _events(rows: list[_Closed]) -> list[tuple[str | None, bytes]]:
    """Closed windows as events; one that was corrected says how often. Those without a line are not sent on."""
    return [
        (key or None, (line if not revision else f'{line[:-1]}, "revision" : {revision}}}').encode())
        for key, revision, line, _ in rows
        if line is not None
    ]


def pieces(queue: Queue, lines: Sequence[tuple[str | None, bytes]], ids: Sequence[str] | None = None) -> list[Piece]:
    """Events for a queue, by partition, in order."""
    places: dict[str, list[int]] = {}
    for index, (key, _) in enumerate(lines):
        places.setdefault(queue.place_event(key, None), []).append(index)
    pieces = []
    for partition, indices in places.items():
        for start in range(0, len(indices), PIECE_EVENTS):
            some = indices[start : start + PIECE_EVENTS]
            keys = queue.kept_keys(partition, [lines[i][0] for i in some])
            named = None if ids is None else [ids[i] for i in some]
            columns = chunk.Columns(b"\n".join(lines[i][1] for i in some), len(some), keys, named)
            pieces.append(Piece(queue, partition, some, columns))
    return pieces
