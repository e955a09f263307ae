"""A file of counters that one worker process writes and all workers read.

The file is mapped into memory, so counting is an addition without a system call. A worker holds a lock on its file
while it lives. When it dies, its counts stay in the file, and the worker that replaces it takes the file over and
continues counting: no count is lost, and there are never more files than workers that lived at the same time.

Layout: the first cell holds the number of used bytes; entries follow. An entry is the length of its name, its number
of cells, the name, and the cells (64-bit floats, aligned).

This replaces the multiprocess mode of prometheus_client, which adds 11 % to the CPU time of the smallest push (179 to
199 microseconds in one process): one push updates eight series, in 1.5 microseconds here and in 10 there. It also keeps
the files of dead processes forever and has no limit on the number of series.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.core.lock_file import LockFile

#: Room for some thousands of series. The file is sparse, so unused room takes no disk space.
FILE_BYTES = 4 << 20

_ENTRY_HEADER = struct.Struct("=II")
_FIRST_ENTRY = 8
_CELL_BYTES = 8

Cells: TypeAlias = "memoryview[float]"


class _Entry(NamedTuple):
    name: str
    #: Index of the first cell.
    cell: int
    size: int


@dataclass(frozen=True, slots=True)
class CounterValues:
    """The contents of one file, and whether the worker that writes it is alive."""

    cells: dict[str, list[float]]
    is_alive: bool


class CounterFile:
    """The counters of this worker process; in memory only if there is no directory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._lock: LockFile | None = None
        if directory is None:
            self._bytes = memoryview(bytearray(FILE_BYTES))
        else:
            self._lock = _lock_free_file(directory)
            self._bytes = memoryview(mmap.mmap(self._lock.fd, FILE_BYTES))
        self.cells: Cells = self._bytes.cast("d")
        self._used = int(self.cells[0]) or _FIRST_ENTRY
        self._known = {entry.name: entry.cell for entry in _entries(self._bytes)}

    def allocate(self, name: str, size: int = 1) -> int | None:
        """Return the index of the first cell under this name; None if the file has no room for a new name."""
        known = self._known.get(name)
        if known is not None:
            return known
        encoded = name.encode()
        start = self._used + _ENTRY_HEADER.size
        cells = _align(start + len(encoded))
        end = cells + size * _CELL_BYTES
        if end > FILE_BYTES:
            return None
        _ENTRY_HEADER.pack_into(self._bytes, self._used, len(encoded), size)
        self._bytes[start : start + len(encoded)] = encoded
        # The used size is written last, so that a concurrent reader sees the whole entry or none of it.
        self.cells[0] = self._used = end
        self._known[name] = cells // _CELL_BYTES
        return cells // _CELL_BYTES

    def read_own(self) -> CounterValues:
        return _read_values(self._bytes, is_alive=True)

    def read_all(self) -> list[CounterValues]:
        """Return the counters of all workers, those of this worker first."""
        return [self.read_own(), *self._read_others()]

    def close(self) -> None:
        """Release the file for another worker."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _read_others(self) -> Iterator[CounterValues]:
        if self._directory is None or self._lock is None:
            return
        own = os.fstat(self._lock.fd)
        for path in sorted(self._directory.glob("counters-*")):
            other = LockFile(path)
            try:
                stat = os.fstat(other.fd)
                # A file that is still too short was created a moment ago.
                if not os.path.samestat(stat, own) and stat.st_size == FILE_BYTES:
                    mapped = memoryview(mmap.mmap(other.fd, FILE_BYTES, prot=mmap.PROT_READ))
                    yield _read_values(mapped, is_alive=not other.try_acquire(shared=True))
            finally:
                other.close()


def _lock_free_file(directory: Path) -> LockFile:
    """Lock the first file that no live worker holds."""
    for number in count():
        lock = LockFile(directory / f"counters-{number}")
        if lock.try_acquire():
            os.ftruncate(lock.fd, FILE_BYTES)
            return lock
        lock.close()
    raise AssertionError


def _read_values(mapped: memoryview, *, is_alive: bool) -> CounterValues:
    cells: Cells = mapped.cast("d")
    values = {entry.name: list(cells[entry.cell : entry.cell + entry.size]) for entry in _entries(mapped)}
    return CounterValues(values, is_alive)


def _entries(mapped: memoryview) -> Iterator[_Entry]:
    position, used = _FIRST_ENTRY, int(mapped.cast("d")[0])
    while position < used:
        length, size = _ENTRY_HEADER.unpack_from(mapped, position)
        start = position + _ENTRY_HEADER.size
        cells = _align(start + length)
        yield _Entry(str(mapped[start : start + length], "utf-8"), cells // _CELL_BYTES, size)
        position = cells + size * _CELL_BYTES


def _align(position: int) -> int:
    return (position + _CELL_BYTES - 1) // _CELL_BYTES * _CELL_BYTES
