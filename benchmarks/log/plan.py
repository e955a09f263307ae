"""Sizes of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

BATCHES = (1, 10, 100, 1000)
KEY_QUEUE_BATCHES = (100, 1000)
TASKS = 8
MANY_TASKS = 64
PARTITIONS = 8
KEYS = 100
#: The maximum number of key partitions per pop.
PARTITIONS_PER_POP = 16
CONTENDED_KEYS = 1000
CONTENDING_CLIENTS = 4

#: The sections of ``--only``, in order.
SECTIONS = (
    "push",
    "push_64_tasks",
    "push_ndjson",
    "pop_ack",
    "peers",
    "keyed_100",
    "dedup_off",
    "keyed_1000_worst",
    "bytes_per_event",
    "history_ratio",
    "held_transaction_ratio",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    quick: bool
    cell_seconds: float
    #: For cells outside the main table.
    extra_cell_seconds: float
    rounds: int
    #: Events in the prefilled queues: hash-partitioned, keyed, and filled one event at a time.
    prefilled_events: int
    key_queue_events: int
    single_push_events: int
    history_small: int
    history_large: int
    history_rounds: int
    held_rounds: int
    round_seconds: float


FULL = Plan(
    quick=False,
    cell_seconds=3.0,
    extra_cell_seconds=3.0,
    rounds=3,
    prefilled_events=2_400_000,
    key_queue_events=600_000,
    single_push_events=100_000,
    history_small=10_000,
    history_large=10_000_000,
    history_rounds=12,
    held_rounds=30,
    round_seconds=1.0,
)
QUICK = Plan(
    quick=True,
    cell_seconds=0.4,
    extra_cell_seconds=0.25,
    rounds=1,
    prefilled_events=200_000,
    key_queue_events=40_000,
    single_push_events=5_000,
    history_small=10_000,
    history_large=500_000,
    history_rounds=3,
    held_rounds=4,
    round_seconds=0.2,
)
