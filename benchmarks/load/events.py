"""Event generator with a fixed seed: about 100 bytes of JSON per event.

It uses only the standard library, because the environments of the peers import it.
"""

from __future__ import annotations

from itertools import count
from math import log2
from random import Random
from typing import NamedTuple, TypedDict

SEED = 20_260_131
#: The ``ts`` of an event is this plus its number, so it identifies the event.
EPOCH = 1_763_200_000_000
USERS = 10_000
_PAGES = [f"/catalogue/item/{i}" for i in range(500)]
_MIN_CENTS, _MAX_CENTS = 100, 99_999
_NOTE_BYTES = 6
_ID_BYTES = 8


class Data(TypedDict):
    """The payload of an event."""

    user: str
    amount: int
    ts: int
    page: str
    note: str


class EventBatch(NamedTuple):
    """Consecutive events from number ``first``, and their ids."""

    first: int
    data: list[Data]
    ids: list[str]


class Generator:
    """Generates distinct events, which depend only on the seed and the number of users.

    With ``each_once``, each block of as many events as there are users has one event of each user.
    """

    def __init__(self, users: int = USERS, *, each_once: bool = False, seed: int = SEED) -> None:
        self._random = Random(seed)
        self._users = [f"u{i}" for i in range(users)]
        self._each_once = each_once
        self._next = 0

    def generate(self, amount: int) -> EventBatch:
        random, first = self._random, self._next
        self._next += amount
        users = self._permuted_users(amount) if self._each_once else random.choices(self._users, k=amount)
        amounts = random.choices(range(_MIN_CENTS, _MAX_CENTS + 1), k=amount)
        pages = random.choices(_PAGES, k=amount)
        notes = _hex(random, amount, _NOTE_BYTES)
        ids = _hex(random, amount, _ID_BYTES)
        data = [
            Data(user=user, amount=cents, ts=ts, page=page, note=note)
            for user, cents, ts, page, note in zip(users, amounts, count(EPOCH + first), pages, notes, strict=False)
        ]
        return EventBatch(first, data, ids)

    def random_bits(self) -> float:
        """Return the random bits of an event with its id, without its ``ts``."""
        users = 0.0 if self._each_once else log2(len(self._users))
        return users + log2(_MAX_CENTS - _MIN_CENTS + 1) + log2(len(_PAGES)) + 8 * (_NOTE_BYTES + _ID_BYTES)

    def _permuted_users(self, amount: int) -> list[str]:
        if amount % len(self._users):
            raise ValueError(f"{amount} events are no multiple of {len(self._users)} users")
        users: list[str] = []
        for _ in range(amount // len(self._users)):
            users += self._random.sample(self._users, len(self._users))
        return users


def _hex(random: Random, amount: int, width: int) -> list[str]:
    text = random.randbytes(amount * width).hex()
    return [text[i : i + 2 * width] for i in range(0, len(text), 2 * width)]
