"""Plans the cycles of a query: which offsets the next cycle reads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg.rows import args_row

from penstock.core.errors import LeaseLost
from penstock.db.scalar import fetch_scalar_sync
from penstock.db.statements import Statements
from penstock.db.sync_connection import connect
from penstock.engine import cycle_plan as plans
from penstock.engine.cycle_plan import CyclePlan, PartitionRange, SourceGroup, assign_tasks
from penstock.engine.joins.join_state import JoinState
from penstock.engine.joins.unmatched_rows import ExpiredRows, UnmatchedRows
from penstock.engine.planning import poison_search
from penstock.engine.planning.cycle_size import CycleSize, divide_evenly
from penstock.engine.planning.poison_search import PoisonSearch
from penstock.engine.planning.segment_ranges import OffsetRange, resolve_segments

_sql = Statements("penstock.engine.planning", "planner.sql")
_groups = Statements("penstock.log", "groups.sql")

#: Notifications are awaited in portions of this length, since a wait for them cannot be interrupted.
_LISTEN_SECONDS = 0.1
#: Expired state is looked for so often in its time to live, and after a pause of at least so many seconds.
_EXPIRIES, _MIN_EXPIRY_PAUSE_SECONDS = 10, 5.0
#: Up to so many rows of state are looked through by one task.
_SMALL_STATE_ROWS = 1_000_000
#: A wall clock that closes no window is asked again after a pause that grows to this length.
_MAX_DUE_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class PlannerConfig:
    """The properties of a query that its planner uses."""

    conninfo: str = field(repr=False)
    query_id: int
    query: str
    fence: int
    groups: Sequence[SourceGroup]
    lease_seconds: float
    #: The least time between the start of two cycles.
    interval_seconds: float
    #: Cycles of up to so many events are read by one task.
    small_events: int
    max_events: int
    #: The first cycle may have so many events.
    first_events: int = 0
    #: How many tasks Spark can run at once.
    parallelism: Callable[[], int] = lambda: 1
    #: Ends every wait.
    stopping: threading.Event = field(default_factory=threading.Event)
    #: The table of open windows.
    state_table: str | None = None
    #: The wall clock closes a window of a partition that is idle for ``idle_us``, ``close_delay_us`` after its end.
    idle_us: int = 0
    close_delay_us: int = 0
    #: Read up to these offsets and no further.
    stop_offsets: Mapping[int, int] | None = None
    #: The state of an outer join, which emits rows that expire without a match.
    outer_join: JoinState | None = None
    #: The time to live of a view's state; 0: for ever.
    state_ttl_seconds: float = 0.0


class UnreadPartition(NamedTuple):
    queue_id: int
    group_id: int
    open_segment: int
    partition_id: int
    name: str
    is_keyed: bool
    sealed_end: int
    next_offset: int
    end_offset: int
    high_us: int | None = None
    floor_us: int | None = None

    @property
    def events(self) -> int:
        return self.end_offset - self.next_offset


class _QueryFlags(NamedTuple):
    search: PoisonSearch | None
    is_paused: bool


class Planner:
    def __init__(self, config: PlannerConfig, *, grow_after: int = 1) -> None:
        self._config = config
        self._conn = connect(config.conninfo, "planner")
        # A driver that stands still in a transaction locks the query's row no longer than its lease lasts.
        self._conn.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false)",
            (f"{config.lease_seconds * 1000:.0f}ms",),
        )
        self._conn.execute("LISTEN penstock")
        self._unmatched = None if config.outer_join is None else UnmatchedRows(config.outer_join, self._conn)
        self._topics = {str(group.queue_id) for group in config.groups}
        self._size = CycleSize(config.small_events, config.max_events, config.first_events, grow_after)
        # Minus infinity, since the monotonic clock may have started with the machine, a moment ago.
        self._last_start = -math.inf
        self._was_full = False
        self._due_checks = 0
        self._next_due_check = 0.0
        #: The first cycle of a driver looks for expired state, since the last one may be long ago.
        self._next_expiry = -math.inf

    def close(self) -> None:
        self._conn.close()

    def next_cycle(self, wait_seconds: float) -> CyclePlan | None:
        """Plan the next cycle, or return None if there is nothing to do for ``wait_seconds``."""
        now = time.monotonic()
        self._size.adapt(now)
        pause = self._last_start + self._config.interval_seconds - now
        if pause > 0 and self._config.stopping.wait(min(pause, wait_seconds)):
            return None
        if pause > wait_seconds:
            return None
        deadline = time.monotonic() + wait_seconds
        while True:
            plan = self._plan_now()
            left = deadline - time.monotonic()
            if plan is not None or left <= 0 or not self._wait_for_push(left):
                return plan

    def plan_ahead(self, reached: Mapping[int, tuple[int, int | None]]) -> CyclePlan | None:
        """Plan the cycle after one that is computed but not committed, if there is a backlog.

        ``reached`` maps the partitions of that cycle to the offset and the event time that it has reached.
        """
        now, was_full = time.monotonic(), self._was_full
        self._size.adapt(now)
        flags = self._flags()
        if flags.is_paused or flags.search is not None or now < self._last_start + self._config.interval_seconds:
            return None
        unread = []
        for each in self._unread_partitions():
            if each.partition_id in reached:
                offset, high_us = reached[each.partition_id]
                each = each._replace(next_offset=offset, high_us=high_us)
            if each.events > 0:
                unread.append(each)
        partitions = self._choose(unread, None)
        events = sum(partition.events for partition in partitions)
        return self._begin(partitions) if self._size.is_full(events) or (events and was_full) else None

    def is_current(self, partitions: Sequence[PartitionRange]) -> bool:
        """Tell whether a cycle that was planned ahead starts where its partitions are now, with their event times."""
        flags = self._flags()
        if flags.is_paused or flags.search is not None:
            return False
        unread = {each.partition_id: each for each in self._unread_partitions()}
        return all(
            (now := unread.get(planned.partition_id)) is not None
            and (now.next_offset, now.high_us, now.floor_us) == (planned.start, planned.high_us, planned.floor_us)
            for planned in partitions
        )

    def plan_flush(self) -> CyclePlan:
        """Begin a cycle without events."""
        return self._begin([])

    def plan_expired(self) -> CyclePlan | None:
        """Plan a cycle that emits rows of a join that expired without a match; None if there are none."""
        search, limit = self._flags().search, self._config.max_events
        expired = self._find_expired(limit if search is None else search.expired_rows or limit)
        return self._begin([], expired) if expired is not None and expired.count else None

    def _plan_now(self) -> CyclePlan | None:
        flags = self._flags()
        if flags.is_paused:
            return None
        search = flags.search
        if search is None and self._is_time_to_expire():
            return self._begin([], is_expiry=True)
        if search is not None and search.expired_rows:
            expired = self._find_expired(search.expired_rows)
            if expired is not None and expired.count:
                return self._begin([], expired)
        partitions = self._next_partitions(search)
        if (not partitions or len(self._config.groups) > 1) and self._advance_epochs():
            partitions = self._next_partitions(search)
        expired = None if _has_suspects(partitions, search) else self._find_expired(self._config.max_events)
        if partitions or (expired is not None and expired.count) or self._is_time_to_close():
            return self._begin(partitions, expired)
        return None

    def _flags(self) -> _QueryFlags:
        row = self._conn.execute(_sql["query_flags"], self._params()).fetchone()
        if row is None:
            raise LeaseLost(f"query {self._config.query!r} was taken over by another driver")
        search, is_paused = row
        return _QueryFlags(None if search is None else poison_search.decode(search), is_paused)

    def _unread_partitions(self) -> list[UnreadPartition]:
        unread: list[UnreadPartition] = []
        for group in self._config.groups:
            segment = fetch_scalar_sync(self._conn, _sql["open_segment"], {"queue": group.queue_id})
            if segment is not None:
                statement = _sql.table("unread_partitions", group.queue_id, segment)
                cursor = self._conn.cursor(row_factory=args_row(UnreadPartition))
                unread += cursor.execute(statement, self._params(group=group.group_id))
        return unread if self._config.stop_offsets is None else _up_to(unread, self._config.stop_offsets)

    def _next_partitions(self, search: PoisonSearch | None) -> list[PartitionRange]:
        return self._choose(self._unread_partitions(), search)

    def _choose(self, unread: list[UnreadPartition], search: PoisonSearch | None) -> list[PartitionRange]:
        """Divide the limit of the next cycle over the partitions."""
        unread, limit = self._narrow(unread, search)
        shares = divide_evenly([each.events for each in unread], limit)
        return self._resolve([(each, share) for each, share in zip(unread, shares, strict=True) if share])

    def _narrow(self, unread: list[UnreadPartition], search: PoisonSearch | None) -> tuple[list[UnreadPartition], int]:
        """While a poison event is searched for, read only suspected offsets."""
        limit = self._size.limit
        if search is None:
            return unread, limit
        suspected = search.next_events([(each.partition_id, each.next_offset, each.end_offset) for each in unread])
        if not suspected:
            return unread, limit
        return _up_to(unread, suspected), limit

    def _resolve(self, chosen: Sequence[tuple[UnreadPartition, int]]) -> list[PartitionRange]:
        """Look up the segments of the first ``share`` unread events of each partition."""
        segments = resolve_segments(
            self._conn,
            [
                OffsetRange(
                    each.partition_id, each.next_offset, each.next_offset + share, each.sealed_end, each.open_segment
                )
                for each, share in chosen
            ],
        )
        return [
            PartitionRange(
                each.partition_id,
                each.queue_id,
                each.group_id,
                each.name,
                each.is_keyed,
                segments[each.partition_id],
                each.high_us,
                each.floor_us,
            )
            for each, _ in chosen
        ]

    def _advance_epochs(self) -> bool:
        """Move groups that have drained an epoch of partitions to the next one."""
        advanced = False
        for group in self._config.groups:
            row = self._conn.execute(_sql["group_epoch"], {"group": group.group_id}).fetchone()
            if row is None:
                continue
            epoch, newest_epoch, segment = row
            if epoch >= newest_epoch:
                continue
            with self._conn.transaction():
                locked = self._conn.execute(_groups["lock_group"], {"group": group.group_id}).fetchone()
                if locked is None or locked[1] != epoch:
                    continue
                params = {"group": group.group_id, "epoch": epoch}
                left = self._conn.execute(_groups.table("has_unread", group.queue_id, segment), params).fetchone()
                if left is not None and not left[0]:
                    self._conn.execute(_groups["set_epoch"], {**params, "epoch": epoch + 1})
                    advanced = True
        return advanced

    def _find_expired(self, limit: int) -> ExpiredRows | None:
        """The oldest rows of an outer join that have expired without a match; None for other queries."""
        return None if self._unmatched is None else self._unmatched.find_expired(limit)

    def _is_time_to_close(self) -> bool:
        """Tell whether the wall clock closes a window."""
        has_state = self._config.state_table is not None or self._config.outer_join is not None
        if not has_state or time.monotonic() < self._next_due_check:
            return False
        if not self._has_window_due():
            self._due_checks = 0
            return False
        self._due_checks += 1
        self._next_due_check = time.monotonic() + min(0.25 * self._due_checks, _MAX_DUE_PAUSE_SECONDS)
        return True

    def _is_time_to_expire(self) -> bool:
        """Tell whether state of a view may have expired."""
        return self._config.state_ttl_seconds > 0 and time.monotonic() >= self._next_expiry

    def _has_small_state(self) -> bool:
        rows = fetch_scalar_sync(self._conn, _sql["state_rows"], self._params())
        return rows is not None and rows <= _SMALL_STATE_ROWS

    def _has_window_due(self) -> bool:
        config = self._config
        params = self._params(
            idle=timedelta(microseconds=config.idle_us), wait=timedelta(microseconds=config.close_delay_us)
        )
        if self._unmatched is not None:
            return self._unmatched.is_due(params)
        statement = _sql["has_window_due"].replace("{state}", config.state_table or "")
        return bool(fetch_scalar_sync(self._conn, statement, params))

    def _begin(
        self, partitions: list[PartitionRange], expired: ExpiredRows | None = None, *, is_expiry: bool = False
    ) -> CyclePlan:
        """Number the cycle and store its plan in the ledger."""
        config = self._config
        events = sum(partition.events for partition in partitions)
        is_small = self._has_small_state() if is_expiry else events <= config.small_events
        tasks = [list(range(len(partitions)))] if is_small else assign_tasks(partitions, config.parallelism())
        with self._conn.transaction():
            params = self._params(lease=timedelta(seconds=config.lease_seconds))
            row = self._conn.execute(_sql["begin_cycle"], params).fetchone()
            if row is None:
                raise LeaseLost(f"query {config.query!r} was taken over by another driver")
            cycle, time_us, closed_us, _ = row
            plan = CyclePlan(
                cycle,
                is_small,
                partitions,
                tasks,
                0 if expired is None else expired.count,
                time_us,
                is_expiry,
                closed_us,
                None if expired is None else expired.until,
            )
            stored = self._params(cycle=plan.cycle, plan=plans.encode(plan), planned=events)
            self._conn.execute(_sql["store_plan"], stored)
        self._last_start = time.monotonic()
        if is_expiry:
            pause = max(config.state_ttl_seconds / _EXPIRIES, _MIN_EXPIRY_PAUSE_SECONDS)
            self._next_expiry = self._last_start + pause
        self._was_full = self._size.is_full(events)
        self._size.begin_cycle(events, self._last_start)
        return plan

    def _wait_for_push(self, seconds: float) -> bool:
        """Wait for a push to a source queue, or until it is time to look again. False: the query is to stop."""
        deadline = time.monotonic() + seconds
        while not self._config.stopping.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            for notification in self._conn.notifies(timeout=min(left, _LISTEN_SECONDS), stop_after=1):
                if notification.payload in self._topics:
                    return True
        return False

    def _params(self, **more: Any) -> dict[str, Any]:
        return {"query": self._config.query_id, "fence": self._config.fence, **more}


def _has_suspects(partitions: Sequence[PartitionRange], search: PoisonSearch | None) -> bool:
    """True if a cycle reads an event that may be a poison event. It emits no expired rows, which may be one too."""
    stops = {} if search is None else search.stops
    return any(each.start < stops.get(each.partition_id, 0) for each in partitions)


def _up_to(unread: Sequence[UnreadPartition], stops: Mapping[int, int]) -> list[UnreadPartition]:
    """Leave out the offsets from these on, and partitions without a stop."""
    until = [each._replace(end_offset=min(each.end_offset, stops.get(each.partition_id, 0))) for each in unread]
    return [each for each in until if each.events > 0]
