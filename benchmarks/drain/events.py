"""Workloads of the drain: about 90 bytes of JSON per event, with a fixed seed.

Events are generated as Arrow columns that are joined into lines, because the generation must be faster than the drain.
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
#: A multiple of the window size.
EPOCH_MS = 1_763_200_000_000
#: Events are out of order by up to this much, less than the allowed lateness.
DISORDER_MS = 200
LATENESS_MS = 1_000
WINDOW_MS = 5_000
_PAGES = 500
_MIN_CENTS, _MAX_CENTS = 100, 99_999
_SAMPLE = 2_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream of events with a number of keys and of events per second of event time."""

    keys: int
    per_second: int = 100_000

    def columns(self, first: int, amount: int) -> tuple[Any, Any, Any]:
        """Return keys, amounts in cents and times of the events from number ``first``."""
        random = np.random.Generator(np.random.PCG64([SEED, self.keys, first]))
        keys = random.integers(0, self.keys, amount)
        cents = random.integers(_MIN_CENTS, _MAX_CENTS + 1, amount)
        due = np.arange(first, first + amount) * 1000 // self.per_second
        times = EPOCH_MS + np.maximum(due - random.integers(0, DISORDER_MS, amount), 0)
        return keys, cents, times

    def lines(self, first: int, amount: int) -> tuple[bytes, int]:
        """Return the events as NDJSON, and the sum of their amounts in cents."""
        keys, cents, times = self.columns(first, amount)
        random = np.random.Generator(np.random.PCG64([SEED, self.keys, first, 1]))
        parts = [
            pa.scalar('{"customer":"'),
            _pick(_texts("c{:07d}", self.keys), keys),
            pa.scalar('","amount":'),
            _pick(_amounts(), cents - _MIN_CENTS),
            pa.scalar(',"ts":'),
            pc.cast(pa.array(times), pa.string()),
            pa.scalar(',"page":"/p/'),
            _pick(_texts("{}", _PAGES), random.integers(0, _PAGES, amount)),
            pa.scalar('","note":"'),
            _pick(_texts("{:04x}", 65536), random.integers(0, 65536, amount)),
            _pick(_texts("{:04x}", 65536), random.integers(0, 65536, amount)),
            pa.scalar('"}\n'),
            pa.scalar(""),  # the separator
        ]
        joined = pc.call_function("binary_join_element_wise", parts)
        return joined.buffers()[2].to_pybytes()[: _end(joined)], int(cents.sum())

    def random_bits(self) -> float:
        """Return the random bits of an event."""
        amounts = _MAX_CENTS - _MIN_CENTS + 1
        return log2(self.keys) + log2(amounts) + log2(_PAGES) + log2(DISORDER_MS) + 32

    def describe(self) -> dict[str, float]:
        """Return raw and compressed sizes per event, over one chunk."""
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
    return pa.array([f"{cents // 100}.{cents % 100:02d}" for cents in range(_MIN_CENTS, _MAX_CENTS + 1)])


def _pick(texts: Any, which: Any) -> Any:
    return texts.take(pa.array(which))


def _end(joined: Any) -> int:
    return int(np.frombuffer(joined.buffers()[1], dtype=np.int32)[len(joined)])
