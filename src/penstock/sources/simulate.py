"""Simulated events, reproducible by seed: sensors, clicks and orders, with spikes, invalid and late events."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.core.errors import InvalidOption, short_repr

#: A spike lasts 5 of every 30 seconds.
_SPIKE_SECONDS, _SPIKE_PERIOD = 5.0, 30.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The events to simulate. ``spikes``, ``bad``, ``late`` and ``duplicates`` are shares from 0 to 1."""

    kind: str
    rate: float = 50.0
    keys: int = 4
    seed: int = 0
    #: The share of keys whose values are ten times as large during spikes.
    spikes: float = 0.0
    #: The share of events with an invalid value.
    bad: float = 0.0
    #: The share of events that are up to a minute late.
    late: float = 0.0
    #: The share of events that are repeated with the same id.
    duplicates: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidOption(f"kind must be {', '.join(KINDS)}, not {short_repr(self.kind)}", option="kind")
        if not 0 < self.rate <= 1_000_000:
            raise InvalidOption(f"rate must be more than 0 and at most a million, not {self.rate!r}", option="rate")
        if not 1 <= self.keys <= 10_000_000:
            raise InvalidOption(f"keys must be 1 to 10,000,000, not {self.keys!r}", option="keys")
        for name in ("spikes", "bad", "late", "duplicates"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise InvalidOption(f"{name} must be a share from 0 to 1, not {share!r}", option=name)


def events(traffic: Traffic, begin: datetime) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield events without end, each with the number of seconds after ``begin`` when it is due.

    The same traffic yields the same events.
    """
    generator = random.Random(traffic.seed)  # noqa: S311 - must be reproducible
    make_data = KINDS[traffic.kind]
    keys = [f"{traffic.kind[:-1]}-{i:0{len(str(traffic.keys - 1))}d}" for i in range(traffic.keys)]
    spiking_keys = math.ceil(traffic.spikes * traffic.keys) if traffic.spikes else 0
    number = 0
    while True:
        due = number / traffic.rate
        index = generator.randrange(traffic.keys)
        is_spiking = index < spiking_keys and due % _SPIKE_PERIOD >= _SPIKE_PERIOD - _SPIKE_SECONDS
        time = begin + timedelta(seconds=due)
        if generator.random() < traffic.late:
            time -= timedelta(seconds=generator.uniform(5, 60))
        data = make_data(generator, keys[index], due, 10.0 if is_spiking else 1.0)
        if generator.random() < traffic.bad:
            data |= generator.choice(_BAD[traffic.kind])
        data["at"] = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {
            "key": keys[index],
            "id": f"{traffic.kind}-{traffic.seed}-{begin.timestamp():.0f}-{number}",
            "time": time,
            "data": data,
        }
        yield due, event
        if generator.random() < traffic.duplicates:
            yield due, event
        number += 1


def _sensor(generator: random.Random, key: str, due: float, spike: float) -> dict[str, Any]:
    value = (generator.random() * 100 + math.sin(due / 10) * 20) * spike
    return {"sensor": key, "value": round(value, 2), "unit": "celsius"}


_PAGES = ("/", "/pricing", "/docs", "/docs/start", "/blog", "/login", "/about")


def _click(generator: random.Random, key: str, due: float, spike: float) -> dict[str, Any]:
    return {
        "site": key,
        # Some pages and some users are more frequent than others.
        "url": _PAGES[min(int(generator.expovariate(0.7)), len(_PAGES) - 1)],
        "user": f"user-{int(generator.paretovariate(1.2) * 10 * spike) % 10_000}",
        "ms": round(generator.lognormvariate(5, 0.6) * spike),
    }


def _order(generator: random.Random, key: str, due: float, spike: float) -> dict[str, Any]:
    cents = round(generator.lognormvariate(8, 0.8) * spike)
    return {"customer": key, "amount": cents / 100, "currency": "EUR", "items": generator.randint(1, 5)}


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
