"""Writes files through a sink and reads them back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from penstock.sinks import File, Parquet
from penstock.sinks.conformance import make_events


def read_lines(path: Path) -> list[dict[str, object]]:
    """Return the JSON lines of a file and of the rotated files before it."""
    files = [*sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")), path]
    return [json.loads(line) for file in files if file.exists() for line in file.read_bytes().split(b"\n")[:-1]]


def read_numbers(path: Path) -> list[object]:
    """Return the field ``n`` of each event in a file, or in a directory of Parquet files."""
    if path.is_file():
        return [line["n"] for line in read_lines(path)]
    parts = sorted(path.glob("*.parquet"))
    return [row["n"] for part in parts for row in pq.read_table(part).to_pylist()]


async def write_event(sink: File | Parquet, n: int, first: int = 0) -> None:
    await sink.open()
    await sink.write(make_events([{"n": n}], first=first))
    await sink.close()
