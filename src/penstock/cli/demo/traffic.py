"""The simulated traffic of the demo: its phases, and the events of each queue."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.core.clock import EPOCH
from penstock.sources.simulate import Traffic, events


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the demo, and how its traffic differs from the usual."""

    title: str
    description: str
    seconds: float
    #: The factor of clicks on the first site.
    surge: float = 1.0
    #: Degrees added to the readings of the first sensor.
    heat: float = 0.0
    #: The share of orders and readings with an invalid value.
    invalid: float = 0.0
    #: The factor of calls to the partner.
    calls: float = 1.0


WARM_UP = Phase("Warm-up", "Spark starts", 0.0)
PHASES = (
    Phase("Usual traffic", "users online, page views, revenue: new numbers every second", 25),
    Phase("A site in the news", "ten times the views: the rule `surge` fires, and resolves", 15, surge=10),
    Phase("The boiler overheats", "an average above 80 degrees: the rule `hot` fires, and resolves", 15, heat=60),
    Phase(
        "A broken release", "some orders and readings are no numbers: dead letters, with the reason", 10, invalid=0.2
    ),
    Phase("Too many calls", "the gate delays calls, their queue fills up, producers get 429 and wait", 20, calls=40),
)


def phases(duration: float | None) -> Sequence[Phase]:
    """Return the phases, shortened in proportion if there is less time for them."""
    total = sum(phase.seconds for phase in PHASES)
    factor = min(1.0, (duration or total) / total)
    return [replace(phase, seconds=phase.seconds * factor) for phase in PHASES]


class _Source(NamedTuple):
    kind: str
    keys: Sequence[str]
    key_field: str
    #: The share of all events in percent.
    percent: int


_CUSTOMERS = ("alder", "birch", "cedar", "hazel", "linden", "rowan")
_SITES = ("shop.example", "news.example", "blog.example", "docs.example", "jobs.example", "wiki.example")
_SOURCES = {
    "clicks": _Source("clicks", _SITES, "site", 60),
    "orders": _Source("orders", _CUSTOMERS, "customer", 15),
    "readings": _Source("sensors", ("boiler", "pump", "roof", "cellar"), "sensor", 20),
    "calls": _Source("orders", _CUSTOMERS, "customer", 5),
}
#: The numeric field of a queue's events, which a broken release fills with text.
VALUE_FIELDS = {"orders": "amount", "readings": "value"}


class EventGenerator:
    """Generates the events of one queue. The same seed yields the same events."""

    def __init__(self, queue: str, seed: int) -> None:
        self.queue = queue
        self._source = source = _SOURCES[queue]
        self._random = random.Random(f"{queue} {seed}")  # noqa: S311 - must be reproducible
        self._events = events(Traffic(source.kind, rate=1, keys=len(source.keys), seed=seed), EPOCH)
        self._number = 0

    def per_second(self, rate: float, phase: Phase) -> float:
        """Return how many events a second this queue gets, at ``rate`` events for all queues."""
        usual = rate * self._source.percent / 100
        if self.queue == "clicks":
            return usual * (1 + (phase.surge - 1) / len(_SITES))
        return usual * phase.calls if self.queue == "calls" else usual

    def next(self, at_ms: int, phase: Phase) -> dict[str, Any]:
        source, number = self._source, self._number
        self._number += 1
        _, event = next(self._events)
        key = source.keys[int(event["key"].rpartition("-")[2])]
        if self.queue == "clicks" and self._random.random() * (len(_SITES) + phase.surge - 1) < phase.surge - 1:
            key = source.keys[0]
        data = {**event["data"], source.key_field: key, "at": at_ms}
        if self.queue == "calls":
            data = {"customer": key, "call": number, "at": at_ms}
        elif self.queue == "readings" and key == source.keys[0]:
            data["value"] = round(data["value"] + phase.heat, 2)
        if self.queue in VALUE_FIELDS and self._random.random() < phase.invalid:
            data[VALUE_FIELDS[self.queue]] = "n/a"
        return {"key": key, "id": f"{self.queue}-{number}", "data": data}


def event_generators(seed: int) -> list[EventGenerator]:
    return [EventGenerator(queue, seed + 10 * index) for index, queue in enumerate(_SOURCES)]
