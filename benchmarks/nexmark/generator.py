"""Nexmark event generator with a seed.

Of 50 events, one is a person, three are auctions and 46 are bids.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_PERSONS, _AUCTIONS, _ALL = 1, 3, 50
_FIRST_ID = 1000
_CATEGORIES = range(10, 15)
#: One in this many chooses any seller, auction or bidder. The others choose a currently popular one.
_HOT_SELLER, _HOT_AUCTION, _HOT_BIDDER = 4, 2, 4
_START = datetime(2026, 1, 1, tzinfo=UTC)
_STATES = {
    "AZ": "Phoenix",
    "CA": "San Francisco",
    "ID": "Boise",
    "OR": "Portland",
    "WA": "Redmond",
    "WY": "Cheyenne",
}
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


@dataclass(frozen=True)
class NexmarkEvent:
    """An event and its queue."""

    queue: str
    key: str
    data: dict[str, Any]


def generate(events: int, *, seed: int = 1, per_second: int = 100) -> Iterator[NexmarkEvent]:
    """Yield events in the order of their times."""
    chance = random.Random(seed)
    for number in range(events):
        at = _START + timedelta(seconds=number / per_second)
        epoch, position = divmod(number, _ALL)
        if position < _PERSONS:
            yield _person(chance, _FIRST_ID + epoch, at)
        elif position < _PERSONS + _AUCTIONS:
            yield _auction(chance, _FIRST_ID + epoch * _AUCTIONS + position - _PERSONS, epoch, at)
        else:
            yield _bid(chance, epoch, at)


def _person(chance: random.Random, number: int, at: datetime) -> NexmarkEvent:
    first, last = chance.choice(_FIRST_NAMES), chance.choice(_LAST_NAMES)
    state = chance.choice(list(_STATES))
    data = {
        "id": number,
        "name": f"{first} {last}",
        "emailAddress": f"{first.lower()}{number}@example.com",
        "creditCard": " ".join(f"{chance.randrange(10_000):04d}" for _ in range(4)),
        "city": _STATES[state],
        "state": state,
        "dateTime": _format_time(at),
    }
    return NexmarkEvent("person", str(number), data)


def _auction(chance: random.Random, number: int, epoch: int, at: datetime) -> NexmarkEvent:
    seller = _FIRST_ID + (epoch // 10 * 10 if chance.randrange(_HOT_SELLER) else chance.randint(0, epoch))
    price = _price(chance)
    data = {
        "id": number,
        "itemName": f"item {chance.randrange(10_000)}",
        "initialBid": price,
        "reserve": price + _price(chance),
        "dateTime": _format_time(at),
        "expires": _format_time(at + timedelta(seconds=chance.uniform(1, 20))),
        "seller": seller,
        "category": chance.choice(_CATEGORIES),
    }
    return NexmarkEvent("auction", str(number), data)


def _bid(chance: random.Random, epoch: int, at: datetime) -> NexmarkEvent:
    last_auction = epoch * _AUCTIONS + _AUCTIONS - 1
    auction = (
        last_auction // 20 * 20
        if chance.randrange(_HOT_AUCTION)
        else chance.randint(max(0, last_auction - 100), last_auction)
    )
    bidder = epoch // 10 * 10 if chance.randrange(_HOT_BIDDER) else chance.randint(0, epoch)
    channel = chance.choice(_CHANNELS)
    data = {
        "auction": _FIRST_ID + auction,
        "bidder": _FIRST_ID + bidder,
        "price": _price(chance),
        "channel": channel,
        "url": f"https://www.example.com/{channel.lower()}/item.htm?query=1",
        "dateTime": _format_time(at),
    }
    return NexmarkEvent("bid", str(_FIRST_ID + auction), data)


def _price(chance: random.Random) -> int:
    """Return a price in cents, log-uniformly distributed."""
    return round(10 ** (chance.random() * 6) * 100)


def _format_time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
