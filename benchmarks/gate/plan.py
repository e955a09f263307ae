"""Rate-limit models, sizes, and the minimum time under the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock import Stream, sliding_window_gate, token_bucket_gate

#: The limits of a tenant: events per second, and burst.
RATE, CAPACITY = 100, 200
#: Costs of the events of model D, and items per request of the cascade.
WEIGHTS = tuple(range(1, 11))
ITEMS = 5
WINDOW_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Size:
    """The number of tenants, and the waiting events of each when the gate opens."""

    tenants: int
    each: int


FULL = (Size(10, 500), Size(50, 2_000), Size(100, 5_000))
QUICK = (Size(10, 500),)
RAW_EVENTS, QUICK_RAW_EVENTS, RAW_KEYS = 500_000, 100_000, 100


@dataclass(frozen=True, slots=True)
class Model:
    """A rate-limit model."""

    name: str
    #: The data of an event by its number.
    event: Callable[[int], dict[str, Any]]
    #: The cost of an event at the evaluated gate.
    cost: Callable[[dict[str, Any]], int]
    #: The streams. The first reads ``requests``, the last writes ``approved``.
    streams: Callable[[], list[Stream]]
    #: Limits of the evaluated gate: cost per second and burst. For a sliding window, ``burst`` is its limit.
    rate: float
    burst: int
    window_seconds: float | None = None

    def ideal_seconds(self, costs: list[int]) -> float:
        """Return the minimum time from the first release to the last."""
        total = sum(costs)
        if self.window_seconds is None:
            return max(0.0, (total - self.burst) / self.rate)
        return (-(-total // self.burst) - 1) * self.window_seconds


def _bucket(scale: int = 1, cost: Any = None) -> Any:
    return token_bucket_gate(capacity=CAPACITY * scale, refill_per_sec=RATE * scale, cost_fn=cost)


def _one(gate: Any) -> Callable[[], list[Stream]]:
    return lambda: [Stream.from_("requests").gate(gate).to("approved")]


def _batch(i: int) -> dict[str, Any]:
    return {"seq": i, "items": [{"id": f"{i}-{j}"} for j in range(ITEMS)]}


def _plain(i: int) -> dict[str, Any]:
    return {"seq": i, "op": "set", "room": i % 7}


def _cascade() -> list[Stream]:
    return [
        Stream.from_("requests").gate(_bucket()).to("between"),
        Stream.from_("between").gate(_bucket(ITEMS, "size(items)")).to("approved"),
    ]


_MEAN = sum(WEIGHTS) / len(WEIGHTS)

MODELS = (
    Model("A req/s", _batch, lambda _: 1, _one(_bucket()), RATE, CAPACITY),
    Model("B msg/s", _plain, lambda _: 1, _one(_bucket()), RATE, CAPACITY),
    Model("C 1:1", lambda i: {"seq": i}, lambda _: 1, _one(_bucket()), RATE, CAPACITY),
    Model(
        "D cost-based",
        lambda i: {"seq": i, "weight": WEIGHTS[i % len(WEIGHTS)]},
        lambda data: int(data["weight"]),
        _one(token_bucket_gate(capacity=CAPACITY * 5.5, refill_per_sec=RATE * 5.5, cost_fn="weight")),
        RATE * _MEAN,
        int(CAPACITY * _MEAN),
    ),
    Model("A+B cascade", _batch, lambda data: len(data["items"]), _cascade, RATE * ITEMS, CAPACITY * ITEMS),
    Model(
        "E sliding window",
        _plain,
        lambda _: 1,
        _one(sliding_window_gate(limit=RATE * WINDOW_SECONDS, window_sec=WINDOW_SECONDS)),
        RATE,
        RATE * WINDOW_SECONDS,
        WINDOW_SECONDS,
    ),
)
