"""Which of the events at hand may pass: of each lane the first few, as far as every gate allows.

A function of what it is given. Lanes that have a budget of their own do not know of each other; those that share one
are served in turn, each as much as its weight says (deficit round robin), going on where the last decision ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

from penstock.engine.gates.meters import Meter

#: What the events of a lane cost, in order: one number, if it is the same for all.
Costs: TypeAlias = int | list[int]

#: What the database holds of a lane's turn.
_MOST = 2**62


@dataclass(slots=True)
class Waiting:
    """The events of a lane that are at hand."""

    lane: int
    count: int
    #: For each gate.
    costs: Sequence[Costs]
    #: For each gate; None where the lanes share one.
    meters: Sequence[Meter | None]
    weight: int = 1
    #: What it may still take in its turn, of a shared gate.
    deficit: int = 0
    paused: bool = False
    #: Nothing passes before this time; 0: whenever the gates allow.
    held_us: int = 0


@dataclass(slots=True)
class Verdict:
    """How many of a lane's events pass, and when the first of the others may."""

    passed: int
    #: None: nothing is left, or nobody knows.
    next_us: int | None = None
    waits_for_acks: bool = False
    deficit: int = 0
    #: The shared gates that it waits for, because they are kept for another lane.
    behind: tuple[int, ...] = ()

    @property
    def is_denied(self) -> bool:
        """Whether something was left that could not pass."""
        return self.next_us is not None or self.waits_for_acks


@dataclass(slots=True)
class Decision:
    """What passes of all lanes, by lane, and which of them is served next where they share."""

    verdicts: dict[int, Verdict]
    turn: int
    #: Lanes for which what they share does not suffice, when it is their turn. It is kept for them: those that need
    #: little would else take each token as it comes.
    awaited: tuple[int, ...] = ()
    #: The gates that are kept for them, and from when on they suffice.
    kept: dict[int, int] = field(default_factory=dict)


def decide(
    lanes: Sequence[Waiting], shared: Sequence[Meter | None] = (), turn: int = 0, *, once: bool = False
) -> Decision:
    """Decide, and charge the meters. ``shared`` has for each gate the meter of all lanes, or None.

    ``once``: others are still to be asked, so nobody has a second turn.
    """
    wishes = [_wish(lane) for lane in lanes]
    counts, kept = wishes, _Kept()
    if any(meter is not None for meter in shared):
        counts, turn, kept = _in_turn(lanes, wishes, shared, turn, once=once)
    verdicts = {}
    for lane, wish, count in zip(lanes, wishes, counts, strict=True):
        for costs, meter in zip(lane.costs, lane.meters, strict=True):
            if meter is not None and count:
                meter.charge(spent(costs, count))
        verdicts[lane.lane] = _verdict(lane, count, kept, kept.gates(lane, count) if count < wish else ())
    awaited = tuple({lane: None for lane, _ in kept.of.values()})
    return Decision(verdicts, turn, awaited, {gate: at for gate, (_, at) in kept.of.items() if at is not None})


@dataclass(slots=True)
class _Kept:
    """Shared gates whose budget is kept for a lane: for which, and from when on it suffices."""

    of: dict[int, tuple[int, int | None]] = field(default_factory=dict)

    def gates(self, lane: Waiting, place: int) -> tuple[int, ...]:
        """Those that this event needs."""
        return tuple(gate for gate in self.of if _at(lane.costs[gate], place))


def spent(costs: Costs, count: int) -> int:
    """What the first so many cost together."""
    return costs * count if isinstance(costs, int) else sum(costs[:count])


def _at(costs: Costs, place: int) -> int:
    return costs if isinstance(costs, int) else costs[place]


def _wish(lane: Waiting) -> int:
    """How many of the lane's events its own gates allow."""
    if lane.paused or lane.held_us:
        return 0
    most = lane.count
    for costs, meter in zip(lane.costs, lane.meters, strict=True):
        if meter is None or not most:
            continue
        if isinstance(costs, int):
            most = min(most, meter.budget // costs) if costs else most
        else:
            most = min(most, bisect_right(list(accumulate(costs[:most])), meter.budget))
    return most


def _free(costs: Sequence[Costs], meters: Sequence[Meter | None], place: int) -> list[int | None]:
    """From when on the gates that do not suffice for this event now will; None: when nobody knows."""
    return [
        meter.free_at(_at(some, place))
        for some, meter in zip(costs, meters, strict=True)
        if meter is not None and meter.budget < _at(some, place)
    ]


def _verdict(lane: Waiting, count: int, kept: _Kept, behind: tuple[int, ...]) -> Verdict:
    """``behind``: which of the gates that are kept it has to wait for."""
    if count == lane.count or lane.paused:
        return Verdict(count)
    times: list[int | None] = [lane.held_us] if lane.held_us else []
    times += [*_free(lane.costs, lane.meters, count), *(kept.of[gate][1] for gate in behind)]
    known = [time for time in times if time is not None]
    return Verdict(count, max(known, default=None), None in times, lane.deficit, behind)


def _in_turn(
    lanes: Sequence[Waiting], wishes: Sequence[int], shared: Sequence[Meter | None], turn: int, *, once: bool
) -> tuple[list[int], int, _Kept]:
    """Serve the lanes one after the other until all have what they wish, or what they need is kept for another."""
    counts = [0] * len(lanes)
    order = sorted((place for place, wish in enumerate(wishes) if wish), key=lambda place: lanes[place].lane)
    order.sort(key=lambda place: lanes[place].lane < turn)
    meters = {gate: meter for gate, meter in enumerate(shared) if meter is not None}
    first = next(iter(meters))
    # As much as the dearest needs: then every turn lets something through.
    quantum = max([_dearest(lanes[place].costs[first], wishes[place]) for place in order], default=1)
    kept = _Kept()
    queue = deque(order)
    while queue:
        place = queue.popleft()
        lane = lanes[place]
        if lane.deficit < _at(lane.costs[first], counts[place]):
            lane.deficit = min(lane.deficit + quantum * lane.weight, _MOST)
        is_stuck = False
        while counts[place] < wishes[place] and lane.deficit >= _at(lane.costs[first], counts[place]):
            prices = {gate: _at(lane.costs[gate], counts[place]) for gate in meters}
            if any(price and gate in kept.of for gate, price in prices.items()):
                is_stuck = True
                break
            short = {gate: price for gate, price in prices.items() if price > meters[gate].budget}
            if short:
                turn = turn if kept.of else lane.lane
                kept.of.update({gate: (lane.lane, meters[gate].free_at(price)) for gate, price in short.items()})
                is_stuck = True
                break
            for gate, price in prices.items():
                meters[gate].charge(price)
            lane.deficit -= prices[first]
            counts[place] += 1
        if is_stuck:
            continue
        if counts[place] == wishes[place]:
            lane.deficit = 0
        elif not once:
            queue.append(place)
        turn = turn if kept.of else lane.lane + 1
    return counts, turn, kept


def _dearest(costs: Costs, count: int) -> int:
    return max(1, costs if isinstance(costs, int) else max(costs[:count]))
