"""The orders of the demonstration, and what they have to add up to."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

TENANTS = ("alder", "birch", "cedar", "hazel", "linden", "maple", "rowan", "willow")
_PRICES = range(199, 24_999)
_POISONED = 3


@dataclass(frozen=True, slots=True)
class Orders:
    """What is pushed: events, how many cents they are worth, and the ids of those that break a careless reader."""

    events: list[dict[str, Any]]
    cents: int
    poisoned: frozenset[str]


def make_orders(count: int) -> Orders:
    """Make orders of several tenants; a few of them write their amount as text, with a comma."""
    chance = random.Random(20)  # noqa: S311 - the same orders each time
    poisoned = frozenset(f"order-{n}" for n in chance.sample(range(count), min(_POISONED, count)))
    sequence = dict.fromkeys(TENANTS, 0)
    events = []
    total = 0
    for n in range(count):
        tenant, cents = chance.choice(TENANTS), chance.choice(_PRICES)
        total += cents
        order = f"order-{n}"
        amount = f"{cents // 100},{cents % 100:02}" if order in poisoned else f"{cents // 100}.{cents % 100:02}"
        data = {"order": order, "tenant": tenant, "sequence": sequence[tenant], "amount": amount}
        events.append({"data": data, "key": tenant, "id": order})
        sequence[tenant] += 1
    return Orders(events, total, poisoned)


def cents_of(data: dict[str, Any]) -> int:
    """What an order is worth, as the first version of billing reads it."""
    whole, _, rest = data["amount"].partition(".")
    return int(whole) * 100 + int(rest)


def cents_of_any(data: dict[str, Any]) -> int:
    """What an order is worth, with the bug fixed."""
    return cents_of({**data, "amount": data["amount"].replace(",", ".")})


@dataclass(slots=True)
class Ledger:
    """What a group has made of the orders it completed."""

    cents: int = 0
    orders: int = 0
    twice: int = 0
    out_of_order: int = 0
    _seen: set[str] = field(default_factory=set)
    _next: dict[str, int] = field(default_factory=dict)

    def enter(self, data: dict[str, Any], cents: int, *, redriven: bool = False) -> None:
        """Enter an order; one that comes back from the dead letters need not be in its place."""
        self.cents += cents
        self.orders += 1
        self.twice += data["order"] in self._seen
        self._seen.add(data["order"])
        if not redriven:
            self.out_of_order += data["sequence"] < self._next.get(data["tenant"], 0)
            self._next[data["tenant"]] = data["sequence"] + 1


def money(cents: int) -> str:
    """An amount for people."""
    return f"{cents // 100:,}.{cents % 100:02}"
