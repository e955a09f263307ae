"""Cells: one operation at one batch size each, measured for a few seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from benchmarks.load.ledger import Reading
from benchmarks.load.meter import Meter, Rate
from benchmarks.log.bench import Bench, CellResult, Kind
from benchmarks.log.plan import BATCHES, KEY_QUEUE_BATCHES, MANY_TASKS, PARTITIONS_PER_POP, TASKS, Plan
from benchmarks.log.prefilled_queues import DEDUP_OFF, HASH, KEYS_100, PrefilledQueues

_STORED = "each event stored once, intact"
_IN_ORDER = f"{_STORED}, in order per key"
_READ = "each event read once, in order per key, and acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(ABC):
    """One measurement. ``path`` is the place of its rate in the result. ``extra`` cells run for a shorter time."""

    name: str
    path: tuple[str, ...]
    section: str
    batch: int
    kind: Kind = HASH
    extra: bool = False

    @property
    @abstractmethod
    def description(self) -> str: ...

    @abstractmethod
    async def run(self, bench: Bench, prefilled: PrefilledQueues, meter: Meter | None = None) -> CellResult:
        """Measure and check the result."""

    def seconds(self, plan: Plan) -> float:
        return plan.extra_cell_seconds if self.extra else plan.cell_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PushCell(Cell):
    """Pushes dicts to a new queue."""

    tasks: int = TASKS

    @property
    def description(self) -> str:
        return f"push {self.batch} dicts at a time with ids and keys, {self.tasks} tasks, {_describe_queue(self.kind)}"

    async def run(self, bench: Bench, prefilled: PrefilledQueues, meter: Meter | None = None) -> CellResult:
        queue = await bench.new_queue(self.kind, self.batch)
        before = bench.server.cpu_seconds()
        rate = await bench.push(queue, tasks=self.tasks, seconds=self.seconds(bench.plan), meter=meter)
        result = _result(rate, bench.server.cpu_seconds() - before, len(queue.ledger))
        await bench.verify(f"{self.name}: {_IN_ORDER}", queue)
        await bench.q.queue(queue.name).delete()
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class NdjsonCell(Cell):
    """Pushes NDJSON to a new queue, with or without a key field."""

    key_field: str | None

    @property
    def description(self) -> str:
        key = "no key is extracted" if self.key_field is None else f"the key is extracted from {self.key_field!r}"
        return f"push {self.batch} lines of NDJSON at a time, {key}, {TASKS} tasks, {_describe_queue(self.kind)}"

    async def run(self, bench: Bench, prefilled: PrefilledQueues, meter: Meter | None = None) -> CellResult:
        queue = await bench.new_queue(self.kind, self.batch)
        before = bench.server.cpu_seconds()
        seconds = self.seconds(bench.plan)
        rate = await bench.push_ndjson(queue, key_field=self.key_field, tasks=TASKS, seconds=seconds, meter=meter)
        result = _result(rate, bench.server.cpu_seconds() - before, len(queue.ledger))
        keyed = self.key_field is not None
        await bench.verify(f"{self.name}: {_IN_ORDER if keyed else _STORED}", queue, ids=False, in_order=keyed)
        await bench.q.queue(queue.name).delete()
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class PopCell(Cell):
    """Pops, decodes and acknowledges with a new group. ``singly``: the queue was filled with pushes of one event."""

    singly: bool = False

    @property
    def description(self) -> str:
        how = ", pushed one at a time" if self.singly else ""
        if self.kind.partitions is None:
            how += f", up to {PARTITIONS_PER_POP} key partitions per pop"
        return f"pop {self.batch} at a time, decode, ack, {TASKS} tasks, {_describe_queue(self.kind)}{how}"

    async def run(self, bench: Bench, prefilled: PrefilledQueues, meter: Meter | None = None) -> CellResult:
        queue = await prefilled.get(self.kind, singly=self.singly)
        group = prefilled.new_group()
        before = bench.server.cpu_seconds()
        rate, stamps = await bench.pop(
            queue,
            group,
            batch=self.batch,
            tasks=TASKS,
            seconds=self.seconds(bench.plan),
            # Stop before the end of the queue, where some pops would be empty.
            limit=int(len(queue.ledger) * 0.9),
            partitions=PARTITIONS_PER_POP if self.kind.partitions is None else 1,
            meter=meter,
        )
        result = _result(rate, bench.server.cpu_seconds() - before, rate.events)
        reading = Reading(queue.ledger)
        reading.add(stamps)
        unread = await bench.not_completed(queue, group, rate.events)
        bench.checks.expect_none(f"{self.name}: {_READ}", reading.problems + unread)
        return result


def all_cells() -> list[Cell]:
    """Return every cell, in the order of a round."""
    by_key = (("keyed_100", KEYS_100), ("dedup_off", DEDUP_OFF))
    return [
        *(PushCell(name=f"push_{n}", path=("push", str(n)), section="push", batch=n) for n in BATCHES),
        PushCell(name="push_64_tasks", path=("push_64_tasks",), section="push_64_tasks", batch=1, tasks=MANY_TASKS),
        *(_ndjson("push_ndjson", n, None) for n in BATCHES),
        *(_ndjson("push_ndjson_keyed", n, "user") for n in BATCHES),
        *(PopCell(name=f"pop_ack_{n}", path=("pop_ack", str(n)), section="pop_ack", batch=n) for n in BATCHES),
        *(_pop_singly(n) for n in (1, 1000)),
        *(_push_by_key(section, kind, n) for n in KEY_QUEUE_BATCHES for section, kind in by_key),
        *(_pop_by_key(section, kind, n) for n in KEY_QUEUE_BATCHES for section, kind in by_key),
    ]


def _ndjson(name: str, batch: int, key_field: str | None) -> Cell:
    return NdjsonCell(
        name=f"{name}_{batch}",
        path=(name, str(batch)),
        section="push_ndjson",
        batch=batch,
        key_field=key_field,
        extra=True,
    )


def _pop_singly(batch: int) -> Cell:
    name = "pop_ack_pushed_singly"
    path = (name, str(batch))
    return PopCell(name=f"{name}_{batch}", path=path, section="pop_ack", batch=batch, singly=True, extra=True)


def _push_by_key(section: str, kind: Kind, batch: int) -> Cell:
    path = (section, "push", str(batch))
    return PushCell(name=f"{section}_push_{batch}", path=path, section=section, batch=batch, kind=kind, extra=True)


def _pop_by_key(section: str, kind: Kind, batch: int) -> Cell:
    path = (section, "pop_ack", str(batch))
    return PopCell(name=f"{section}_pop_ack_{batch}", path=path, section=section, batch=batch, kind=kind, extra=True)


def _result(rate: Rate, server_cpu: float, server_events: int) -> CellResult:
    return CellResult(rate, 1e6 * rate.cpu / rate.events, 1e6 * server_cpu / server_events)


def _describe_queue(kind: Kind) -> str:
    if kind.partitions is not None:
        return f"{kind.partitions} hash partitions"
    return f"{kind.users} key partitions, deduplication {'on' if kind.dedup else 'off'}"
