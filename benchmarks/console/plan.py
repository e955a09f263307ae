"""Sizes of the runs."""

from __future__ import annotations

from dataclasses import dataclass

#: What the five browsers look at. All of it moves: rates, open windows, depths, lags, and dead letters that come in.
PAGES = ("/", "/live", "/queues", "/queries", "/dead-letters")
QUERY = "per_user"
FAILING = "failing"
#: Nobody looks; browsers that get the processor when nobody else wants it; browsers that share it as equals.
NOBODY, IDLE, EQUAL = "nobody", "browsers_idle_priority", "browsers_equal_priority"
SIDES = (NOBODY, IDLE, EQUAL)


@dataclass(frozen=True, slots=True)
class Load:
    """The load: events per request, and events per second or full speed."""

    name: str
    batch: int
    per_second: int | None
    #: Whether the query runs meanwhile; its rows are there in any case.
    is_followed: bool


#: 2,000 a second are 170 million a day.
STEADY = Load("steady", 10, 2_000, is_followed=True)
FULL_SPEED = Load("full_speed", 1_000, None, is_followed=False)
LOADS = (STEADY, FULL_SPEED)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: turns that measure each side for a time."""

    seconds: float
    warm_up_seconds: float
    turns: int


FULL = Plan(seconds=10, warm_up_seconds=5, turns=5)
QUICK = Plan(seconds=2, warm_up_seconds=0.5, turns=1)
