"""Where a worker process keeps its numbers: a file that the other workers read, written without a system call.

Each worker holds one board of a directory that all share, by a lock on its file. A number is a cell of the file in
memory, so that counting is an addition; whoever is asked for metrics adds up the cells of all boards. When a worker
dies, its counts stay, and the worker that comes in its place takes the board over and counts on: no count is lost, and
there are never more boards than workers were alive at one time.

A board is a run of entries: the length of a name and the number of its cells, the name, the cells.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeAlias

#: Room for some thousands of series; a sparse file, so what is not used takes no space.
BOARD_BYTES = 4 << 20

_ENTRY = struct.Struct("=II")
#: The first cell says how many bytes are used.
_START = 8
_CELL = 8

Cells: TypeAlias = "memoryview[float]"


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is on a board, and whether the worker that wrote it is still there."""

    cells: dict[str, list[float]]
    is_alive: bool


class Board:
    """The numbers of one worker."""

    def __init__(self, directory: Path | None) -> None:
        self._file: int | None = None
        if directory is None:
            self._bytes = memoryview(bytearray(BOARD_BYTES))
        else:
            self._file = _free_file(directory)
            self._bytes = memoryview(mmap.mmap(self._file, BOARD_BYTES))
        self.cells: Cells = self._bytes.cast("d")
        self._directory = directory
        self._used = int(self.cells[0]) or _START
        self._places = {name: place for name, place, _ in _entries(self._bytes)}

    def place(self, name: str, size: int = 1) -> int | None:
        """The first of the cells that have this name, made if it is new; None, if there is no more room."""
        known = self._places.get(name)
        if known is not None:
            return known
        encoded = name.encode()
        start = self._used + _ENTRY.size
        cells = (start + len(encoded) + _CELL - 1) // _CELL * _CELL
        end = cells + size * _CELL
        if end > BOARD_BYTES:
            return None
        _ENTRY.pack_into(self._bytes, self._used, len(encoded), size)
        self._bytes[start : start + len(encoded)] = encoded
        # Last: who reads meanwhile sees the entry whole or not at all.
        self.cells[0] = self._used = end
        self._places[name] = cells // _CELL
        return cells // _CELL

    def read(self) -> list[Numbers]:
        """What is on each board, this one first."""
        return [_numbers(board, alive) for board, alive in self._all()]

    def close(self) -> None:
        """Let another worker have the board."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _all(self) -> Iterator[tuple[memoryview, bool]]:
        yield self._bytes, True
        if self._directory is None or self._file is None:
            return
        own = os.fstat(self._file).st_ino
        for path in sorted(self._directory.glob("board-*")):
            file = os.open(path, os.O_RDWR)
            try:
                found = os.fstat(file)
                # A file that is not yet as large as a board is one that its worker is making just now.
                if found.st_ino != own and found.st_size == BOARD_BYTES:
                    yield memoryview(mmap.mmap(file, BOARD_BYTES, prot=mmap.PROT_READ)), not _lock(file, fcntl.LOCK_SH)
            finally:
                os.close(file)


def _numbers(board: memoryview, is_alive: bool) -> Numbers:
    cells: Cells = board.cast("d")
    return Numbers({name: list(cells[at : at + size]) for name, at, size in _entries(board)}, is_alive)


def _entries(board: memoryview) -> Iterator[tuple[str, int, int]]:
    """Name, first cell and number of cells of each entry."""
    at, used = _START, int(board.cast("d")[0])
    while at < used:
        length, size = _ENTRY.unpack_from(board, at)
        start = at + _ENTRY.size
        cells = (start + length + _CELL - 1) // _CELL * _CELL
        yield str(board[start : start + length], "utf-8"), cells // _CELL, size
        at = cells + size * _CELL


def _free_file(directory: Path) -> int:
    """The first board that nobody holds, locked for as long as this process lives."""
    for number in count():
        file = os.open(directory / f"board-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _lock(file, fcntl.LOCK_EX):
            os.ftruncate(file, BOARD_BYTES)
            return file
        os.close(file)
    raise AssertionError


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
