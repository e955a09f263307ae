"""Events that Spark has processed and that wait for their gates, in the memory of the driver.

The buffer is only a cache. The events wait in the log, from the group's position on, and a driver that takes a query
over starts with an empty buffer.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.core.errors import LeaseLost
from penstock.engine.cycle_plan import CyclePlan, PartitionRange
from penstock.engine.gates.event_costs import Costs, to_nanos
from penstock.engine.gates.limit_overrides import PartitionLimits
from penstock.engine.results.output_rows import OutputEvent
from penstock.engine.worker.json_values import COST_PREFIX
from penstock.engine.worker.task_reports import EventFailure
from penstock.stream.gates import Cost, Gate, find_cost_problem

#: At most so many partitions are evicted at once, so that the others do not wait for that.
MAX_EVICTED_PARTITIONS = 5_000


@dataclass(slots=True)
class BufferedPartition:
    """The buffered events of one partition, from the group's position on."""

    partition_id: int
    key: str
    queue_id: int
    group_id: int
    #: The group's position, and the offset after the last one read.
    position: int
    read_end: int
    offsets: list[int] = field(default_factory=list)
    #: For each offset, the events that it has become.
    outputs: list[tuple[OutputEvent, ...]] = field(default_factory=list)
    #: For each gate with a computed cost, the cost of each offset; None if it is not a number.
    costs: dict[int, list[int | None]] = field(default_factory=dict)
    #: Events that failed in the stream, by offset.
    failures: dict[int, EventFailure] = field(default_factory=dict)
    #: Events that the current limits can never release, by offset.
    unreleasable: dict[int, EventFailure] = field(default_factory=dict)
    #: The time of the next release, by the database's clock.
    due_us: int = 0
    #: Whether an offset has become several events, which are released and charged together.
    has_multiple_outputs: bool = False
    waits_for_acks: bool = False
    #: Whether the partition waits for so long that it may be evicted.
    is_parked: bool = False

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def dead_letters(self) -> dict[int, EventFailure]:
        """The events that become dead letters when their turn comes, by offset."""
        return {**self.unreleasable, **self.failures} if self.unreleasable else self.failures

    def costs_at(self, gate: int, cost: Cost) -> Costs:
        """Return the costs at a gate. A dead letter costs nothing."""
        computed = self.costs.get(gate)
        fixed = cost.fixed or 0
        dead_letters = self.dead_letters
        if computed is None and not dead_letters and not self.has_multiple_outputs:
            return fixed
        values = [fixed * len(outputs) for outputs in self.outputs] if computed is None else computed
        return [
            0 if offset in dead_letters else (value or 0) for offset, value in zip(self.offsets, values, strict=True)
        ]

    def find_unreleasable(self, gates: Sequence[Gate], limits: PartitionLimits) -> None:
        """Mark the events that cost more than a gate's limit, or whose cost is not valid."""
        self.unreleasable = {}
        for index, (gate, limit) in enumerate(zip(gates, limits.gates, strict=True)):
            costs = self.costs.get(index)
            if costs is None:
                if not self.has_multiple_outputs and (gate.cost.fixed or 0) <= limit.amount:
                    continue
                costs = [(gate.cost.fixed or 0) * len(outputs) for outputs in self.outputs]
            what = "capacity" if limit.kind == "token_bucket" else "limit"
            for offset, cost in zip(self.offsets, costs, strict=True):
                if cost is not None and 0 < cost <= limit.amount:
                    continue
                problem = find_cost_problem(cost, gate.cost.allow_zero, limit.amount, what)
                if problem is not None and offset not in self.failures:
                    self.unreleasable[offset] = EventFailure(self.partition_id, offset, f"gate {index + 1}", problem)

    def position_after(self, released: int) -> int:
        """Return the group's position after so many releases. It skips offsets that the stream filtered out."""
        return self.offsets[released] if released < len(self) else self.read_end

    def drop(self, released: int, position: int) -> None:
        """Remove released events and set the position, which was computed before later events were added."""
        self.position = position
        for offset in self.offsets[:released]:
            self.failures.pop(offset, None)
            self.unreleasable.pop(offset, None)
        del self.offsets[:released], self.outputs[:released]
        for values in self.costs.values():
            del values[:released]


