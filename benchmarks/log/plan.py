"""Sizes of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

BATCHES = (1, 10, 100, 1000)
LANE_BATCHES = (100, 1000)
TASKS = 8
MANY_TASKS = 64
PARTITIONS = 8
LANES = 100
#: A pop of a queue by key may take this many lanes at once.
LANES_A_POP = 16
WORST_LANES = 1000
WORST_PUSHERS = 4

#: What ``--only`` can name, in the order in which it runs.
SECTIONS = (
    "push",
    "push_64_tasks",
    "push_ndjson",
    "pop_ack",
    "peers",
    "lanes_100",
    "dedup_off",
    "lanes_1000_worst",
    "bytes_per_event",
    "history_ratio",
    "held_transaction_ratio",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    quick: bool
    cell_seconds: float
    #: For cells that stand beside the main ones.
    extra_cell_seconds: float
    rounds: int
    #: Events that lie ready for the pops: by hash, in each of the queues by key, and pushed one at a time.
    stock: int
    lane_stock: int
    single_stock: int
    history_small: int
    history_large: int
    history_turns: int
    held_turns: int
    turn_seconds: float


FULL = Plan(
    quick=False,
    cell_seconds=3.0,
    extra_cell_seconds=3.0,
    rounds=3,
    stock=2_400_000,
    lane_stock=600_000,
    single_stock=100_000,
    history_small=10_000,
    history_large=10_000_000,
    history_turns=12,
    held_turns=30,
    turn_seconds=1.0,
)
QUICK = Plan(
    quick=True,
    cell_seconds=0.4,
    extra_cell_seconds=0.25,
    rounds=1,
    stock=200_000,
    lane_stock=40_000,
    single_stock=5_000,
    history_small=10_000,
    history_large=500_000,
    history_turns=3,
    held_turns=4,
    turn_seconds=0.2,
)
