"""Made-up traffic that is the same for the same seed: sensors, clicks, orders, and what goes wrong with them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.core.errors import InvalidOption, shown

#: A spike lasts this many seconds out of so many.
_SPIKE_SECONDS, _SPIKE_EVERY = 5.0, 30.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to simulate. ``spikes``, ``bad``, ``late`` and ``duplicates`` are shares from 0 to 1."""

    kind: str
    rate: float = 50.0
    keys: int = 4
    seed: int = 0
    #: For a part of every half minute, this share of the keys shows values (and clicks, numbers) ten times as large.
    spikes: float = 0.0
    #: Events whose value is none.
    bad: float = 0.0
    #: Events that happened up to a minute before.
    late: float = 0.0
    #: Events that come a second time, with the same id.
    duplicates: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidOption(f"there is {', '.join(KINDS)} to simulate, not {shown(self.kind)}", option="kind")
        if not 0 < self.rate <= 1_000_000:
            raise InvalidOption(f"rate must be more than 0 and at most a million, not {self.rate!r}", option="rate")
        if not 1 <= self.keys <= 10_000_000:
            raise InvalidOption(f"keys must be 1 to 10,000,000, not {self.keys!r}", option="keys")
        for name in ("spikes", "bad", "late", "duplicates"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise InvalidOption(f"{name} is a share from 0 to 1, not {share!r}", option=name)


def events(traffic: Traffic, begin: datetime) -> Iterator[tuple[float, dict[str, Any]]]:
    """Events without end, in the order they are to be pushed, each after how many seconds it is due.

    The same traffic gives the same events; times count from ``begin``.
    """
    dice = random.Random(traffic.seed)  # noqa: S311 - to be the same again
    make = KINDS[traffic.kind]
    sites = [f"{traffic.kind[:-1]}-{i:0{len(str(traffic.keys - 1))}d}" for i in range(traffic.keys)]
    many = math.ceil(traffic.spikes * traffic.keys) if traffic.spikes else 0
    number = 0
    while True:
        due = number / traffic.rate
        index = dice.randrange(traffic.keys)
        spiking = index < many and due % _SPIKE_EVERY >= _SPIKE_EVERY - _SPIKE_SECONDS
        happened = begin + timedelta(seconds=due)
        if dice.random() < traffic.late:
            happened -= timedelta(seconds=dice.uniform(5, 60))
        data = make(dice, sites[index], due, 10.0 if spiking else 1.0)
        if dice.random() < traffic.bad:
            data |= dice.choice(_BAD[traffic.kind])
        data["at"] = happened.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {
            "key": sites[index],
            "id": f"{traffic.kind}-{traffic.seed}-{begin.timestamp():.0f}-{number}",
            "time": happened,
            "data": data,
        }
        yield due, event
        if dice.random() < traffic.duplicates:
            yield due, event
        number += 1


def _sensor(dice: random.Random, key: str, due: float, spike: float) -> dict[str, Any]:
    value = (dice.random() * 100 + math.sin(due / 10) * 20) * spike
    return {"sensor": key, "value": round(value, 2), "unit": "celsius"}


_PAGES = ("/", "/pricing", "/docs", "/docs/start", "/blog", "/login", "/about")


def _click(dice: random.Random, key: str, due: float, spike: float) -> dict[str, Any]:
    return {
        "site": key,
        # Some pages and some people are seen more often than others.
        "url": _PAGES[min(int(dice.expovariate(0.7)), len(_PAGES) - 1)],
        "user": f"user-{int(dice.paretovariate(1.2) * 10 * spike) % 10_000}",
        "ms": round(dice.lognormvariate(5, 0.6) * spike),
    }


def _order(dice: random.Random, key: str, due: float, spike: float) -> dict[str, Any]:
    cents = round(dice.lognormvariate(8, 0.8) * spike)
    return {"customer": key, "amount": cents / 100, "currency": "EUR", "items": dice.randint(1, 5)}


KINDS: dict[str, Callable[[random.Random, str, float, float], dict[str, Any]]] = {
    "sensors": _sensor,
    "clicks": _click,
    "orders": _order,
}
_BAD: dict[str, list[dict[str, Any]]] = {
    "sensors": [{"value": "n/a"}, {"value": None}, {"value": {}}],
    "clicks": [{"ms": "slow"}, {"url": None}],
    "orders": [{"amount": "free"}, {"amount": None}],
}
