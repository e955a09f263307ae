"""Decide how many buffered events of each key partition its gates release now.

Pure functions, without a clock or a database. Partitions with budgets of their own do not affect each other.
Partitions that share a budget are served by weighted deficit round robin, which continues where the previous
allocation ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from penstock.engine.gates.event_costs import Costs, cost_at, total_cost
from penstock.engine.gates.rate_limiters import Meter

#: The database stores a deficit as a bigint.
_MAX_DEFICIT = 2**62


@dataclass(slots=True)
class PartitionDemand:
    """The buffered events of one partition, with their costs and the budgets of their gates."""

    partition_id: int
    #: The number of buffered events.
    count: int
    #: One entry per gate.
    costs: Sequence[Costs]
    #: One entry per gate; None for a gate that all partitions share.
    meters: Sequence[Meter | None]
    weight: int = 1
    #: The unused part of the partition's round-robin quantum at a shared gate.
    deficit: int = 0
    is_paused: bool = False
    #: Nothing is released before this time; 0 if there is no hold.
    held_until_us: int = 0


@dataclass(slots=True)
class PartitionAllocation:
    """How many events of a partition are released, and when the next one may follow."""

    released: int
    #: None if no event is left or only an ack can free the budget.
    next_us: int | None = None
    waits_for_acks: bool = False
    #: The shared gates that are reserved for another partition and that the next event needs.
    blocked_by: tuple[int, ...] = ()

    @property
    def is_denied(self) -> bool:
        return self.next_us is not None or self.waits_for_acks


@dataclass(slots=True)
class Allocation:
    """The allocation of all partitions, and the state of the round robin at shared gates."""

    partitions: dict[int, PartitionAllocation]
    #: The partition that the next round starts with.
    next_partition: int
    #: Partitions whose turn it is but whose next event exceeds the shared budget. The budget is reserved for them,
    #: because cheap events of other partitions would otherwise take every token as it arrives.
    reserved_for: tuple[int, ...] = ()
    #: The reserved gates, with the time at which their budget suffices.
    reserved_until: dict[int, int] = field(default_factory=dict)


class _Reservation(NamedTuple):
    partition_id: int
    #: None if only an ack can free the budget.
    until_us: int | None


def allocate(
    demands: Sequence[PartitionDemand],
    shared: Sequence[Meter | None] = (),
    next_partition: int = 0,
    *,
    single_round: bool = False,
) -> Allocation:
    """Allocate the budgets and charge the meters.

    ``shared`` has the meter of each shared gate and None for the others. With ``single_round``, no partition is
    served twice, because further partitions wait for the same budget.
    """
    own_counts = [_count_own(demand) for demand in demands]
    counts: Sequence[int] = own_counts
    reservations: Mapping[int, _Reservation] = {}
    if any(meter is not None for meter in shared):
        counts, next_partition, reservations = _serve_in_turn(
            demands, own_counts, shared, next_partition, single_round=single_round
        )
    partitions = {}
    for demand, own_count, count in zip(demands, own_counts, counts, strict=True):
        for costs, meter in zip(demand.costs, demand.meters, strict=True):
            if meter is not None and count:
                meter.charge(total_cost(costs, count))
        blocked_by = () if count >= own_count else _reserved_gates(reservations, demand, count)
        partitions[demand.partition_id] = _describe(demand, count, reservations, blocked_by)
    return Allocation(
        partitions,
        next_partition,
        tuple({reservation.partition_id: None for reservation in reservations.values()}),
        {gate: until_us for gate, (_, until_us) in reservations.items() if until_us is not None},
    )


def _count_own(demand: PartitionDemand) -> int:
    """Count the events that the partition's own gates allow."""
    if demand.is_paused or demand.held_until_us:
        return 0
    count = demand.count
    for costs, meter in zip(demand.costs, demand.meters, strict=True):
        if meter is None or not count:
            continue
        if isinstance(costs, int):
            count = min(count, meter.budget // costs) if costs else count
        else:
            count = min(count, bisect_right(list(accumulate(costs[:count])), meter.budget))
    return count


def _reserved_gates(reservations: Mapping[int, _Reservation], demand: PartitionDemand, index: int) -> tuple[int, ...]:
    return tuple(gate for gate in reservations if cost_at(demand.costs[gate], index))


def _describe(
    demand: PartitionDemand, count: int, reservations: Mapping[int, _Reservation], blocked_by: tuple[int, ...]
) -> PartitionAllocation:
    if count == demand.count or demand.is_paused:
        return PartitionAllocation(count)
    times: list[int | None] = [demand.held_until_us] if demand.held_until_us else []
    for costs, meter in zip(demand.costs, demand.meters, strict=True):
        if meter is not None and meter.budget < (cost := cost_at(costs, count)):
            times.append(meter.free_at(cost))
    times += [reservations[gate].until_us for gate in blocked_by]
    known = [time for time in times if time is not None]
    return PartitionAllocation(count, max(known, default=None), None in times, blocked_by)


def _serve_in_turn(
    demands: Sequence[PartitionDemand],
    own_counts: Sequence[int],
    shared: Sequence[Meter | None],
    next_partition: int,
    *,
    single_round: bool,
) -> tuple[list[int], int, dict[int, _Reservation]]:
    """Serve the partitions by turns until all are satisfied or the budget that they need is reserved."""
    counts = [0] * len(demands)
    order = sorted(
        (index for index, count in enumerate(own_counts) if count), key=lambda index: demands[index].partition_id
    )
    order.sort(key=lambda index: demands[index].partition_id < next_partition)
    meters = {gate: meter for gate, meter in enumerate(shared) if meter is not None}
    first = next(iter(meters))
    # The quantum covers the most expensive event, so that every turn releases at least one.
    quantum = max([_max_cost(demands[index].costs[first], own_counts[index]) for index in order], default=1)
    reservations: dict[int, _Reservation] = {}
    queue = deque(order)
    while queue:
        index = queue.popleft()
        demand = demands[index]
        if demand.deficit < cost_at(demand.costs[first], counts[index]):
            demand.deficit = min(demand.deficit + quantum * demand.weight, _MAX_DEFICIT)
        is_blocked = False
        while counts[index] < own_counts[index] and demand.deficit >= cost_at(demand.costs[first], counts[index]):
            costs = {gate: cost_at(demand.costs[gate], counts[index]) for gate in meters}
            if any(cost and gate in reservations for gate, cost in costs.items()):
                is_blocked = True
                break
            exceeded = {gate: cost for gate, cost in costs.items() if cost > meters[gate].budget}
            if exceeded:
                next_partition = next_partition if reservations else demand.partition_id
                for gate, cost in exceeded.items():
                    reservations[gate] = _Reservation(demand.partition_id, meters[gate].free_at(cost))
                is_blocked = True
                break
            for gate, cost in costs.items():
                meters[gate].charge(cost)
            demand.deficit -= costs[first]
            counts[index] += 1
        if is_blocked:
            continue
        if counts[index] == own_counts[index]:
            demand.deficit = 0
        elif not single_round:
            queue.append(index)
        next_partition = next_partition if reservations else demand.partition_id + 1
    return counts, next_partition, reservations


def _max_cost(costs: Costs, count: int) -> int:
    return max(1, costs if isinstance(costs, int) else max(costs[:count]))
