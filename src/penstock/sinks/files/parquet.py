"""``Parquet``: writes each batch of events as a Parquet file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.core import json
from penstock.core.errors import ConfigurationError
from penstock.sinks.files.file_sink import FileSink
from penstock.sinks.files.progress_file import FileProgress, sync_directory
from penstock.sinks.sink_options import read_path

if TYPE_CHECKING:
    from penstock.log.event import Event

#: Doubles hold all integers below it.
_MAX_EXACT = 2.0**53
_PART = re.compile(r"part-(\d+)\.parquet")


class Parquet(FileSink):
    """Writes each batch as a Parquet file of a directory, with the fields of the data and ``_id``, ``_key``, ``_time``.

    A file appears completely or not at all, and each event is in one file. The option ``every=60`` writes one file per
    minute, of up to ``batch`` events. A column with values of several types is written as JSON text. The sink needs
    pyarrow (``pip install '.[spark]'``).

    Args:
        directory: The directory.
    """

    batch = 50_000

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        path = read_path("directory", directory)
        super().__init__(path, path / ".position")
        self.name = f"parquet:{path.name}"

    async def open(self) -> None:
        """Check for pyarrow, read the progress and remove files that were not completed."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ConfigurationError(
                "Parquet files need pyarrow: run `pip install '.[spark]'` in a checkout of Penstock"
            ) from None
        await super().open()

    def _open(self) -> None:
        progress = self._progress_file.open() or FileProgress()
        try:
            self._progress = self._skip_existing_parts(progress)
            self._rename_announced_file()
            for incomplete in self._path.glob(".part-*"):
                incomplete.unlink()
            sync_directory(self._path)
        except BaseException:
            self._progress_file.close()
            raise

    def _skip_existing_parts(self, progress: FileProgress) -> FileProgress:
        """Return progress after the last file of the directory, so that none is overwritten if progress was lost."""
        numbers = [int(part[1]) for file in self._path.iterdir() if (part := _PART.fullmatch(file.name))]
        return progress.after(max([progress.length, *numbers]), (), progress.moving_to)

    def _rename_announced_file(self) -> None:
        """Give the file in the stored progress its final name, unless it has that."""
        if self._progress.moving_to is not None:
            temporary = self._path / f".{self._progress.moving_to}"
            if temporary.exists():
                temporary.rename(self._path / self._progress.moving_to)
                sync_directory(self._path)

    def _append(self, events: Sequence[Event]) -> None:
        import pyarrow.parquet as pq

        self._rename_announced_file()
        if not events:
            return
        self._progress_file.repair(self._progress)
        number = self._progress.length + 1
        name = f"part-{number:08d}.parquet"
        temporary = self._path / f".{name}"
        pq.write_table(_build_table(events), temporary, compression="zstd")
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # The file counts from here on: after a crash, the next start renames it.
        self._store_progress(number, events, name)
        self._rename_announced_file()

    def _close(self) -> None:
        # If this fails, the stored progress is still valid: it only lists events that do not come again.
        with contextlib.suppress(OSError):
            self._progress_file.write(self._progress)
        self._progress_file.close()


def _build_table(events: Sequence[Event]) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "_id": pa.array([event.id for event in events], pa.string()),
        "_key": pa.array([event.key for event in events], pa.string()),
        "_time": pa.array([event.time for event in events], pa.timestamp("us", "UTC")),
    }
    data = _parse_uniform_events(events)
    if data is not None:
        return pa.table(columns | dict(zip(data.column_names, data.columns, strict=True)))
    rows = [event.data if isinstance(event.data, dict) else {"value": event.data} for event in events]
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError):
            columns[name] = None
        if columns[name] is None or _has_empty_struct(columns[name].type):
            columns[name] = pa.array([None if v is None else json.encode(v).decode() for v in values], pa.string())
    return pa.table(columns)


def _parse_uniform_events(events: Sequence[Event]) -> Any:
    """Parse events that have the fields and types of the first one, or return None if one has others.

    Arrow's parser takes a third of the time of Python's, and does not hold the interpreter lock. It gets the types,
    because it would read texts as times.
    """
    import pyarrow as pa
    import pyarrow.json

    first = events[0].data
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    if not isinstance(first, dict) or not {*map(type, first.values())} <= types.keys():
        return None
    lines = b"\n".join([event.raw for event in events])
    schema = pa.schema([(name, types[type(value)]) for name, value in first.items()])
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(lines),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except pa.ArrowException:
        return None
    return None if any(map(_may_be_rounded, table.columns)) else table


def _may_be_rounded(column: Any) -> bool:
    """Return whether a column of doubles may have had an integer that a double cannot hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pa.types.is_floating(column.type) and pc.any(pc.greater_equal(pc.abs(column), _MAX_EXACT)).as_py())


def _has_empty_struct(type: Any) -> bool:
    """Return whether the type contains a struct without fields, which Parquet cannot store."""
    import pyarrow as pa

    fields = [type.field(i).type for i in range(type.num_fields)]
    return (pa.types.is_struct(type) and not fields) or any(map(_has_empty_struct, fields))
