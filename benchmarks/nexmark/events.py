"""Nexmark events with a seed, in the proportions and distributions of the official generator.

Of 50 events, one is a person, three are auctions and 46 are bids. Events are generated as Arrow columns, in blocks: a
million take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TABLES = ("person", "auction", "bid")
#: The field of each table that is the key of its events.
KEYS = {"person": "id", "auction": "id", "bid": "auction"}
#: Events of a block. Each table of a block is a file.
BLOCK_EVENTS = 50_000
SIDE_INPUT_ROWS = 10_000

_PERSONS, _AUCTIONS, _EPOCH = 1, 3, 50
_BIDS = _EPOCH - _PERSONS - _AUCTIONS
_FIRST_ID = 1000
_CATEGORIES = (10, 15)
#: The share of events that choose the popular seller, auction, bidder or channel.
_HOT_SELLERS, _HOT_AUCTIONS, _HOT_BIDDERS, _HOT_CHANNELS = 3 / 4, 1 / 2, 3 / 4, 1 / 2
#: The popular person or auction changes after so many new ones.
_HOT_PERIOD = 100
#: Others choose from the newest auctions and persons, and a few that do not exist yet.
_OPEN_AUCTIONS, _ACTIVE_PERSONS, _LEAD = 100, 1000, 10
_MIDNIGHT_MS = round(datetime(2026, 1, 15, tzinfo=UTC).timestamp() * 1000)
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_OTHER_CHANNELS = 10_000
_POOL = 1 << 14
#: Seeds of the texts that do not depend on the seed of a workload.
_TEXT_SEED = 20_260_131


@dataclass(frozen=True, slots=True)
class Workload:
    """The events of a run. Half of them are before midnight, UTC, so that there are two days."""

    events: int
    seed: int = 1
    per_second: int = 10_000

    def blocks(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the persons, auctions and bids of each block, in the order of their times."""
        for first in range(0, self.events, BLOCK_EVENTS):
            numbers = np.arange(first, min(first + BLOCK_EVENTS, self.events))
            random = np.random.Generator(np.random.PCG64([self.seed, first]))
            position = numbers % _EPOCH
            is_person, is_bid = position < _PERSONS, position >= _PERSONS + _AUCTIONS
            yield {
                "person": self._persons(random, numbers[is_person]),
                "auction": self._auctions(random, numbers[~is_person & ~is_bid]),
                "bid": self._bids(random, numbers[is_bid]),
            }

    def count(self, table: str) -> int:
        """Return the number of events of a table."""
        epochs, rest = divmod(self.events, _EPOCH)
        if table == "person":
            return epochs * _PERSONS + min(rest, _PERSONS)
        if table == "auction":
            return epochs * _AUCTIONS + min(max(rest - _PERSONS, 0), _AUCTIONS)
        return epochs * _BIDS + max(rest - _PERSONS - _AUCTIONS, 0)

    @property
    def span_seconds(self) -> float:
        """The event time from the first event to the last."""
        return self.events / self.per_second

    def _persons(self, random: np.random.Generator, numbers: Any) -> pa.Table:
        count = len(numbers)
        names = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
        cards = [_pick(_digits(), random.integers(0, 10_000, count)) for _ in range(4)]
        return pa.table(
            {
                "id": pa.array(_FIRST_ID + numbers // _EPOCH),
                "name": _choose(random, names, count),
                "emailAddress": _join(_text(random, 3, 7, count), "@", _text(random, 3, 5, count), ".com"),
                "creditCard": _join(cards[0], " ", cards[1], " ", cards[2], " ", cards[3]),
                "city": _choose(random, _CITIES, count),
                "state": _choose(random, _STATES, count),
                "dateTime": _format_times(self._times(numbers)),
                "extra": _text(random, 90, 130, count),
            }
        )

    def _auctions(self, random: np.random.Generator, numbers: Any) -> pa.Table:
        count, epoch, times = len(numbers), numbers // _EPOCH, self._times(numbers)
        initial = _prices(random, count)
        horizon_ms = _OPEN_AUCTIONS * _EPOCH * 1000 // (_AUCTIONS * self.per_second)
        lengths = 1 + random.integers(0, max(2 * horizon_ms, 1), count)
        return pa.table(
            {
                "id": pa.array(_FIRST_ID + epoch * _AUCTIONS + numbers % _EPOCH - _PERSONS),
                "itemName": _text(random, 3, 20, count),
                "description": _text(random, 3, 100, count),
                "initialBid": pa.array(initial),
                "reserve": pa.array(initial + _prices(random, count)),
                "dateTime": _format_times(times),
                "expires": _format_times(times + lengths),
                "seller": pa.array(_FIRST_ID + _persons_of(random, epoch, _HOT_SELLERS, 0)),
                "category": pa.array(random.integers(*_CATEGORIES, count)),
                "extra": _text(random, 260, 380, count),
            }
        )

    def _bids(self, random: np.random.Generator, numbers: Any) -> pa.Table:
        count, epoch = len(numbers), numbers // _EPOCH
        newest = epoch * _AUCTIONS + _AUCTIONS - 1
        oldest = np.maximum(newest - _OPEN_AUCTIONS, 0)
        open_auctions = oldest + (random.random(count) * (newest - oldest + 1 + _LEAD)).astype(np.int64)
        is_hot = random.random(count) < _HOT_AUCTIONS
        channel = np.where(
            random.random(count) < _HOT_CHANNELS,
            random.integers(0, len(_CHANNELS), count),
            len(_CHANNELS) + random.integers(0, _OTHER_CHANNELS, count),
        )
        channels, urls = _channels()
        return pa.table(
            {
                "auction": pa.array(_FIRST_ID + np.where(is_hot, newest // _HOT_PERIOD * _HOT_PERIOD, open_auctions)),
                "bidder": pa.array(_FIRST_ID + _persons_of(random, epoch, _HOT_BIDDERS, 1)),
                "price": pa.array(_prices(random, count)),
                "channel": _pick(channels, channel),
                "url": _pick(urls, channel),
                "dateTime": _format_times(self._times(numbers)),
                "extra": _text(random, 54, 82, count),
            }
        )

    def _times(self, numbers: Any) -> Any:
        return _MIDNIGHT_MS + (numbers - self.events // 2) * 1000 // self.per_second


def json_lines(table: pa.Table) -> bytes:
    """Return rows as NDJSON. Texts are letters and digits and need no escapes."""
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        is_text = pa.types.is_string(column.type)
        quote = '"' if is_text else ""
        parts += [pa.scalar(f'{"," if number else "{"}"{name}":{quote}'), column if is_text else column.cast("string")]
        if is_text:
            parts.append(pa.scalar('"'))
    joined = _join(*parts, pa.scalar("}\n"))
    return b"".join(_bytes(chunk) for chunk in joined.chunks)


def side_input() -> pa.Table:
    """Return the side input of query 13."""
    return pa.table(
        {
            "key": pa.array(range(SIDE_INPUT_ROWS), pa.int64()),
            "value": pa.array([f"value {number * 7919 % SIDE_INPUT_ROWS}" for number in range(SIDE_INPUT_ROWS)]),
        }
    )


def _persons_of(random: np.random.Generator, epoch: Any, hot: float, offset: int) -> Any:
    """Choose a person for each event: the popular one, or one of the newest."""
    known = epoch + 1
    active = np.minimum(known, _ACTIVE_PERSONS)
    others = known - active + (random.random(len(epoch)) * (active + _LEAD)).astype(np.int64)
    return np.where(random.random(len(epoch)) < hot, epoch // _HOT_PERIOD * _HOT_PERIOD + offset, others)


def _prices(random: np.random.Generator, count: int) -> Any:
    """Return prices in cents, log-uniformly distributed."""
    return np.rint(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _format_times(times_ms: Any) -> Any:
    distinct, which = np.unique(times_ms, return_inverse=True)
    texts = np.datetime_as_string(distinct.astype("datetime64[ms]"), unit="ms")
    return _pick(pa.array([f"{text}Z" for text in texts.tolist()]), which)


def _text(random: np.random.Generator, shortest: int, longest: int, count: int) -> Any:
    return _pick(_texts(shortest, longest), random.integers(0, _POOL, count))


def _choose(random: np.random.Generator, texts: Any, count: int) -> Any:
    return _pick(pa.array(texts), random.integers(0, len(texts), count))


@cache
def _texts(shortest: int, longest: int) -> Any:
    """Return random texts of letters."""
    random = np.random.Generator(np.random.PCG64([_TEXT_SEED, shortest, longest]))
    letters = random.integers(ord("a"), ord("z") + 1, (_POOL, longest), dtype=np.uint8)
    lengths = random.integers(shortest, longest + 1, _POOL)
    return pa.array([row[:length].tobytes().decode() for row, length in zip(letters, lengths, strict=True)])


@cache
def _digits() -> Any:
    return pa.array([f"{number:04d}" for number in range(10_000)])


@cache
def _channels() -> tuple[Any, Any]:
    """Return the channels and their URLs. Nine of ten URLs have the id of the channel."""
    names = [*_CHANNELS, *(f"channel-{number}" for number in range(_OTHER_CHANNELS))]
    folders = _texts(3, 5).to_pylist()
    urls = []
    for number in range(len(names)):
        path = "/".join(folders[(number * 3 + part) % _POOL] for part in range(3))
        channel_id = f"&channel_id={number * 2_654_435_761 % 2**31}" if number % 10 else ""
        urls.append(f"https://www.nexmark.com/{path}/item.htm?query=1{channel_id}")
    return pa.array(names), pa.array(urls)


def _pick(texts: Any, which: Any) -> Any:
    return texts.take(pa.array(which))


def _join(*parts: Any) -> Any:
    return pc.call_function("binary_join_element_wise", [*(_scalar(part) for part in parts), pa.scalar("")])


def _scalar(part: Any) -> Any:
    return pa.scalar(part) if isinstance(part, str) else part


def _bytes(texts: Any) -> bytes:
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)
    return bytes(texts.buffers()[2])[offsets[texts.offset] : offsets[texts.offset + len(texts)]]
