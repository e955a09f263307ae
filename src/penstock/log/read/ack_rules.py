"""The effect of acks on the position of a group in a partition: which events are completed, and which come again.

The rules live here, without a database, because an error in them loses events:

* ``completed`` completes all earlier events of the lease, too.
* ``failed`` and ``retry`` keep the position before the lowest such event. It and all later events are delivered again.
* A ``failed`` event without retries left, and a ``dead_letter`` event, goes to the dead letters. The position does not
  wait for it.
* No event is completed without an ack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from penstock.log.dead_letters.dead_letter import FailedEvent
from penstock.log.read.position import AT_ONCE, Position

Status = Literal["completed", "failed", "retry", "dead_letter"]


class EventAck(msgspec.Struct, frozen=True):
    """An ack of one event."""

    offset: int
    status: Status = "completed"
    error: str = ""
    stage: str = "consumer"
    traceback: str | None = None
    #: The number of deliveries that the ack stands for.
    deliveries: int = 1


class AckEffect(msgspec.Struct, frozen=True):
    """The effect of one ack. ``problem`` is empty if the ack was accepted."""

    offset: int
    problem: str = ""
    #: The event had been completed before.
    noop: bool = False
    #: The event went to the dead letters.
    dead: bool = False
    #: The ack ended its lease.
    released: bool = False


@dataclass(frozen=True, slots=True)
class AppliedAcks:
    """The position after some acks, the outcome of each, and the events that go to the dead letters."""

    position: Position
    outcomes: tuple[AckEffect, ...]
    dead: tuple[FailedEvent, ...] = ()


COMMITTED = "committed already: the group has moved past this event, and a completed one cannot fail"
NOT_LEASED = "the event was not delivered under this lease"
LATE = "late: the lease has ended, and the event is delivered again"
NO_LEASE_NAMED = "the event was delivered again under another lease: an ack must name its lease"
HELD_BACK = "held back: an event before it failed, and both are delivered again"


def apply_acks(
    position: Position,
    acks: Sequence[EventAck],
    *,
    lease_id: UUID | None,
    now: datetime,
    retry_limit: int,
    retry_delay: timedelta,
    by_operator: bool = False,
    last_failure_releases: bool = False,
) -> AppliedAcks:
    """Apply acks under a lease, or without one (``lease_id`` None) from clients that do not send it.

    An ack without a lease counts if the event was delivered under the current lease only: then it is from the holder.
    After that lease has expired it counts as well, because nobody holds the event.
    An ack of an operator needs no lease.
    With ``last_failure_releases``, a ``failed`` event without retries left ends the lease, and the events after it are
    delivered again.

    The outcomes are in the order of the acks. Of several acks of an event the first one counts.
    """
    first_acks: dict[int, EventAck] = {}
    for ack in acks:
        first_acks.setdefault(ack.offset, ack)
    distinct = list(first_acks.values())
    problem = None if by_operator else _find_lease_problem(position, distinct, lease_id, now)
    if problem is None:
        applied = _apply_distinct(
            position, distinct, now, retry_limit, retry_delay, last_failure_releases=last_failure_releases
        )
    else:
        applied = AppliedAcks(position, tuple(_refuse(position, ack, problem) for ack in distinct))
    by_offset = {outcome.offset: outcome for outcome in applied.outcomes}
    outcomes = tuple(
        by_offset[ack.offset]
        if ack.status == first_acks[ack.offset].status or by_offset[ack.offset].problem
        else AckEffect(ack.offset, COMMITTED)
        for ack in acks
    )
    return replace(applied, outcomes=outcomes)


def _apply_distinct(
    position: Position,
    acks: Sequence[EventAck],
    now: datetime,
    retry_limit: int,
    retry_delay: timedelta,
    *,
    last_failure_releases: bool,
) -> AppliedAcks:
    next_offset = position.next_offset
    failures = dict(position.failures)
    skipped = set(position.skipped)
    dead: list[FailedEvent] = []
    outcomes: list[AckEffect] = []
    held_by: EventAck | None = None
    has_exhausted = False
    for ack in sorted(acks, key=lambda ack: ack.offset):
        attempts = failures.get(ack.offset, 0)
        if ack.offset < position.next_offset or ack.offset in position.skipped:
            outcomes.append(_outcome_behind(ack))
        elif ack.offset >= position.lease_end:
            outcomes.append(AckEffect(ack.offset, NOT_LEASED))
        elif held_by is not None:
            outcomes.append(AckEffect(ack.offset, HELD_BACK))
        elif ack.status == "completed":
            if ack.offset >= next_offset:
                next_offset = ack.offset + 1
            outcomes.append(AckEffect(ack.offset))
        elif ack.status == "dead_letter" or (ack.status == "failed" and attempts >= retry_limit):
            dead.append(FailedEvent(ack.offset, ack.error, ack.stage, ack.traceback, attempts + ack.deliveries))
            has_exhausted = has_exhausted or ack.status == "failed"
            skipped.add(ack.offset)
            outcomes.append(AckEffect(ack.offset, dead=True))
        else:
            held_by = ack
            if ack.status == "failed":
                failures[ack.offset] = attempts + 1
            outcomes.append(AckEffect(ack.offset))
        while next_offset in skipped:
            next_offset += 1
    if held_by is not None or next_offset >= position.lease_end or (has_exhausted and last_failure_releases):
        is_delayed = held_by is not None and held_by.status == "failed" and retry_delay > timedelta(0)
        after = replace(position, lease_id=None, available_at=now + retry_delay if is_delayed else AT_ONCE)
    else:
        after = position
    after = replace(
        after,
        failures={offset: count for offset, count in failures.items() if offset not in skipped},
        skipped=tuple(sorted(skipped)),
        expiries=position.expiries if next_offset == position.next_offset else 0,
    ).moved_to(next_offset)
    if position.lease_id is not None and after.lease_id is None:
        outcomes = [msgspec.structs.replace(outcome, released=True) for outcome in outcomes]
    return AppliedAcks(after, tuple(outcomes), tuple(dead))


def _find_lease_problem(
    position: Position, acks: Sequence[EventAck], lease_id: UUID | None, now: datetime
) -> str | None:
    is_valid = position.lease_id is not None and position.available_at > now
    if lease_id is not None:
        return None if is_valid and position.lease_id == lease_id else LATE
    if position.lease_id is None:
        return LATE
    is_ambiguous = any(position.next_offset <= ack.offset < position.redelivered_end for ack in acks)
    return NO_LEASE_NAMED if is_valid and is_ambiguous else None


def _refuse(position: Position, ack: EventAck, problem: str) -> AckEffect:
    if ack.offset < position.next_offset:
        return _outcome_behind(ack)
    return AckEffect(ack.offset, problem)


def _outcome_behind(ack: EventAck) -> AckEffect:
    if ack.status == "completed":
        return AckEffect(ack.offset, noop=True)
    return AckEffect(ack.offset, COMMITTED)
