"""Where a group stands in a partition, and what acknowledgements make of it.

The rules are here, apart from the database, because they are the ones that lose events when they are wrong:

* ``completed`` completes everything before it too;
* a ``failed`` or ``retry`` holds the position before the lowest one: it and all after it are delivered again;
* a ``failed`` whose retries are used up, and a ``dead_letter``, goes to the dead letters, and the position does
  not wait for it;
* nothing is completed that nobody completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

Status = Literal["completed", "failed", "retry", "dead_letter"]


@dataclass(frozen=True, slots=True)
class Position:
    """One version of a group's place in a partition."""

    group_id: int
    partition_id: int
    version: int
    next_offset: int
    lease_id: UUID | None
    lease_end: int
    available_at: datetime
    attempts: int
    skipped: tuple[int, ...] = ()
    #: Leases that ended unanswered since ``next_offset`` last moved.
    expiries: int = 0
    #: Events before this offset come one at a time.
    suspect_end: int = 0


class Signal(msgspec.Struct, frozen=True):
    """What a consumer says of one event."""

    offset: int
    status: Status = "completed"
    error: str = ""
    stage: str = "consumer"
    traceback: str | None = None
    #: How many deliveries it speaks for.
    deliveries: int = 1


class Verdict(msgspec.Struct, frozen=True):
    """What became of a signal. ``problem`` is empty if it was taken."""

    offset: int
    problem: str = ""
    noop: bool = False
    dead: bool = False
    #: The lease it came under has ended with it.
    released: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """The position after some signals, what each of them came to, and the events to dead-letter."""

    position: Position
    verdicts: tuple[Verdict, ...]
    dead: tuple[tuple[Signal, int], ...]


#: Free to be read, whatever the clock says: it may be set back.
AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)

COMMITTED = "committed already: the group has moved past this event, and a completed one cannot fail"
NOT_LEASED = "the event was not delivered under this lease"
LATE = "late: the lease has ended, and the event is delivered again"
HELD_BACK = "held back: an event before it failed, and both are delivered again"


def settle(
    position: Position,
    signals: Sequence[Signal],
    *,
    lease_id: UUID | None,
    now: datetime,
    retry_limit: int,
    retry_delay: timedelta,
) -> Settlement:
    """Apply signals under a lease (or under none, where the caller vouches for them).

    The verdicts are in the order of the signals. What is said of an event first counts.
    """
    firsts: dict[int, Signal] = {}
    for signal in signals:
        firsts.setdefault(signal.offset, signal)
    settlement = _settle(position, list(firsts.values()), lease_id, now, retry_limit, retry_delay)
    by_offset = {verdict.offset: verdict for verdict in settlement.verdicts}
    verdicts = tuple(
        by_offset[signal.offset]
        if signal.status == firsts[signal.offset].status or by_offset[signal.offset].problem
        else Verdict(signal.offset, COMMITTED)
        for signal in signals
    )
    return replace(settlement, verdicts=verdicts)


def _settle(
    position: Position,
    signals: Sequence[Signal],
    lease_id: UUID | None,
    now: datetime,
    retry_limit: int,
    retry_delay: timedelta,
) -> Settlement:
    if lease_id is not None and (position.lease_id != lease_id or position.available_at <= now):
        return Settlement(position, tuple(_without_lease(position, signal) for signal in signals), ())
    end = position.lease_end if lease_id is not None else max(position.lease_end, *(s.offset + 1 for s in signals))
    cursor = position.next_offset
    attempts = position.attempts
    skipped = set(position.skipped)
    dead: list[tuple[Signal, int]] = []
    verdicts: list[Verdict] = []
    held_by: Signal | None = None
    for signal in sorted(signals, key=lambda s: s.offset):
        if signal.offset < position.next_offset or signal.offset in position.skipped:
            verdicts.append(_behind(signal))
        elif signal.offset >= end:
            verdicts.append(Verdict(signal.offset, NOT_LEASED))
        elif held_by is not None:
            verdicts.append(Verdict(signal.offset, HELD_BACK))
        elif signal.status == "completed":
            if signal.offset >= cursor:
                cursor, attempts = signal.offset + 1, 0
            verdicts.append(Verdict(signal.offset))
        elif signal.status == "dead_letter" or (signal.status == "failed" and attempts >= retry_limit):
            dead.append((signal, attempts + signal.deliveries))
            skipped.add(signal.offset)
            attempts = 0
            verdicts.append(Verdict(signal.offset, dead=True))
        else:
            held_by = signal
            attempts += signal.status == "failed"
            verdicts.append(Verdict(signal.offset))
        while cursor in skipped:
            cursor += 1
    if held_by is not None or cursor >= position.lease_end:
        delayed = held_by is not None and held_by.status == "failed" and retry_delay > timedelta(0)
        after = replace(position, lease_id=None, available_at=now + retry_delay if delayed else AT_ONCE)
    else:
        after = position
    after = replace(
        after,
        next_offset=cursor,
        attempts=attempts,
        skipped=tuple(sorted(offset for offset in skipped if offset >= cursor)),
        expiries=position.expiries if cursor == position.next_offset else 0,
    )
    if position.lease_id is not None and after.lease_id is None:
        verdicts = [msgspec.structs.replace(verdict, released=True) for verdict in verdicts]
    return Settlement(after, tuple(verdicts), tuple(dead))


def _without_lease(position: Position, signal: Signal) -> Verdict:
    if signal.offset < position.next_offset:
        return _behind(signal)
    return Verdict(signal.offset, LATE)


def _behind(signal: Signal) -> Verdict:
    if signal.status == "completed":
        return Verdict(signal.offset, noop=True)
    return Verdict(signal.offset, COMMITTED)
