"""The events of the drain: about 90 bytes of JSON each, always the same ones for the same seed.

They are made by the hundred thousand, as Arrow columns that are joined into lines, since making them must not take
longer than draining them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache
from math import log2
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

SEED = 20_260_131
#: A multiple of the window, so that windows can be counted from here.
EPOCH_MS = 1_763_200_000_000
#: An event comes up to this much after events that are younger: less than what is allowed for.
DISORDER_MS = 200
LATENESS_MS = 1_000
WINDOW_MS = 5_000
_PAGES = 500
_LEAST_CENTS, _MOST_CENTS = 100, 99_999
_SAMPLE = 2_000


@dataclass(frozen=True, slots=True)
class Work:
    """A stream of events: over how many keys, and how many of them in a second of event time."""

    keys: int
    per_second: int = 100_000

    def columns(self, first: int, amount: int) -> tuple[Any, Any, Any]:
        """Keys, amounts in cents and times of the events from number ``first`` on."""
        random = np.random.Generator(np.random.PCG64([SEED, self.keys, first]))
        keys = random.integers(0, self.keys, amount)
        cents = random.integers(_LEAST_CENTS, _MOST_CENTS + 1, amount)
        due = np.arange(first, first + amount) * 1000 // self.per_second
        times = EPOCH_MS + np.maximum(due - random.integers(0, DISORDER_MS, amount), 0)
        return keys, cents, times

    def lines(self, first: int, amount: int) -> tuple[bytes, int]:
        """The events as NDJSON, and the sum of their amounts in cents."""
        keys, cents, times = self.columns(first, amount)
        random = np.random.Generator(np.random.PCG64([SEED, self.keys, first, 1]))
        parts = [
            pa.scalar('{"customer":"'),
            _pick(_texts("c{:07d}", self.keys), keys),
            pa.scalar('","amount":'),
            _pick(_amounts(), cents - _LEAST_CENTS),
            pa.scalar(',"ts":'),
            pc.cast(pa.array(times), pa.string()),
            pa.scalar(',"page":"/p/'),
            _pick(_texts("{}", _PAGES), random.integers(0, _PAGES, amount)),
            pa.scalar('","note":"'),
            _pick(_texts("{:04x}", 65536), random.integers(0, 65536, amount)),
            _pick(_texts("{:04x}", 65536), random.integers(0, 65536, amount)),
            pa.scalar('"}\n'),
            pa.scalar(""),  # what the parts are joined by
        ]
        joined = pc.call_function("binary_join_element_wise", parts)
        return joined.buffers()[2].to_pybytes()[: _end(joined)], int(cents.sum())

    def random_bits(self) -> float:
        """Return the random bits of an event."""
        amounts = _MOST_CENTS - _LEAST_CENTS + 1
        return log2(self.keys) + log2(amounts) + log2(_PAGES) + log2(DISORDER_MS) + 32

    def describe(self) -> dict[str, float]:
        """Sizes per event, and what compressors make of a chunk of them."""
        lines, _ = self.lines(0, _SAMPLE)
        return {
            "keys": self.keys,
            "per_second_of_event_time": self.per_second,
            "json_bytes": round(len(lines) / _SAMPLE - 1, 2),
            "random_bits": round(self.random_bits(), 1),
            "zlib_bytes": round(len(zlib.compress(lines, 9)) / _SAMPLE, 2),
            "zstd_bytes": round(len(zstandard.ZstdCompressor(level=3).compress(lines)) / _SAMPLE, 2),
        }


@cache
def _texts(form: str, amount: int) -> Any:
    return pa.array([form.format(i) for i in range(amount)])


@cache
def _amounts() -> Any:
    return pa.array([f"{cents // 100}.{cents % 100:02d}" for cents in range(_LEAST_CENTS, _MOST_CENTS + 1)])


def _pick(texts: Any, which: Any) -> Any:
    return texts.take(pa.array(which))


def _end(joined: Any) -> int:
    return int(np.frombuffer(joined.buffers()[1], dtype=np.int32)[len(joined)])
