"""Compressibility of the generated events. The stored size is meaningful only if they do not compress well."""

from __future__ import annotations

import zlib

import zstandard

from benchmarks.load.events import Generator
from benchmarks.log.bench import ndjson

_EVENTS = 2_000


def describe_events() -> dict[str, float]:
    """Return raw and compressed sizes per event, over one chunk."""
    generator = Generator()
    batch = generator.generate(_EVENTS)
    lines = ndjson(batch)
    ids = "".join(batch.ids).encode()
    notes = "".join([data["note"] for data in batch.data]).encode()
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
