"""Events as Parquet files in a directory, a file for each batch."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.core import json
from penstock.core.errors import ConfigurationError
from penstock.sinks.files.base import OnDisk
from penstock.sinks.files.progress_file import Reached, sync_directory
from penstock.sinks.validation import read_path

if TYPE_CHECKING:
    from penstock.log.event import Event

_PART = re.compile(r"part-(\d+)\.parquet")


class Parquet(OnDisk):
    """Writes each batch as a file of its own: the fields of the data as columns, and ``_id``, ``_key`` and ``_time``.

    A file is there whole or not at all, and an event is in one of them. Give it a pace: ``every=60`` makes a file a
    minute, of up to ``batch`` events. A column whose values are of several kinds is text, in JSON. It needs pyarrow
    (``pip install 'penstock[spark]'``).
    """

    batch = 50_000

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        path = read_path("directory", directory)
        super().__init__(path, path / ".position")
        self.name = f"parquet:{path.name}"

    async def open(self) -> None:
        """See what is there."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ConfigurationError("Parquet files need pyarrow: pip install 'penstock[spark]'") from None
        await super().open()

    def _open(self) -> None:
        reached = self._position.open() or Reached()
        try:
            self._reached = self._after_what_is_there(reached)
            self._finish()
            for left in self._path.glob(".part-*"):
                left.unlink()  # what was not announced never happened
            sync_directory(self._path)
        except BaseException:
            self._position.close()
            raise

    def _after_what_is_there(self, reached: Reached) -> Reached:
        """Where the position was lost, files of before are not written over."""
        found = [int(part[1]) for file in self._path.iterdir() if (part := _PART.fullmatch(file.name))]
        return reached.after(max([reached.length, *found]), (), reached.moving_to)

    def _finish(self) -> None:
        """Give the file that was announced its name, if it has it not yet."""
        if self._reached.moving_to is not None:
            made = self._path / f".{self._reached.moving_to}"
            if made.exists():
                made.rename(self._path / self._reached.moving_to)
                sync_directory(self._path)

    def _add(self, events: Sequence[Event]) -> None:
        import pyarrow.parquet as pq

        self._finish()
        if not events:
            return
        self._position.make_certain(self._reached)
        number = self._reached.length + 1
        name = f"part-{number:08d}.parquet"
        made = self._path / f".{name}"
        pq.write_table(_table(events), made, compression="zstd")
        with made.open("rb") as file:
            os.fsync(file.fileno())
        announced = self._reached.after(number, events, name)
        self._position.write(announced)
        self._reached = announced
        self._finish()

    def _close(self) -> None:
        # What was said before is true as well: more is recognised than will come.
        with contextlib.suppress(OSError):
            self._position.write(self._reached)
        self._position.close()


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
        except (pa.ArrowException, OverflowError):
            columns[name] = None
        if columns[name] is None or _has_empty_struct(columns[name].type):
            columns[name] = pa.array([None if v is None else json.encode(v).decode() for v in values], pa.string())
    return pa.table(columns)


def _has_empty_struct(type: Any) -> bool:
    """Whether there is an object without fields in it, which Parquet has none of."""
    import pyarrow as pa

    fields = [type.field(i).type for i in range(type.num_fields)]
    return (pa.types.is_struct(type) and not fields) or any(map(_has_empty_struct, fields))
