"""Sizes of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

BATCHES = (1, 10, 100, 1000)
TASKS = 8
PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    cell_seconds: float
    rounds: int
    #: Pushes whose latency is measured, and the pauses between them in seconds.
    latency_pushes: int
    latency_pauses: tuple[float, ...]
    key_seconds: float


FULL = Plan(cell_seconds=3.0, rounds=3, latency_pushes=1_000, latency_pauses=(0.002, 0.02), key_seconds=3.0)
QUICK = Plan(cell_seconds=0.5, rounds=1, latency_pushes=100, latency_pauses=(0.02,), key_seconds=0.5)
