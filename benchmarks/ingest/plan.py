"""Sizes of the full and the quick run."""

from __future__ import annotations

from dataclasses import dataclass

#: Events per request.
BATCHES = (1, 10, 100, 1000)
CONNECTIONS = 16
PARTITIONS = 8
KEYS = 1000
#: Bodies that are generated before the measured time and sent in rotation.
BODIES = 200


@dataclass(frozen=True)
class Plan:
    """A run: the duration and repetitions of each batch size, after a warm-up."""

    quick: bool
    seconds: float
    warm_up_seconds: float
    rounds: int


FULL = Plan(quick=False, seconds=10, warm_up_seconds=2, rounds=3)
QUICK = Plan(quick=True, seconds=2, warm_up_seconds=0.5, rounds=1)
