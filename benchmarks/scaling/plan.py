"""The points of each scaling curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.all.runs import CURVES

#: The descriptions of the curves on the page.
DESCRIPTIONS: Mapping[str, str] = {
    "events": "Draining a queue into windows, by the number of events in the queue.",
    "keys": "Draining a queue into windows, by the number of keys.",
    "queries": "Concurrent queries over one queue, in one Spark session. The rate is the sum of all queries.",
    "partitions": "Pushing to a queue and reading it, by the number of key partitions.",
    "executors": "Draining a queue into windows with a standalone Spark cluster on this machine (`local-cluster`), "
    "by the number of executors with one core each.",
    "groups": "Groups that read one queue concurrently, in one client process. The rate is the sum of all groups.",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The points of the curves, and the workload of each."""

    points: Mapping[str, tuple[int, ...]]
    #: Events and keys at each point, unless the curve varies them.
    events: int
    keys: int
    #: Events per second of event time. A window is 5 s.
    per_second: int
    warm_ups: int
    rounds: int
    #: Events in a queue that clients read.
    queue_events: int


FULL = Plan(
    points={
        "events": (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000),
        "keys": (10, 100, 1_000, 10_000, 100_000, 1_000_000),
        "queries": (1, 2, 5, 10, 20),
        "partitions": (10, 100, 1_000, 10_000, 100_000),
        "executors": (1, 2, 4),
        "groups": (1, 2, 5, 10, 20),
    },
    events=2_000_000,
    keys=10_000,
    per_second=100_000,
    warm_ups=3,
    rounds=3,
    queue_events=1_000_000,
)
QUICK = Plan(
    points={
        "events": (100_000, 200_000),
        "keys": (10, 1_000),
        "queries": (1, 3),
        "partitions": (10, 1_000),
        "executors": (1, 2),
        "groups": (1, 3),
    },
    events=100_000,
    keys=1_000,
    per_second=10_000,
    warm_ups=0,
    rounds=1,
    queue_events=20_000,
)

assert set(FULL.points) == set(QUICK.points) == set(DESCRIPTIONS) == set(CURVES)
