"""Persons, auctions and bids as Nexmark describes them.

Of fifty events one is a person, three are auctions and the others are bids. The same seed gives the same events.
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
#: Of so many, one goes to any seller, auction or bidder; the others go to one that is popular at the moment.
_HOT_SELLER, _HOT_AUCTION, _HOT_BIDDER = 4, 2, 4
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
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
class Made:
    """An event, and the queue that it is for."""

    queue: str
    key: str
    data: dict[str, Any]


def generate(events: int, *, seed: int = 1, per_second: int = 100) -> Iterator[Made]:
    """So many events, in the order of their times."""
    chance = random.Random(seed)
    for number in range(events):
        at = _BEGINNING + timedelta(seconds=number / per_second)
        epoch, place = divmod(number, _ALL)
        if place < _PERSONS:
            yield _person(chance, _FIRST_ID + epoch, at)
        elif place < _PERSONS + _AUCTIONS:
            yield _auction(chance, _FIRST_ID + epoch * _AUCTIONS + place - _PERSONS, epoch, at)
        else:
            yield _bid(chance, epoch, at)


def _person(chance: random.Random, number: int, at: datetime) -> Made:
    first, last = chance.choice(_FIRST_NAMES), chance.choice(_LAST_NAMES)
    state = chance.choice(list(_STATES))
    data = {
        "id": number,
        "name": f"{first} {last}",
        "emailAddress": f"{first.lower()}{number}@example.com",
        "creditCard": " ".join(f"{chance.randrange(10_000):04d}" for _ in range(4)),
        "city": _STATES[state],
        "state": state,
        "dateTime": _spelt(at),
    }
    return Made("person", str(number), data)


def _auction(chance: random.Random, number: int, epoch: int, at: datetime) -> Made:
    seller = _FIRST_ID + (epoch // 10 * 10 if chance.randrange(_HOT_SELLER) else chance.randint(0, epoch))
    price = _price(chance)
    data = {
        "id": number,
        "itemName": f"item {chance.randrange(10_000)}",
        "initialBid": price,
        "reserve": price + _price(chance),
        "dateTime": _spelt(at),
        "expires": _spelt(at + timedelta(seconds=chance.uniform(1, 20))),
        "seller": seller,
        "category": chance.choice(_CATEGORIES),
    }
    return Made("auction", str(number), data)


def _bid(chance: random.Random, epoch: int, at: datetime) -> Made:
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
        "dateTime": _spelt(at),
    }
    return Made("bid", str(_FIRST_ID + auction), data)


def _price(chance: random.Random) -> int:
    """In cents; small ones are as likely as large ones."""
    return round(10 ** (chance.random() * 6) * 100)


def _spelt(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
