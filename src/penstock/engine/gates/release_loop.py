"""Who minds the gates of a running query: releases events the moment they may pass, from what is at hand."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from penstock.core.errors import Refused
from penstock.db.pg_arrays import numbers
from penstock.db.retry import LOST
from penstock.db.statements import Statements
from penstock.engine.cycle.commit import LEDGER
from penstock.engine.cycle.models import Outcome, Target, Work
from penstock.engine.gates import planner
from penstock.engine.gates.buffer import MOST_AT_ONCE, Hand, LaneAtHand
from penstock.engine.gates.fair_queue import Turns
from penstock.engine.gates.limits import defined
from penstock.engine.gates.release import NO_TIME_US, Release, Releaser
from penstock.engine.planning import poison_search
from penstock.stream.gates import Concurrency, Gate, amount_text

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log

_sql = Statements("penstock.engine.gates", "release.sql")
_commit = Statements("penstock.engine.cycle", "commit.sql")
_reports = Statements("penstock.engine.worker", "reports.sql")
_logger = logging.getLogger("penstock.engine")

#: Whoever changes limits says here for which query and key; "" stands for all of them.
CHANNEL = "penstock_gates"
#: From one release of a lane that has to wait to the next: a few times as long as a release takes, within these bounds.
_SHORTEST_PAUSE, _LONGEST_PAUSE, _SPARED = 0.02, 0.25, 3.0
_NEVER = 2**62
#: More lanes than this are released one lot after the other, so that none holds the query's row for long.
_MOST_LANES = 1_000
#: Acks are announced; should that get lost, they are found after so long. So are lanes that could be put back.
_LOOK_SECONDS = 1.0
_PAUSED_SECONDS = 0.5
_JUMP_US = 2_000_000
#: The columns of the ledger that count what was committed: bringing events to hand commits none.
_COUNTS = ("events_in", "events_out", "windows", "late", "dead")
#: If more events than this are at hand (a large one counts as several), those of lanes that are laid down are put back,
#: longest waits first, until a quarter of it is free. Of the others nothing is put back: planning brings no more
#: than half of that, by number alone, however large they are.
MOST_AT_HAND = 2 * planner.MOST_AT_HAND
#: What nobody asks for any more is forgotten after so many cycles.
_TIDY = 1_000


class Keeper:
    """Minds the gates of one run of a query. Everything happens in one event loop."""

    def __init__(
        self,
        log: Log,
        target: Target,
        gates: Sequence[Gate],
        done: Callable[[Outcome, dict[int, int]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._target = target
        self._gates = tuple(gates)
        #: Where lanes share a gate.
        self._turns = Turns(_MOST_LANES) if any(gate.shared for gate in gates) else None
        self._hand = Hand([gate.cost for gate in gates])
        self._releaser = Releaser(log, target, gates)
        self._done = done
        self._failed = failed
        self._conn: AsyncConnection[Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._due: list[tuple[int, int]] = []
        #: The database's clock less this process's, in microseconds.
        self._ahead_us = 0
        #: For which keys limits have changed since the last release began.
        self._heard: set[str] = set()
        self._tidied = 0
        self._put_back_from = 0.0
        self._releasing = asyncio.Lock()

    async def prepare(self) -> None:
        """Write down what the gates are."""
        log, target = self._log, self._target
        for gate in self._gates:
            if isinstance(gate, Concurrency):
                await log.group_book.subscribe(await log.catalog.get(target.sink or ""), gate.group)
        async with log.database.connection() as conn, conn.transaction():
            about = {"query": target.query, "fence": target.fence}
            if await (await conn.execute(_sql["lock_query"], about)).fetchone() is None:
                raise Refused(f"query {target.name!r} was taken over by another driver")
            has_changed = False
            for place, gate in enumerate(self._gates, 1):
                limit = defined(gate)
                params = {
                    "query": target.query,
                    "gate": place,
                    "kind": limit.kind,
                    "amount": amount_text(limit.amount),
                    "rate": amount_text(limit.rate) if limit.rate else None,
                    "window": limit.window_us or None,
                    "group": gate.group if isinstance(gate, Concurrency) else None,
                    "shared": gate.shared,
                }
                has_changed |= await (await conn.execute(_sql["store_rule"], params)).fetchone() is not None
            await conn.execute(_sql["forget_rules"], {"query": target.query, "gates": len(self._gates)})
            if has_changed:
                await conn.execute(_sql["settle"], {"name": target.name})
            # What lanes share may have been kept for one that is paused by now, which only who kept it could tell.
            until = None if self._turns is None else NO_TIME_US - 1_000_000
            for *_, group in target.groups:
                await conn.execute(_sql["take_up_all"], {"query": target.query, "group": group, "until": until})

    async def start(self) -> None:
        """Begin to release."""
        self._tasks = [asyncio.create_task(self._guarded(self._run())), asyncio.create_task(self._listen())]
        if any(isinstance(gate, Concurrency) for gate in self._gates):
            self._tasks.append(asyncio.create_task(self._guarded(self._hear_acks())))

    async def close(self) -> None:
        """End, between two releases."""
        async with self._releasing:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def take(self, work: Work, table: pa.Table | None) -> None:
        """Take to hand what a cycle has read; the table's rows are in order, and the work has an event for each."""
        failures = [failure for report in work.reports for failure in report.failures]
        taken, late = self._hand.add(work.plan, failures, table, work.outputs)
        for lane in taken:
            if lane.due_us < _NEVER:
                self._push(lane)
        await self._note(work, late)
        self._wake.set()

    async def _note(self, work: Work, late: Sequence[int]) -> None:
        """Write into the ledger that a cycle's events are at hand."""
        target = self._target
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute("SET LOCAL synchronous_commit = off")
            row = await (await conn.execute(_commit["lock_query"], {"query": target.query})).fetchone()
            if row is None or row[0] != target.fence:
                raise Refused(f"query {target.name!r} was taken over by another driver")
            done = {
                "query": target.query,
                "cycle": work.plan.cycle,
                "started": work.started_at,
                "took": json.dumps({name: round(ms, 1) for name, ms in work.took.items()}),
                "dropped": sum(sum(report.dropped.values()) for report in work.reports),
                "oldest": None,
                "watermark": None,
            }
            await conn.execute(_commit["finish_cycle"], {**done, **dict.fromkeys(_COUNTS, 0)})
            if late:
                put = {"query": target.query, "cycle": work.plan.cycle, "partitions": numbers(late)}
                await conn.execute(_sql["put_back"], put)
            if row[3] is not None:
                left = poison_search.after_success(poison_search.decode(row[3]), work.plan)
                params = {"query": target.query, "fence": target.fence}
                encoded = None if left is None else poison_search.encode(left)
                await conn.execute(_commit["suspect"], {**params, "suspicion": encoded})
            if work.plan.cycle // _TIDY != self._tidied:
                self._tidied = work.plan.cycle // _TIDY
                params = {"query": target.query, "fence": target.fence, "cycle": work.plan.cycle}
                await conn.execute(_reports["forget"], params)
                await conn.execute(_commit["forget_cycles"], {**params, "cycle": work.plan.cycle - LEDGER})

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)

    # The clock

    def _now_us(self) -> int:
        return time.monotonic_ns() // 1000 + self._ahead_us

    def _push(self, lane: LaneAtHand) -> None:
        heapq.heappush(self._due, (lane.due_us, lane.partition_id))
        if len(self._due) > 4 * len(self._hand.lanes) + _MOST_LANES:
            self._tidy_due()

    def _tidy_due(self) -> None:
        """Forget times at which nobody is to be looked at any more."""
        lanes = self._hand.lanes
        self._due = [each for each in set(self._due) if each[1] in lanes and lanes[each[1]].due_us == each[0]]
        heapq.heapify(self._due)

    async def _run(self) -> None:
        await self._set_clock()
        while True:
            self._wake.clear()
            lanes = self._lanes_due()
            if lanes:
                async with self._releasing:
                    await self._release(lanes)
                    if self._hand.size > MOST_AT_HAND and time.monotonic() >= self._put_back_from:
                        await self._put_back()
                continue
            times = [self._due[0][0]] if self._due else []
            if self._turns is not None and self._turns.next_us is not None:
                times.append(self._turns.next_us)
            pause = max((min(times) - self._now_us()) / 1e6, 0.0) if times else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _lanes_due(self) -> list[LaneAtHand]:
        now, turns = self._now_us(), self._turns
        found: dict[int, None] = {}
        while self._due and self._due[0][0] <= now and (turns is not None or len(found) < _MOST_LANES):
            due, partition = heapq.heappop(self._due)
            lane = self._hand.lanes.get(partition)
            if lane is not None and lane.due_us == due:
                found[partition] = None
        lot = found if turns is None else turns.lot(set(found), self._hand.lanes, now)
        return [self._hand.lanes[partition] for partition in lot]

    async def _set_clock(self) -> None:
        conn = await self._connection()
        row = await (await conn.execute("SELECT penstock.micros(clock_timestamp())")).fetchone()
        if row is not None:
            self._ahead_us = row[0] - time.monotonic_ns() // 1000

    # Releasing

    async def _release(self, lanes: Sequence[LaneAtHand]) -> None:
        began, heard = time.monotonic(), set[str]()
        self._heard = heard
        release = await self._once(lanes)
        took = time.monotonic() - began
        ahead = release.now_us - release.read_us
        # An answer that came late says little of the clock, unless that was put forward or back.
        self._ahead_us = ahead if abs(ahead - self._ahead_us) > _JUMP_US else max(ahead, self._ahead_us - 1000)
        if release.is_paused:
            await asyncio.sleep(_PAUSED_SECONDS)
        rest_us = self._now_us() + int(min(max(_SPARED * took, _SHORTEST_PAUSE), _LONGEST_PAUSE) * 1e6)
        if self._turns is not None and release.decision is not None:
            self._turns.go_on(release.decision, rest_us)
        positions = {}
        for lane in lanes:
            verdict = release.verdicts.get(lane.partition_id)
            if verdict is not None:
                self._hand.drop(lane, verdict.passed, release.stops[lane.partition_id])
                positions[lane.partition_id] = lane.position
                lane.waits_for_acks = verdict.waits_for_acks
                lane.is_laid_down = lane.partition_id in release.laid_down
                lane.due_us = rest_us if verdict.next_us is None else max(verdict.next_us, rest_us)
                if len(lane) and (lane.partition_id in release.paused_lanes or verdict.waits_for_acks):
                    lane.due_us = _NEVER
            is_heard = "" in heard or lane.key in heard
            # Of a query that is paused nothing was decided, whatever its lanes waited for before.
            if is_heard or verdict is None:
                lane.due_us = rest_us
            # Of a lane whose events were all left out on the way, nothing is at hand, and its position has to move.
            is_behind = len(lane) or lane.position != lane.upto
            # Who waits for its turn is kept there.
            has_turn = verdict is not None and verdict.behind and not is_heard
            if lane.partition_id in self._hand.lanes and lane.due_us < _NEVER and is_behind and not has_turn:
                self._push(lane)
        if release.request is not None:
            self._log.appender.announce([release.request])
        self._done(release.outcome, positions)

    async def _put_back(self) -> None:
        """Let go of what lanes hold that wait longest; whoever plans is told to read it again when it is their time."""
        most = MOST_AT_HAND * 3 // 4
        lanes = self._hand.surplus(most, () if self._turns is None else self._turns.awaited)
        # Before it is written down: what a cycle brings of them meanwhile does not follow anything that is at hand.
        self._hand.put_back(lanes)
        if self._hand.size > most and len(lanes) < MOST_AT_ONCE:
            # Who looks at all lanes after every release does nothing else.
            self._put_back_from = time.monotonic() + _LOOK_SECONDS
        if not lanes:
            return
        if self._turns is not None:
            self._turns.forget(lane.partition_id for lane in lanes)
        conn, target = await self._connection(), self._target
        try:
            async with conn.transaction():
                about = {"query": target.query, "fence": target.fence}
                row = await (await conn.execute(_sql["begin"], about)).fetchone()
                if row is None:
                    raise Refused(f"query {target.name!r} was taken over by another driver")
                put = {**about, "cycle": row[0] - 1, "partitions": numbers([lane.partition_id for lane in lanes])}
                await conn.execute(_sql["put_back"], put)
        except (*LOST, psycopg.errors.IdleInTransactionSessionTimeout) as error:
            raise Refused(f"the connection was lost while lanes were put back: {error}") from error
        self._hand.note_put_back(lanes, row[0] - 1)
        self._tidy_due()

    async def _once(self, lanes: Sequence[LaneAtHand]) -> Release:
        from penstock.log.write.append import MOST_LOOKS, moved_on

        once, kept = (False, {}) if self._turns is None else (self._turns.has_more, self._turns.kept)
        for looks in range(MOST_LOOKS):
            conn = await self._connection()
            try:
                return await self._releaser.release(conn, lanes, once=once, kept=kept)
            except psycopg.ProgrammingError as error:
                if not moved_on(error) or looks == MOST_LOOKS - 1:
                    raise
                await self._log.catalog.refresh(self._target.sink or "")
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if looks == MOST_LOOKS - 1:
                    raise
            except (*LOST, psycopg.errors.IdleInTransactionSessionTimeout) as error:
                # Whether it got through is in the database: who begins anew begins where the positions are.
                raise Refused(f"the connection was lost in a release: {error}") from error
        raise AssertionError

    async def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None:
            self._conn = await self._log.database.connect()
            # A driver that stands still in a transaction holds the query's row: no longer than its lease.
            await self._conn.execute(
                "SELECT set_config('TimeZone', 'UTC', false), set_config('jit', 'off', false), "
                "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
                "ELSE current_setting('synchronous_commit') END, false), "
                "set_config('idle_in_transaction_session_timeout', %s, false)",
                (f"{self._target.lease_seconds * 1000:.0f}ms",),
            )
        return self._conn

    # Being told

    def _reconsider(self, lanes: Iterable[LaneAtHand]) -> None:
        for lane in lanes:
            lane.due_us = self._now_us()
            self._push(lane)
        self._wake.set()

    async def _listen(self) -> None:
        """Hear of limits that have changed. What was said while nobody listened may concern every lane."""
        while True:
            try:
                async with await self._log.database.connect() as conn:
                    await conn.execute(f"LISTEN {CHANNEL}")
                    self._on_change("")
                    async for notice in conn.notifies():
                        # Anybody may say anything here.
                        with contextlib.suppress(ValueError, TypeError):
                            query, key = json.loads(notice.payload)
                            if query == self._target.name:
                                self._on_change(key)
            except (*LOST, psycopg.Error) as error:
                _logger.debug("the listening connection was lost: %s", error)
                await asyncio.sleep(1.0)

    def _on_change(self, key: str) -> None:
        self._heard.add(key)
        self._reconsider(self._hand.of(key))

    async def _hear_acks(self) -> None:
        queue = await self._log.catalog.get(self._target.sink or "")
        signals = self._log.signals
        while True:
            seen = signals.count(queue.id)
            waiting = [lane for lane in self._hand.lanes.values() if lane.waits_for_acks]
            if waiting:
                self._reconsider(waiting)
                await asyncio.sleep(_SHORTEST_PAUSE)
            await signals.wait(queue.id, seen, _LOOK_SECONDS)
