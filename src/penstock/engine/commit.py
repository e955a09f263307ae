"""The transaction that ends a cycle: state, outputs, cursors and dead letters appear together, or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute

from penstock.core.errors import Refused, WindowKeyFailed
from penstock.core.json import decode
from penstock.db.arrays import numbers
from penstock.db.patience import LOST, Patience
from penstock.db.statements import Statements
from penstock.engine import suspicion
from penstock.engine.callables import Failure
from penstock.engine.moments import EPOCH, FIRST, LAST, micros
from penstock.engine.plan import CyclePlan
from penstock.engine.reports import Report
from penstock.engine.staging import Closing, as_csv
from penstock.engine.suspicion import Suspicion
from penstock.engine.tables import ResultTables
from penstock.log import chunk
from penstock.log.append import MOST_LOOKS, moved_on
from penstock.log.flush import Request
from penstock.log.position import Signal
from penstock.log.prepare import PIECE_EVENTS, Piece
from penstock.log.queue import Queue
from penstock.log.signals import cycles_of

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log
    from penstock.stream.definition import TimeRules

_sql = Statements("penstock.engine", "commit.sql")
_reports = Statements("penstock.engine", "reports.sql")

#: The ledger keeps so many cycles of a query.
LEDGER = 10_000


class TooLarge(Exception):
    """A cycle that no table holds; whoever looks for the event that is to blame finds it."""


@dataclass(frozen=True)
class Work:
    """What a cycle came to, before it is committed."""

    plan: CyclePlan
    reports: Sequence[Report]
    #: Partials with the columns of the temporary table, or None for a stream without windows.
    partials: pa.Table | None
    #: Events that came late and are not counted: partition and offset.
    late: Sequence[tuple[int, int]]
    #: Events for the sink: key and JSON.
    outputs: Sequence[tuple[str | None, bytes]]
    started_at: datetime
    took: dict[str, float]
    #: Close every window that is open, whatever the time.
    flush: bool = False
    #: Sessions that have become others: key, new and old span.
    moves: Sequence[dict[str, Any]] = ()


@dataclass
class Outcome:
    """What a commit did."""

    events_in: int = 0
    events_out: int = 0
    windows: int = 0
    late: int = 0
    dead: int = 0
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """The query that cycles are committed for."""

    query: int
    name: str
    fence: int
    lease_seconds: float
    #: Queue name, queue id, group name and id of what it reads.
    groups: Sequence[tuple[str, int, str, int]]
    tables: ResultTables | None
    rules: TimeRules
    closing: Closing
    sink: str | None
    keeps_late: str
    history_seconds: float
    #: What chooses the key of a closed window's event; None: the window's own.
    window_key: Any = None


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
        #: Whether there may be windows of events without a key, which all partitions close together.
        self._has_keyless: bool | None = None

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
                await self._log.catalog.refresh(self._target.sink)
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
                "suspicion": suspicion.encode(suspects),
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
            self._conn = conn
        return self._conn

    async def _is_committed(self, conn: AsyncConnection[Any], cycle: int) -> bool:
        params = {"query": self._target.query, "fence": self._target.fence, "cycle": cycle}
        row = await (await conn.execute(_sql["lock_cycle"], params)).fetchone()
        return row is not None and row[0] is not None

    async def _once(self, conn: AsyncConnection[Any], work: Work) -> tuple[Outcome, Request | None]:
        target, plan = self._target, work.plan
        outcome = Outcome(events_in=sum(mark.events for report in work.reports for mark in report.marks))
        watch = _Stopwatch(work.took)
        async with conn.transaction():
            # Before anything is locked: a COPY that stands still is not ended by the server.
            await self._stage(conn, work.partials)
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
            bounds = await self._advance(conn, work, now, closed_us)
            watch.lap("advance")
            lines: list[tuple[str | None, bytes]] = list(work.outputs)
            if target.tables is not None and work.partials is not None:
                await self._move_spans(conn, work.moves, now)
                if is_repartitioned:
                    await conn.execute(target.tables.statement("follow"))
                closed = await self._merge(conn, work.partials, bounds, now)
                outcome.windows = len(closed)
                lines += (
                    closed if target.window_key is None else [_rekeyed(line, target.window_key) for _, line in closed]
                )
            watch.lap("merge")
            await self._bury(conn, work, outcome)
            watch.lap("dead letters")
            outcome.events_out = len(lines)
            request = await self._append(conn, lines)
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

    async def _advance(
        self, conn: AsyncConnection[Any], work: Work, now: datetime, closed_us: int | None
    ) -> dict[int, int]:
        """How far time has come: for each partition (or for all, as 0) up to where windows close."""
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
            queue = await self._queue(queue_name)
            asked = {"group": group_id, "partitions": numbers(sorted(idle))}
            statement = _sql.table("unread", queue_id, queue.segment)
            idle -= {p for (p,) in await (await conn.execute(statement, asked)).fetchall()}
        floor = micros(now) - rules.idle_flush_us - rules.lateness_us
        if idle:
            await self._raise_floors(conn, dict.fromkeys(idle, floor))
        for partition in idle:
            bounds[partition] = max(floor, bounds.get(partition, floor))

    async def _joint_bound(self, conn: AsyncConnection[Any], now: datetime, closed_us: int | None) -> dict[int, int]:
        """Up to where all partitions together have come; those that are idle do not count."""
        rules = self._target.rules
        clock = micros(now) - rules.idle_flush_us - rules.lateness_us
        lowest: int | None = None
        for queue_name, queue_id, _, group_id in self._target.groups:
            queue = await self._queue(queue_name)
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

    async def _move_spans(self, conn: AsyncConnection[Any], moves: Sequence[dict[str, Any]], now: datetime) -> None:
        """Give sessions their new spans; those that have become one, one after the other."""
        tables = self._target.tables
        rounds: list[list[dict[str, Any]]] = []
        seen: dict[tuple[str, int, int], int] = {}
        for move in moves:
            place = seen[move["__k"], move["__ws"], move["__we"]] = (
                seen.get((move["__k"], move["__ws"], move["__we"]), -1) + 1
            )
            if place == len(rounds):
                rounds.append([])
            rounds[place].append(move)
        for some in rounds:
            params = {
                "keys": [move["__k"] for move in some],
                "old_starts": numbers([move["__old_ws"] for move in some]),
                "old_ends": numbers([move["__old_we"] for move in some]),
                "starts": numbers([move["__ws"] for move in some]),
                "ends": numbers([move["__we"] for move in some]),
                "now": now,
            }
            if tables is not None:
                await conn.execute(tables.statement("move_spans"), params)

    async def _stage(self, conn: AsyncConnection[Any], partials: pa.Table | None) -> None:
        if self._target.tables is not None and partials is not None and partials.num_rows:
            async with conn.cursor().copy(self._target.tables.statement("copy")) as copy:
                await copy.write(as_csv(partials))

    async def _merge(
        self, conn: AsyncConnection[Any], partials: pa.Table, bounds: dict[int, int], now: datetime
    ) -> list[tuple[str | None, bytes]]:
        """Merge the partials into the live rows; returns the windows that closed, as events."""
        tables = self._target.tables
        assert tables is not None  # noqa: S101 - the caller looked
        has_late = bool(partials.num_rows) and pa.compute.any(partials.column("late")).as_py()
        # Windows that end then, or before, close.
        ends = {partition: bound - self._target.rules.grace_us for partition, bound in bounds.items()}
        params = {
            "partitions": numbers(list(ends)),
            "bounds": numbers(list(ends.values())),
            "closed": [_moment(end) for end in ends.values()],
            "latest": _moment(max(ends.values(), default=0)),
            "now": now,
            "late": False,
        }
        closed: list[tuple[str | None, bytes]] = []
        if partials.num_rows:
            await conn.execute(tables.statement("keep_open"), params)
        if bounds:
            closed += _events(await self._close(conn, tables, params))
        if has_late:
            await conn.execute(tables.statement("keep_open"), {**params, "late": True})
            closed += _events(await (await conn.execute(tables.statement("reopen"), params)).fetchall())
        return closed

    async def _close(
        self, conn: AsyncConnection[Any], tables: ResultTables, params: dict[str, Any]
    ) -> list[tuple[str, int, str]]:
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
        late = [where for where in work.late if where not in dead]
        outcome.late = len(late)
        if self._target.keeps_late == "dead_letter":
            for partition, offset in late:
                reason = "late: its window was closed before it came; redrive it to correct the window"
                dead[partition, offset] = Failure(partition, offset, "window", reason)
        outcome.dead = len(dead)
        outcome.failures = list(dead.values())
        names = {lane.partition_id: lane.queue_id for lane in work.plan.lanes}
        by_id = {queue_id: (queue, group) for queue, queue_id, group, _ in self._target.groups}
        by_lane: dict[int, list[tuple[Signal, int]]] = {}
        for (partition, _), failure in sorted(dead.items()):
            signal = Signal(failure.offset, "dead_letter", failure.error, failure.stage, failure.traceback)
            by_lane.setdefault(partition, []).append((signal, failure.attempts))
        for partition, signals in by_lane.items():
            queue_name, group = by_id[names[partition]]
            await self._log.burials.bury(conn, await self._queue(queue_name), group, partition, signals)

    async def _append(self, conn: AsyncConnection[Any], lines: list[tuple[str | None, bytes]]) -> Request | None:
        if not lines or self._target.sink is None:
            return None
        request = Request([pieces(await self._queue(self._target.sink), lines)])
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
            "took": json.dumps({name: round(ms, 1) for name, ms in work.took.items()}),
            "oldest": None if oldest is None else _moment(oldest),
            "watermark": _moment(min(bounds.values())) if bounds else None,
        }
        await conn.execute(_sql["finish_cycle"], params)
        left = None if suspects is None else suspicion.after_success(suspicion.decode(suspects), work.plan)
        params = {
            "query": target.query,
            "lease": timedelta(seconds=target.lease_seconds),
            "suspicion": None if left is None else suspicion.encode(left),
        }
        await conn.execute(_sql["extend_lease"], params)

    async def _tidy(self, conn: AsyncConnection[Any], cycle: int) -> None:
        """Forget what nobody asks for any more, now and then."""
        self._since_tidied += 1
        if self._since_tidied < 100:
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


def _moment(us: int) -> datetime:
    """A moment, or the first or last that there is."""
    return EPOCH + timedelta(microseconds=min(max(us, FIRST), LAST))


def _bound(high: int | None, floor: int | None, lateness_us: int) -> int | None:
    if high is None:
        return floor
    return high - lateness_us if floor is None else max(high - lateness_us, floor)


def _events(rows: list[tuple[str, int, str]]) -> list[tuple[str | None, bytes]]:
    """Closed windows as events; one that was corrected says how often."""
    return [
        (key or None, (line if not revision else f'{line[:-1]}, "revision" : {revision}}}').encode())
        for key, revision, line in rows
    ]


def pieces(queue: Queue, lines: Sequence[tuple[str | None, bytes]]) -> list[Piece]:
    """Events for a queue, by partition, in order."""
    places: dict[str, list[int]] = {}
    for index, (key, _) in enumerate(lines):
        places.setdefault(queue.place_event(key, None), []).append(index)
    pieces = []
    for partition, indices in places.items():
        for start in range(0, len(indices), PIECE_EVENTS):
            some = indices[start : start + PIECE_EVENTS]
            keys = queue.kept_keys(partition, [lines[i][0] for i in some])
            columns = chunk.Columns(b"\n".join(lines[i][1] for i in some), len(some), keys)
            pieces.append(Piece(queue, partition, some, columns))
    return pieces