class ReleaseBuffer:
    def __init__(self, costs: Sequence[Cost]) -> None:
        self.partitions: dict[int, BufferedPartition] = {}
        #: The size of all partitions: 1 per event, and 1 per KiB of its outputs.
        self.size = 0
        self._computed_gates = [gate for gate, cost in enumerate(costs) if cost.fixed is None]
        #: The partitions that were evicted since the last cycle was planned.
        self._evicted: set[int] = set()
        self._by_key: dict[str, list[int]] = {}

    def partitions_of(self, key: str) -> list[BufferedPartition]:
        """Return the partitions of a key; "" stands for all keys."""
        if not key:
            return list(self.partitions.values())
        return [self.partitions[partition_id] for partition_id in self._by_key.get(key, ())]

    def begin_cycle(self) -> dict[int, BufferedPartition]:
        """Return the partitions for the plan of the next cycle. Other threads may call this."""
        self._evicted.clear()
        return self.partitions.copy()

    def add(
        self, plan: CyclePlan, failures: Iterable[EventFailure], table: pa.Table | None, outputs: Sequence[OutputEvent]
    ) -> list[BufferedPartition]:
        """Add the events of a cycle, and return their partitions.

        ``outputs`` has one event for each row of the table, which is in order. Partitions that were evicted after the
        cycle was planned are skipped, since the events before the new ones are missing.
        """
        added = [self._extend(each) for each in plan.partitions if each.partition_id not in self._evicted]
        self._add_rows(table, outputs)
        failed: dict[int, list[EventFailure]] = {}
        for failure in failures:
            if failure.partition_id not in self._evicted:
                failed.setdefault(failure.partition_id, []).append(failure)
        for partition_id, partition_failures in failed.items():
            self._add_failures(self.partitions[partition_id], partition_failures)
        return added

    def drop(self, partition: BufferedPartition, released: int, position: int) -> None:
        """Remove released events of a partition, and the partition if it is empty."""
        self.size -= _size(partition.outputs[:released])
        partition.drop(released, position)
        if not partition.offsets and partition.position == partition.read_end:
            self._remove(partition)

    def find_surplus(self, max_size: int, excluded: Container[int] = ()) -> list[BufferedPartition]:
        """Return the parked partitions to evict until the buffer has ``max_size``, longest waits first."""
        parked = (
            partition
            for partition in self.partitions.values()
            if partition.is_parked and partition.offsets and partition.partition_id not in excluded
        )
        surplus, size = [], self.size
        for partition in heapq.nlargest(MAX_EVICTED_PARTITIONS, parked, key=lambda partition: partition.due_us):
            if size <= max_size:
                break
            surplus.append(partition)
            size -= _size(partition.outputs)
        return surplus

    def evict(self, partitions: Iterable[BufferedPartition]) -> None:
        """Remove partitions. Their events are read again later."""
        for partition in partitions:
            self._remove(partition)
            self.size -= _size(partition.outputs)
            self._evicted.add(partition.partition_id)

    def _remove(self, partition: BufferedPartition) -> None:
        if self.partitions.pop(partition.partition_id, None) is not None:
            ids = self._by_key[partition.key]
            ids.remove(partition.partition_id)
            if not ids:
                del self._by_key[partition.key]

    def _extend(self, planned: PartitionRange) -> BufferedPartition:
        partition = self.partitions.get(planned.partition_id)
        if partition is None:
            partition = BufferedPartition(
                planned.partition_id, planned.name, planned.queue_id, planned.group_id, planned.start, planned.start
            )
            partition.costs = {gate: [] for gate in self._computed_gates}
            self.partitions[planned.partition_id] = partition
            self._by_key.setdefault(planned.name, []).append(planned.partition_id)
        if partition.read_end != planned.start:
            raise LeaseLost(
                f"the release buffer holds offsets {partition.position} to {partition.read_end} of key "
                f"{planned.name!r}, but the cycle read from offset {planned.start}; the query restarts at its position"
            )
        partition.read_end = planned.stop
        return partition

    def _add_rows(self, table: pa.Table | None, outputs: Sequence[OutputEvent]) -> None:
        if table is None:
            return
        partition_ids, offsets = table.column("__partition").to_pylist(), table.column("__offset").to_pylist()
        costs = {
            gate: [to_nanos(cost) for cost in table.column(f"{COST_PREFIX}{gate}").to_pylist()]
            for gate in self._computed_gates
        }
        partition: BufferedPartition | None = None
        current = -1
        for row, (partition_id, offset) in enumerate(zip(partition_ids, offsets, strict=True)):
            if partition_id != current:
                current, partition = partition_id, self.partitions.get(partition_id)
            if partition is None:
                continue
            self.size += len(outputs[row][1]) >> 10
            if partition.offsets and partition.offsets[-1] == offset:
                partition.has_multiple_outputs = True
                partition.outputs[-1] += (outputs[row],)
                for gate, values in partition.costs.items():
                    more, before = costs[gate][row], values[-1]
                    values[-1] = None if more is None or before is None else before + more
                continue
            self.size += 1
            partition.offsets.append(offset)
            partition.outputs.append((outputs[row],))
            for gate, values in partition.costs.items():
                values.append(costs[gate][row])

    def _add_failures(self, partition: BufferedPartition, failures: Sequence[EventFailure]) -> None:
        for failure in failures:
            if failure.offset in partition.failures:
                continue
            partition.failures[failure.offset] = failure
            if failure.offset in partition.offsets:
                continue
            self.size += 1
            partition.offsets.append(failure.offset)
            partition.outputs.append(())
            for values in partition.costs.values():
                values.append(0)
        order = sorted(range(len(partition)), key=partition.offsets.__getitem__)
        partition.offsets = [partition.offsets[index] for index in order]
        partition.outputs = [partition.outputs[index] for index in order]
        partition.costs = {gate: [values[index] for index in order] for gate, values in partition.costs.items()}


def _size(outputs: Sequence[tuple[OutputEvent, ...]]) -> int:
    return len(outputs) + sum(len(data) >> 10 for events in outputs for _, data in events)
