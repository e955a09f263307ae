"""Sizes of the full and the quick run."""

from __future__ import annotations

from dataclasses import dataclass

#: The pages of the five browsers. All of them have live updates.
PAGES = ("/", "/live", "/queues", "/queries", "/dead-letters")
QUERY = "per_user"
FAILING = "failing"
#: No browser; browsers at idle CPU priority; browsers at equal priority.
NOBODY, IDLE, EQUAL = "nobody", "browsers_idle_priority", "browsers_equal_priority"
SIDES = (NOBODY, IDLE, EQUAL)


@dataclass(frozen=True, slots=True)
class Load:
    """The load: events per request, and events per second or full speed."""

    name: str
    batch: int
    per_second: int | None
    #: Whether the query runs during the load. Its rows exist in any case.
    is_followed: bool


#: 2,000 per second are 170 million per day.
STEADY = Load("steady", 10, 2_000, is_followed=True)
FULL_SPEED = Load("full_speed", 1_000, None, is_followed=False)
LOADS = (STEADY, FULL_SPEED)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: rounds that measure each side for a time."""

    seconds: float
    warm_up_seconds: float
    rounds: int


FULL = Plan(seconds=10, warm_up_seconds=5, rounds=5)
QUICK = Plan(seconds=2, warm_up_seconds=0.5, rounds=1)
