"""Sizes of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 8
#: The sections of ``--only``. The main drain is always measured.
SECTIONS = ("plain_spark", "scaling", "key_queue", "python_map", "million_keys")


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    quick: bool
    #: The size of the main drain.
    events: int
    keys: int
    rounds: int
    #: The minimum number of events that each engine drains as warm-up.
    warm_up_events: int
    #: The measured queue sizes, which include ``events``.
    scaling: tuple[int, ...]
    #: The batch size of plain Spark before that of Penstock is known.
    batch: int
    key_partitions: int
    key_queue_events: int
    many_keys: int
    many_keys_events: int
    #: Events per second of event time. A window is 5 s.
    per_second: int


FULL = Plan(
    quick=False,
    events=5_000_000,
    keys=10_000,
    rounds=3,
    warm_up_events=6_000_000,
    scaling=(1_000_000, 5_000_000, 20_000_000),
    batch=400_000,
    key_partitions=1_000,
    key_queue_events=5_000_000,
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
    key_partitions=1_000,
    key_queue_events=200_000,
    many_keys=1_000_000,
    many_keys_events=200_000,
    per_second=40_000,
)
