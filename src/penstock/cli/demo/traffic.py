"""The company's traffic: made up, the same for the same seed, and out of the ordinary as the script has it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.timestamps import EPOCH
from penstock.sources.simulate import Traffic, events

if TYPE_CHECKING:
    from penstock.cli.demo.script import Phase

SITES = ("shop.example", "news.example", "blog.example", "docs.example", "jobs.example", "wiki.example")
CUSTOMERS = ("alder", "birch", "cedar", "hazel", "linden", "rowan")
SENSORS = ("boiler", "pump", "roof", "cellar")
IN_THE_NEWS, OVERHEATED = SITES[0], SENSORS[0]

#: Of a hundred events, how many go to each queue on an ordinary day.
SHARES = {"clicks": 60, "orders": 15, "readings": 20, "calls": 5}


class Maker:
    """Makes the events of one queue, in order, each with the moment that it happened at."""

    def __init__(self, queue: str, seed: int) -> None:
        self.queue = queue
        self._dice = random.Random(f"{queue} {seed}")  # noqa: S311 - to be the same again
        kind, self._names = _KINDS[queue]
        self._made = events(Traffic(kind, rate=1, keys=len(self._names), seed=seed), EPOCH)
        self._surging = events(Traffic(kind, rate=1, keys=1, seed=seed + 1), EPOCH)
        self._number = 0

    def how_many(self, rate: float, phase: Phase) -> tuple[float, float]:
        """How many a second: of all, and of what surges besides."""
        usual = rate * SHARES[self.queue] / 100
        if self.queue == "calls":
            return usual * phase.calls, 0.0
        if self.queue == "clicks":
            return usual, usual / len(SITES) * (phase.surge - 1)
        return usual, 0.0

    def make(self, count: int, surging: int, at_ms: int, phase: Phase) -> list[dict[str, Any]]:
        """The next events; ``surging`` of them besides are of what is in the news."""
        made = [self._one(next(self._made), at_ms, phase) for _ in range(count)]
        return made + [self._one(next(self._surging), at_ms, phase) for _ in range(surging)]

    def _one(self, simulated: tuple[float, dict[str, Any]], at_ms: int, phase: Phase) -> dict[str, Any]:
        event = simulated[1]
        name = self._names[int(event["key"].rpartition("-")[2])]
        self._number += 1
        data = {**event["data"], "at": at_ms}
        if self.queue == "clicks":
            data |= {"site": name}
        elif self.queue == "orders":
            data |= {"customer": name}
        elif self.queue == "readings":
            data |= {"sensor": name}
            if name == OVERHEATED:
                data["value"] = round(data["value"] + phase.heat, 2)
        else:
            data = {"customer": name, "call": self._number, "at": at_ms}
        if phase.broken and self._dice.random() < phase.broken:
            if self.queue == "orders":
                data["amount"] = f"{data['amount']:.2f} EUR".replace(".", ",")
            elif self.queue == "readings":
                data["value"] = "n/a"
        return {"key": name, "id": f"{self.queue}-{self._number}", "data": data}


def is_broken(queue: str, data: dict[str, Any]) -> bool:
    """Whether an event has a value that is none, so that it becomes a dead letter."""
    return isinstance(data.get({"orders": "amount", "readings": "value"}.get(queue, "")), str)


def makers(seed: int) -> Iterator[Maker]:
    """One for each queue."""
    for place, queue in enumerate(SHARES):
        yield Maker(queue, seed + 10 * place)


_KINDS: dict[str, tuple[str, Sequence[str]]] = {
    "clicks": ("clicks", SITES),
    "orders": ("orders", CUSTOMERS),
    "readings": ("sensors", SENSORS),
    "calls": ("orders", CUSTOMERS),
}
