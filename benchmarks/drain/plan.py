"""Sizes of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 8
#: What ``--only`` can name; the drain itself is always measured.
SECTIONS = ("plain_spark", "scaling", "key_queue", "python_map", "million_keys")


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    quick: bool
    #: The drain that is compared.
    events: int
    keys: int
    rounds: int
    #: Each engine drains at least so many before it is measured.
    warm_up_events: int
    #: Sizes of the queue at which its cost is measured; ``events`` is one of them.
    scaling: tuple[int, ...]
    #: A batch of plain Spark, where Penstock's own has not been seen.
    batch: int
    lanes: int
    lane_events: int
    many_keys: int
    many_keys_events: int
    #: Events in a second of event time: 5 s of them share a window.
    per_second: int


FULL = Plan(
    quick=False,
    events=5_000_000,
    keys=10_000,
    rounds=3,
    warm_up_events=6_000_000,
    scaling=(1_000_000, 5_000_000, 20_000_000),
    batch=400_000,
    lanes=1_000,
    lane_events=5_000_000,
    many_keys=1_000_000,
    many_keys_events=5_000_000,
    per_second=100_000,
)
QUICK = Plan(
    quick=True,
    events=400_000,
    keys=10_000,
    rounds=1,
    warm_up_events=200_000,
    scaling=(200_000, 400_000),
    batch=100_000,
    lanes=1_000,
    lane_events=200_000,
    many_keys=1_000_000,
    many_keys_events=200_000,
    per_second=40_000,
)
