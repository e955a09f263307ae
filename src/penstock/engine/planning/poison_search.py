"""Looking for an event that stops a cycle: halve what is read until it stands alone.

A cycle that fails is not committed, and the same offsets are read again in smaller cycles, until the one event that
no cycle survives is left; it becomes a dead letter, and what was held up by it goes on. In a join it may be one that
has waited and goes on in no pair: those are tried first, by themselves, and then what was read with them.
"""

from __future__ import annotations

import re

import msgspec

from penstock.engine.plan import CyclePlan
from penstock.engine.spark.errors import first_line

#: How often an event that stands alone is tried before it is given up.
TRIES = 3
#: When so many events in a row were given up, for the same reason and with none in between that passed, it is not them.
MOST_VERDICTS = 16


class Suspicion(msgspec.Struct, array_like=True, frozen=True):
    """Where to look: up to these offsets (by partition), at most so many events at a time."""

    limit: int
    stops: dict[int, int]
    #: How often a single event has failed in a row.
    tries: int = 0
    #: So many events that go on in no pair at a time, and how many of them are suspect.
    alone: int = 0
    alone_left: int = 0


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Suspicion).decode


def after_failure(before: Suspicion | None, plan: CyclePlan, alone: int = 0) -> Suspicion:
    """What to suspect when a plan has failed that would have sent on so many events in no pair."""
    if alone and plan.lanes:
        return Suspicion(plan.events, {lane.partition_id: lane.stop for lane in plan.lanes}, 0, _half(alone), alone)
    if alone:
        before = before or Suspicion(1, {})
        tries = before.tries if before.alone else 0
        left = before.alone_left or alone
        return Suspicion(before.limit, before.stops, tries + 1 if alone == 1 else 0, _half(alone), left)
    if before is None or not any(lane.start < before.stops.get(lane.partition_id, 0) for lane in plan.lanes):
        before = Suspicion(0, {lane.partition_id: lane.stop for lane in plan.lanes})
    return Suspicion(_half(plan.events), before.stops, before.tries + 1 if plan.events == 1 else 0)


def after_success(before: Suspicion, plan: CyclePlan) -> Suspicion | None:
    """What is left to suspect when a plan has been committed."""
    if not plan.lanes:
        rest = before.alone_left - plan.alone
        if not before.alone:
            return before
        if rest > 0:
            return Suspicion(before.limit, before.stops, 0, before.alone * 2, rest)
        return Suspicion(before.limit, before.stops) if before.stops else None
    left = dict(before.stops)
    for lane in plan.lanes:
        if left.get(lane.partition_id, 0) <= lane.stop:
            left.pop(lane.partition_id, None)
    return Suspicion(before.limit * 2, left) if left else None


def is_guilty(suspect: Suspicion | None, plan: CyclePlan) -> bool:
    """Whether a plan of one event has failed so often that the event is to blame."""
    is_one = plan.events == 1 if plan.lanes else plan.alone == 1
    return suspect is not None and is_one and suspect.tries >= TRIES


def _half(events: int) -> int:
    return max(1, events // 2)


class Verdicts:
    """Events that were given up one after the other. If all say the same, something else than they is broken."""

    def __init__(self) -> None:
        self._reason = ""
        self._events = 0

    def note(self, error: BaseException) -> None:
        """One more was given up."""
        reason = _kind(error)
        self._events = self._events + 1 if reason == self._reason else 1
        self._reason = reason

    def clear(self) -> None:
        """An event has passed."""
        self._events = 0

    def is_hopeless(self, error: BaseException) -> bool:
        """Whether one more would be one too many."""
        return self._events >= MOST_VERDICTS and _kind(error) == self._reason


def _kind(error: BaseException) -> str:
    """What an error says without its numbers: those of tasks and offsets differ each time."""
    return re.sub(r"\d+", "#", first_line(error))
