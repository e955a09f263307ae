"""Randomness of the events, measured with a compressor: the stored size is honest only for random events."""

from __future__ import annotations

import zlib

import zstandard

from benchmarks.load.events import Generator
from benchmarks.log.bench import ndjson

_EVENTS = 2_000


def describe_events() -> dict[str, float]:
    """Sizes per event, over one chunk of them."""
    generator = Generator()
    made = generator.make(_EVENTS)
    lines = ndjson(made)
    ids = "".join(made.ids).encode()
    notes = "".join([data["note"] for data in made.data]).encode()
    zstd = zstandard.ZstdCompressor(level=3)
    return {
        "json_bytes": round(len(lines) / _EVENTS - 1, 2),
        "id_bytes": len(ids) / _EVENTS,
        "random_bits": round(generator.random_bits(), 1),
        "data_zlib_bytes": round(len(zlib.compress(lines, 9)) / _EVENTS, 2),
        "data_zstd_bytes": round(len(zstd.compress(lines)) / _EVENTS, 2),
        "note_column_zlib_bytes": round(len(zlib.compress(notes, 9)) / _EVENTS, 2),
        "id_column_zlib_bytes": round(len(zlib.compress(ids, 9)) / _EVENTS, 2),
    }
