"""Events as Parquet files in a directory, a file for each batch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.core import json
from penstock.core.errors import ConfigurationError
from penstock.sinks.checks import read_path
from penstock.sinks.contract import Guarantee, Sink
from penstock.sinks.position import PositionFile, Reached, sync_directory

if TYPE_CHECKING:
    from penstock.log.event import Event


class Parquet(Sink):
    """Writes each batch as a file of its own: the fields of the data as columns, and ``_id``, ``_key`` and ``_time``.

    A file is there whole or not at all, and an event is in one of them. Give it a pace: ``every=60`` makes a file a
    minute, of up to ``batch`` events. A column whose values are of several kinds is text, in JSON. It needs pyarrow
    (``pip install 'penstock[spark]'``).
    """

    guarantee: Guarantee = "exactly_once"
    batch = 50_000

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = read_path("directory", directory)
        self.name = f"parquet:{self._directory.name}"
        self._position = PositionFile(self._directory / ".position")
        self._reached = Reached()

    async def open(self) -> None:
        """See what is there."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ConfigurationError("Parquet files need pyarrow: pip install 'penstock[spark]'") from None
        await asyncio.to_thread(self._open)

    async def write(self, events: Sequence[Event]) -> None:
        """Write a file with the events that are in none yet."""
        fresh = [event for event in events if not self._reached.has(event)]
        if fresh:
            await asyncio.to_thread(self._write, fresh)

    async def acknowledged(self, events: Sequence[Event]) -> None:
        """Forget where they are."""
        self._reached.forget(events)

    async def close(self) -> None:
        """Let go of the directory."""
        await asyncio.to_thread(self._position.write, self._reached)
        self._position.close()

    def _open(self) -> None:
        self._reached = self._position.open() or Reached()
        for left in self._directory.glob(".part-*"):
            # What was announced is finished; what was not never happened.
            if left.name == f".{self._reached.moving_to}":
                left.rename(self._directory / left.name[1:])
            else:
                left.unlink()
        sync_directory(self._directory)

    def _write(self, events: Sequence[Event]) -> None:
        import pyarrow.parquet as pq

        number = self._reached.length + 1
        name = f"part-{number:08d}.parquet"
        made = self._directory / f".{name}"
        pq.write_table(_table(events), made, compression="zstd")
        with made.open("rb") as file:
            os.fsync(file.fileno())
        after = Reached(number, {lane: list(ranges) for lane, ranges in self._reached.unconfirmed.items()}, name)
        after.add(events)
        self._position.write(after)
        made.rename(self._directory / name)
        sync_directory(self._directory)
        self._reached = after


def _table(events: Sequence[Event]) -> Any:
    import pyarrow as pa

    rows = [event.data if isinstance(event.data, dict) else {"value": event.data} for event in events]
    columns: dict[str, Any] = {
        "_id": pa.array([event.id for event in events], pa.string()),
        "_key": pa.array([event.key for event in events], pa.string()),
        "_time": pa.array([event.time for event in events], pa.timestamp("us", "UTC")),
    }
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            columns[name] = pa.array([None if v is None else json.encode(v).decode() for v in values], pa.string())
        if columns[name].type == pa.struct([]):  # Parquet has no empty ones
            columns[name] = pa.array([None if v is None else "{}" for v in values], pa.string())
    return pa.table(columns)
