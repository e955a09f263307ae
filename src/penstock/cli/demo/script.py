"""What happens in the demonstration, phase by phase, and what there is to see of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the day, and what is out of the ordinary in it."""

    title: str
    look: str
    seconds: float
    #: Clicks on the site that is in the news, as many times the usual number.
    surge: float = 1.0
    #: How many degrees the boiler is warmer than it should be.
    heat: float = 0.0
    #: The share of orders and readings that a broken release sends with a value that is none.
    broken: float = 0.0
    #: Calls to the partner, as many times the usual number.
    calls: float = 1.0


#: While Spark starts, and for as long as that takes.
WARM_UP = Phase("The day begins", "the first results are a few seconds away", 0.0)

DAY: Sequence[Phase] = (
    Phase("An ordinary hour", "users online, page views, revenue: the numbers move every second", 25),
    Phase("One site is in the news", "its views go up tenfold: the rule `surge` fires, and clears", 15, surge=10),
    Phase("The boiler overheats", "its average is above 80 degrees: the rule `hot` fires, and clears", 15, heat=60),
    Phase("A broken release", "some orders and readings are no numbers: dead letters, with the reason", 10, broken=0.2),
    Phase(
        "Too much for the partner",
        "the gate holds calls back, their queue fills up, producers get 429 and wait",
        20,
        calls=40,
    ),
)


def phases(duration: float | None) -> Sequence[Phase]:
    """The day, cut down in proportion where there is less time for it."""
    whole = sum(phase.seconds for phase in DAY)
    if duration is None or duration >= whole:
        return DAY
    return [replace(phase, seconds=phase.seconds * duration / whole) for phase in DAY]
