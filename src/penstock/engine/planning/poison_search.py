"""Searches for the event that fails a cycle, by bisection.

A failed cycle is not committed. The first half of its events is read again, partition after partition. If that fails
too, it is halved; if not, it is committed, and the other half has the cause. So about log2 n cycles fail until one
event is left that fails by itself; it becomes a dead letter. The other events of the first failed cycle follow in
cycles that double, since the next poison event may be near.

In an outer join the cause may also be an expired row that is emitted without a match: those are tried first, by
themselves, and then the events that were read with them.

The state of the search is stored with the query, so that it survives a change of drivers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.spark.errors import error_summary

#: An isolated event is tried this often before it becomes a dead letter.
TRIES = 3
#: If so many events in a row fail for the same reason, and none passes in between, the events are not the cause.
MAX_GIVEN_UP = 16


class PoisonSearch(msgspec.Struct, array_like=True, frozen=True):
    """The suspected offsets, and how many events to read at once."""

    #: How many of the suspected events to read at once, if it is not known that one of them is the cause.
    limit: int
    #: Suspected are the events before these offsets, by partition.
    stops: dict[int, int]
    #: How often an isolated event has failed in a row.
    tries: int = 0
    #: How many expired rows of a join to emit at once, and how many of them are suspected.
    expired_rows: int = 0
    expired_left: int = 0
    #: The stops of the last cycle that failed: one of its events is the cause. Empty if it is found, or passed.
    failed: dict[int, int] = {}

    def next_events(self, unread: Sequence[tuple[int, int, int]]) -> dict[int, int]:
        """Return the stops of the next cycle by partition, given the id, start and end of each unread partition.

        These are the first suspected events: of the first partition all that it has, then of the next one. The result
        is empty if no suspected event is unread.
        """
        for stops, limit in ((self.failed, None), (self.stops, self.limit)):
            suspected = [
                (partition_id, start, min(end, stops[partition_id]) - start)
                for partition_id, start, end in unread
                if start < min(end, stops.get(partition_id, 0))
            ]
            left = half(sum(events for _, _, events in suspected)) if limit is None else max(1, limit)
            chosen: dict[int, int] = {}
            for partition_id, start, events in suspected:
                if left > 0:
                    chosen[partition_id] = start + min(events, left)
                    left -= events
            if chosen:
                return chosen
        return {}


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(PoisonSearch).decode


def after_failure(before: PoisonSearch | None, plan: CyclePlan, expired_rows: int = 0) -> PoisonSearch:
    """Narrow the search after a failed cycle, which would have emitted ``expired_rows`` expired rows of a join."""
    failed = {each.partition_id: each.stop for each in plan.partitions}
    if expired_rows and plan.partitions:
        return PoisonSearch(plan.events, failed, 0, half(expired_rows), expired_rows)
    if expired_rows:
        before = before or PoisonSearch(1, {})
        tries = before.tries if before.expired_rows else 0
        left = before.expired_left or expired_rows
        tries = tries + 1 if expired_rows == 1 else 0
        return PoisonSearch(before.limit, before.stops, tries, half(expired_rows), left)
    if before is None or not any(each.start < before.stops.get(each.partition_id, 0) for each in plan.partitions):
        before = PoisonSearch(0, failed)
    tries = before.tries + 1 if plan.events == 1 else 0
    return PoisonSearch(half(plan.events), before.stops, tries, failed=failed)


def after_success(before: PoisonSearch, plan: CyclePlan) -> PoisonSearch | None:
    """Widen the search after a committed cycle. None: no suspects are left."""
    if not plan.partitions:
        rest = before.expired_left - plan.expired_rows
        if not before.expired_rows:
            return before
        if rest > 0:
            return PoisonSearch(before.limit, before.stops, 0, before.expired_rows * 2, rest)
        return PoisonSearch(before.limit, before.stops) if before.stops else None
    reached = {each.partition_id: each.stop for each in plan.partitions}
    left, failed = (
        {partition_id: stop for partition_id, stop in stops.items() if reached.get(partition_id, 0) < stop}
        for stops in (before.stops, before.failed)
    )
    return PoisonSearch(before.limit if failed else before.limit * 2, left, failed=failed) if left else None


def is_guilty(suspect: PoisonSearch, plan: CyclePlan, tries: int | None = None) -> bool:
    """Tell whether a cycle of one event has failed so often that the event is the cause."""
    is_one = plan.events == 1 if plan.partitions else plan.expired_rows == 1
    return is_one and suspect.tries >= (TRIES if tries is None else tries)


def half(events: int) -> int:
    return max(1, events // 2)


class GivenUpEvents:
    """Counts events that were dead-lettered in a row for the same reason."""

    def __init__(self) -> None:
        self._reason = ""
        self._events = 0

    def note(self, error: BaseException) -> None:
        reason = _normalize(error)
        self._events = self._events + 1 if reason == self._reason else 1
        self._reason = reason

    def clear(self) -> None:
        self._events = 0

    def is_hopeless(self, error: BaseException) -> bool:
        """Tell whether one more event with this error would be one too many."""
        return self._events >= MAX_GIVEN_UP and _normalize(error) == self._reason


def _normalize(error: BaseException) -> str:
    """The error without its numbers: those of tasks and offsets differ each time."""
    return re.sub(r"\d+", "#", error_summary(error))
