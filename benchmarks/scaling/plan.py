"""The range of each curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.all.runs import CURVES

#: What a curve is a curve of, and what is measured along it.
WHAT: Mapping[str, str] = {
    "events": "Draining a queue into windows, by how many events lie in it.",
    "keys": "Draining a queue into windows, by over how many keys its events go.",
    "queries": "So many queries at once over the same queue, in one Spark; what each reads is added up.",
    "lanes": "Pushing to a queue by key and reading it, by how many lanes there are.",
    "executors": "Draining a queue into windows with Spark as a standalone cluster on this machine (`local-cluster`), "
    "by how many executors of one core there are.",
    "groups": "So many groups read one queue at once, in one client process; what each reads is added up.",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The points of the curves, and how much work each of them is."""

    points: Mapping[str, tuple[int, ...]]
    #: At each point of a curve whose own measure is not events.
    events: int
    keys: int
    #: Of event time: 5 s of them share a window.
    per_second: int
    warm_ups: int
    rounds: int
    #: Events in a queue that clients read.
    stock: int


FULL = Plan(
    points={
        "events": (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000),
        "keys": (10, 100, 1_000, 10_000, 100_000, 1_000_000),
        "queries": (1, 2, 5, 10, 20),
        "lanes": (10, 100, 1_000, 10_000, 100_000),
        "executors": (1, 2, 4),
        "groups": (1, 2, 5, 10, 20),
    },
    events=2_000_000,
    keys=10_000,
    per_second=100_000,
    warm_ups=3,
    rounds=3,
    stock=1_000_000,
)
QUICK = Plan(
    points={
        "events": (100_000, 200_000),
        "keys": (10, 1_000),
        "queries": (1, 3),
        "lanes": (10, 1_000),
        "executors": (1, 2),
        "groups": (1, 3),
    },
    events=100_000,
    keys=1_000,
    per_second=10_000,
    warm_ups=0,
    rounds=1,
    stock=20_000,
)

assert set(FULL.points) == set(QUICK.points) == set(WHAT) == set(CURVES)
