"""What a driver has at hand of a gated stream: events that Spark has processed and that wait for their gate.

It is only a head start. The log is where they wait, the group's position says where they begin, and a driver that
starts anew begins with nothing at hand.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from penstock.core.errors import Refused
from penstock.engine.gates.allocate import Costs
from penstock.engine.gates.costs import in_nanos
from penstock.engine.plan import CyclePlan, Lane
from penstock.engine.worker.json_values import COST
from penstock.engine.worker.udf import Failure
from penstock.stream.gates import Cost

#: An event for the sink: key and JSON.
Line: TypeAlias = tuple[str | None, bytes]
#: So many lanes are put back at once, so that no other waits for that.
MOST_AT_ONCE = 5_000


@dataclass(slots=True)
class _PutBack:
    """A lane of which what was at hand was put back."""

    #: Where the group stands, which is where it is read again.
    position: int
    #: What cycles after this one read of it begins there; None: that is being written down.
    cycle: int | None = None


class OutOfStep(Refused):
    """What was read does not follow what is at hand: the query has to begin anew at its position."""


@dataclass(slots=True)
class LaneAtHand:
    """The events of one lane that are at hand, from the group's position on."""

    partition_id: int
    key: str
    queue_id: int
    group_id: int
    #: Where the group stands, and up to where was read.
    position: int
    upto: int
    offsets: list[int] = field(default_factory=list)
    lines: list[tuple[Line, ...]] = field(default_factory=list)
    #: For each gate whose cost is computed, what each event costs; None, where that is no number.
    costs: dict[int, list[int | None]] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    #: Those that could never pass, as the limits are now.
    hopeless: dict[int, Failure] = field(default_factory=dict)
    #: Not before this time, in microseconds of the database's clock.
    due_us: int = 0
    #: Whether an event has become several, which pass and cost together.
    has_several: bool = False
    waits_for_acks: bool = False
    #: Whether nobody looks at it for long: then it may be put back.
    is_laid_down: bool = False

    def __len__(self) -> int:
        return len(self.offsets)

    def costs_at(self, gate: int, cost: Cost) -> Costs:
        """What the events cost at a gate; one that has failed costs nothing."""
        given = self.costs.get(gate)
        fixed = cost.fixed or 0
        lost = self.lost
        if given is None and not lost and not self.has_several:
            return fixed
        values = [fixed * len(lines) for lines in self.lines] if given is None else given
        return [0 if at in lost else (value or 0) for at, value in zip(self.offsets, values, strict=True)]

    @property
    def lost(self) -> dict[int, Failure]:
        """The events that become dead letters when they pass, by offset."""
        return {**self.hopeless, **self.failures} if self.hopeless else self.failures

    def position_after(self, passed: int) -> int:
        """Where the group stands when so many events have passed; those that were left out on the way pass too."""
        return self.offsets[passed] if passed < len(self) else self.upto

    def drop(self, passed: int, position: int) -> None:
        """Forget what has passed; the group stands at the position, whatever came to hand since that was decided."""
        self.position = position
        for offset in self.offsets[:passed]:
            self.failures.pop(offset, None)
            self.hopeless.pop(offset, None)
        del self.offsets[:passed], self.lines[:passed]
        for values in self.costs.values():
            del values[:passed]


