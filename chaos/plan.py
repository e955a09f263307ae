"""The plan of a run: its duration, load and faults, all derived from the seed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Faults, each with its weight and its range of durations in seconds.
KINDS: dict[str, tuple[int, float, float]] = {
    "server killed": (2, 0.5, 3),
    "server worker killed": (3, 0, 0),
    "server paused": (2, 2, 9),
    "server worker paused": (2, 2, 9),
    "driver killed": (4, 0.5, 5),
    "driver paused": (3, 3, 14),
    "driver's JVM killed": (2, 0, 0),
    "driver's JVM paused": (3, 8, 16),
    "Spark's Python killed": (2, 0, 0),
    "standby killed": (1, 0.5, 5),
    "both drivers killed": (1, 0.5, 3),
    "duplicate driver": (1, 15, 25),
    "checkpoint deleted": (2, 0, 0),
    "webhook sink killed": (2, 0.5, 3),
    "webhook sink paused": (1, 2, 8),
    "file sink killed": (3, 0.5, 3),
    "file sink paused": (1, 2, 8),
    "receiver killed": (1, 0.5, 4),
    "receiver fails": (2, 3, 10),
    "producer killed": (3, 0.2, 2),
    "producer paused": (1, 2, 8),
    "consumer killed": (3, 0.2, 2),
    "consumer paused": (2, 4, 12),
    "PostgreSQL restarted": (2, 0.2, 2),
    "PostgreSQL stopped at once": (2, 0.2, 2),
    "PostgreSQL killed": (3, 0.2, 3),
    "PostgreSQL paused": (2, 2, 8),
    "backend killed": (2, 0, 0),
    "connections to PostgreSQL cut": (3, 0, 0),
    "PostgreSQL out of reach": (2, 1, 8),
    "PostgreSQL far away": (2, 4, 12),
    "PostgreSQL silent": (2, 2, 10),
    "connections to the server cut": (2, 0, 0),
    "server out of reach": (1, 1, 6),
    "server far away": (1, 4, 12),
    "server silent": (2, 2, 10),
    "disk of PostgreSQL full": (2, 2, 8),
    "disk of the file sink full": (2, 2, 8),
    "clock put forward": (2, 0, 0),
    "clock put back": (1, 0, 0),
    "transaction held": (2, 5, 20),
    "executor killed": (0, 0, 0),
    "Spark worker killed": (0, 0, 0),
    "executor paused": (0, 3, 14),
    # Sometimes longer than the timeout of the master.
    "Spark worker paused": (0, 5, 30),
    "Spark master killed": (0, 0.5, 8),
    "Spark's Python paused": (0, 3, 14),
    "standby paused": (0, 3, 14),
    "receiver paused": (0, 2, 9),
}
#: Drawn on a standalone cluster only: of a seed without one, nothing else is drawn than before there were these.
_OF_A_CLUSTER = {
    "executor killed": 3,
    "Spark worker killed": 2,
    "executor paused": 3,
    "Spark worker paused": 2,
    "Spark master killed": 2,
    "Spark's Python paused": 2,
    "standby paused": 2,
    "receiver paused": 1,
}
_OF_SPARK = re.compile("driver|standby|Spark|checkpoint|executor")
#: The last part of a run is for recovery.
_FAULTY_PART = 0.8


@dataclass(frozen=True)
class Fault:
    """One fault: its start after the system was healthy, its kind and its duration."""

    at: float
    kind: str
    seconds: float
    #: Selects among several targets and parameters.
    draw: float

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.kind}{lasting}"


@dataclass(frozen=True)
class Plan:
    """The plan of a run."""

    seed: int
    seconds: float
    faults: tuple[Fault, ...]
    cluster: bool = False
    standby: bool = True
    #: Without it there are no drivers: sinks and consumers read the pushed events.
    spark: bool = True
    producers: tuple[str, ...] = ("a", "b")
    consumers: tuple[str, ...] = ("a", "b")
    #: The mean pause between two batches of a producer.
    pause_seconds: float = 0.12
    #: The time limit for recovery after the last fault.
    healthy_seconds: float = 90.0
    #: The time limit for reading the remaining events after the last push.
    drain_seconds: float = 240.0
    kinds: Sequence[str] = field(default=())
    #: The retention of queues; None keeps events forever.
    retention_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the plan for the report."""
        return {**asdict(self), "faults": [str(fault) for fault in self.faults]}


def draw(
    seed: int, minutes: float, *, cluster: bool = False, spark: bool = True, kinds: Sequence[str] = (), **more: Any
) -> Plan:
    """Return the plan of a seed. ``kinds`` restricts the faults."""
    chance = random.Random(seed)
    weights = {kind: weight for kind, (weight, _, _) in KINDS.items()} | (_OF_A_CLUSTER if cluster else {})
    if not spark:
        weights = {kind: weight for kind, weight in weights.items() if not _OF_SPARK.search(kind)}
    if kinds:
        unknown = sorted(set(kinds) - set(KINDS))
        if unknown:
            raise ValueError(f"there is no fault {unknown[0]!r}; there are {', '.join(KINDS)}")
        weights = dict.fromkeys(kinds, 1)
    seconds, faults, at = minutes * 60, [], 1.0
    while True:
        # Mostly one after the other, sometimes two at once.
        at += chance.choice((0.3, 2, 4, 6, 8, 10)) + chance.random()
        if at > seconds * _FAULTY_PART:
            break
        kind = chance.choices(list(weights), list(weights.values()))[0]
        _, least, most = KINDS[kind]
        faults.append(Fault(round(at, 1), kind, round(chance.uniform(least, most), 1), chance.random()))
    return Plan(seed, seconds, tuple(faults), cluster=cluster, spark=spark, kinds=tuple(kinds), **more)
