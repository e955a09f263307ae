"""Searches for the event that fails a cycle, by bisection.

A failed cycle is not committed. The same offsets are read again in smaller cycles until one event is left that fails by
itself; it becomes a dead letter, and the other events go on. In an outer join the cause may also be an expired row that
is emitted without a match: those are tried first, by themselves, and then the events that were read with them.

The state of the search is stored with the query, so that it survives a change of drivers.
"""

from __future__ import annotations

import re

import msgspec

from penstock.engine.plan import CyclePlan
from penstock.engine.spark.errors import error_summary

#: An isolated event is tried this often before it becomes a dead letter.
TRIES = 3
#: If so many events in a row fail for the same reason, and none passes in between, the events are not the cause.
MAX_GIVEN_UP = 16


class PoisonSearch(msgspec.Struct, array_like=True, frozen=True):
    """The suspected offsets, and how many events to read at once."""

    limit: int
    #: Suspected are the events before these offsets, by partition.
    stops: dict[int, int]
    #: How often an isolated event has failed in a row.
    tries: int = 0
    #: How many expired rows of a join to emit at once, and how many of them are suspected.
    expired_rows: int = 0
    expired_left: int = 0


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(PoisonSearch).decode


def after_failure(before: PoisonSearch | None, plan: CyclePlan, expired_rows: int = 0) -> PoisonSearch:
    """Narrow the search after a failed cycle, which would have emitted ``expired_rows`` expired rows of a join."""
    if expired_rows and plan.partitions:
        stops = {each.partition_id: each.stop for each in plan.partitions}
        return PoisonSearch(plan.events, stops, 0, _half(expired_rows), expired_rows)
    if expired_rows:
        before = before or PoisonSearch(1, {})
        tries = before.tries if before.expired_rows else 0
        left = before.expired_left or expired_rows
        tries = tries + 1 if expired_rows == 1 else 0
        return PoisonSearch(before.limit, before.stops, tries, _half(expired_rows), left)
    if before is None or not any(each.start < before.stops.get(each.partition_id, 0) for each in plan.partitions):
        before = PoisonSearch(0, {each.partition_id: each.stop for each in plan.partitions})
    return PoisonSearch(_half(plan.events), before.stops, before.tries + 1 if plan.events == 1 else 0)


def after_success(before: PoisonSearch, plan: CyclePlan) -> PoisonSearch | None:
    """Widen the search after a committed cycle. None: no suspects are left."""
    if not plan.partitions:
        rest = before.expired_left - plan.expired_rows
        if not before.expired_rows:
            return before
        if rest > 0:
            return PoisonSearch(before.limit, before.stops, 0, before.expired_rows * 2, rest)
        return PoisonSearch(before.limit, before.stops) if before.stops else None
    left = dict(before.stops)
    for each in plan.partitions:
        if left.get(each.partition_id, 0) <= each.stop:
            left.pop(each.partition_id, None)
    return PoisonSearch(before.limit * 2, left) if left else None


def is_guilty(suspect: PoisonSearch | None, plan: CyclePlan) -> bool:
    """Tell whether a cycle of one event has failed so often that the event is the cause."""
    is_one = plan.events == 1 if plan.partitions else plan.expired_rows == 1
    return suspect is not None and is_one and suspect.tries >= TRIES


def _half(events: int) -> int:
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