class Hand:
    """All that is at hand."""

    def __init__(self, costs: Sequence[Cost]) -> None:
        self.lanes: dict[int, LaneAtHand] = {}
        #: How much, of all lanes together: one for each event, and one for each KiB of what becomes of it.
        self.size = 0
        self._computed = [gate for gate, cost in enumerate(costs) if cost.fixed is None]
        self._put_back: dict[int, _PutBack] = {}
        self._of_key: dict[str, list[int]] = {}

    def of(self, key: str) -> list[LaneAtHand]:
        """The lanes of a key; "" stands for all."""
        return [self.lanes[lane] for lane in self._of_key.get(key, ())] if key else list(self.lanes.values())

    def add(
        self, plan: CyclePlan, failures: Iterable[Failure], table: pa.Table | None, lines: Sequence[Line]
    ) -> tuple[list[LaneAtHand], list[int]]:
        """Take what a cycle has read; ``lines`` are the events of the table's rows, which are in order.

        Gives the lanes, and those that were put back since the cycle was planned: what follows is not taken then.
        """
        late = [lane.partition_id for lane in plan.lanes if self._comes_late(lane)]
        skipped = set(late)
        taken = [self._extended(lane) for lane in plan.lanes if lane.partition_id not in skipped]
        self._add_rows(table, lines)
        lost: dict[int, list[Failure]] = {}
        for failure in failures:
            if failure.partition not in skipped:
                lost.setdefault(failure.partition, []).append(failure)
        for partition, some in lost.items():
            self._add_failures(self.lanes[partition], some)
        # Whoever plans the next cycle has seen what was put back before this one was numbered.
        self._put_back = {
            partition: put for partition, put in self._put_back.items() if put.cycle is None or put.cycle >= plan.cycle
        }
        return taken, late

    def drop(self, lane: LaneAtHand, passed: int, position: int) -> None:
        """Forget what has passed of a lane, and the lane, if nothing of it is left."""
        self.size -= _size(lane.lines[:passed])
        lane.drop(passed, position)
        if not lane.offsets and lane.position == lane.upto:
            self._forget(lane)

    def surplus(self, most: int, awaited: Container[int] = ()) -> list[LaneAtHand]:
        """Of the lanes that are laid down those that wait longest, and whose events are more than should be at hand.

        Not those that others wait for.
        """
        resting = (
            lane
            for lane in self.lanes.values()
            if lane.is_laid_down and lane.offsets and lane.partition_id not in awaited
        )
        chosen, left = [], self.size
        for lane in heapq.nlargest(MOST_AT_ONCE, resting, key=lambda lane: lane.due_us):
            if left <= most:
                break
            chosen.append(lane)
            left -= _size(lane.lines)
        return chosen

    def put_back(self, lanes: Iterable[LaneAtHand]) -> None:
        """Forget what is at hand of some lanes. It is read again, when they are."""
        for lane in lanes:
            self._forget(lane)
            self.size -= _size(lane.lines)
            self._put_back[lane.partition_id] = _PutBack(lane.position)

    def note_put_back(self, lanes: Iterable[LaneAtHand], cycle: int) -> None:
        """It is written down that what cycles up to this one have read of them is at hand no longer."""
        for lane in lanes:
            if lane.partition_id in self._put_back:
                self._put_back[lane.partition_id].cycle = cycle

    def _forget(self, lane: LaneAtHand) -> None:
        if self.lanes.pop(lane.partition_id, None) is not None:
            some = self._of_key[lane.key]
            some.remove(lane.partition_id)
            if not some:
                del self._of_key[lane.key]

    def _comes_late(self, lane: Lane) -> bool:
        put = self._put_back.get(lane.partition_id)
        return put is not None and lane.partition_id not in self.lanes and lane.start != put.position

    def _extended(self, lane: Lane) -> LaneAtHand:
        known = self.lanes.get(lane.partition_id)
        if known is None:
            known = LaneAtHand(lane.partition_id, lane.name, lane.queue_id, lane.group_id, lane.start, lane.start)
            known.costs = {gate: [] for gate in self._computed}
            self.lanes[lane.partition_id] = known
            self._of_key.setdefault(lane.name, []).append(lane.partition_id)
            self._put_back.pop(lane.partition_id, None)
        if known.upto != lane.start:
            raise OutOfStep(
                f"lane {lane.name!r}: {known.position} to {known.upto} are at hand, and what follows begins "
                f"at {lane.start}"
            )
        known.upto = lane.stop
        return known

    def _add_rows(self, table: pa.Table | None, lines: Sequence[Line]) -> None:
        if table is None:
            return
        partitions, offsets = table.column("__partition").to_pylist(), table.column("__offset").to_pylist()
        costs = {
            gate: [in_nanos(cost) for cost in table.column(f"{COST}{gate}").to_pylist()] for gate in self._computed
        }
        lane: LaneAtHand | None = None
        current = -1
        for row, (partition, offset) in enumerate(zip(partitions, offsets, strict=True)):
            if partition != current:
                current, lane = partition, self.lanes.get(partition)
            if lane is None:
                continue
            self.size += len(lines[row][1]) >> 10
            if lane.offsets and lane.offsets[-1] == offset:
                # Several that one event has become pass together.
                lane.has_several = True
                lane.lines[-1] += (lines[row],)
                for gate, values in lane.costs.items():
                    more, before = costs[gate][row], values[-1]
                    values[-1] = None if more is None or before is None else before + more
                continue
            self.size += 1
            lane.offsets.append(offset)
            lane.lines.append((lines[row],))
            for gate, values in lane.costs.items():
                values.append(costs[gate][row])

    def _add_failures(self, lane: LaneAtHand, failures: Sequence[Failure]) -> None:
        for failure in failures:
            if failure.offset in lane.failures:
                continue
            lane.failures[failure.offset] = failure
            if failure.offset in lane.offsets:
                continue
            self.size += 1
            lane.offsets.append(failure.offset)
            lane.lines.append(())
            for values in lane.costs.values():
                values.append(0)
        order = sorted(range(len(lane)), key=lane.offsets.__getitem__)
        lane.offsets = [lane.offsets[place] for place in order]
        lane.lines = [lane.lines[place] for place in order]
        lane.costs = {gate: [values[place] for place in order] for gate, values in lane.costs.items()}


def _size(lines: Sequence[tuple[Line, ...]]) -> int:
    return len(lines) + sum(len(data) >> 10 for some in lines for _, data in some)
