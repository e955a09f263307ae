"""The runs that a Spark worker has read or written. The least recently used ones are dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from penstock.engine.kernels.arrays import IntArray
from penstock.engine.state.runs import Run, RunPiece

#: The memory for the cached runs of one worker process.
CACHE_BYTES = 512 * 1024 * 1024


class RunScope(NamedTuple):
    """The runs that one statement reads: those of an operator's shard."""

    conninfo: str
    query_id: int
    operator: int
    shard: int


#: A run's hashes have the number -1, since they are read alone. The other numbers are those of its pieces.
_Key: TypeAlias = tuple[str, int]
_HASHES = -1


class RunCache:
    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[_Key, list[IntArray] | pa.Table] = OrderedDict()
        self._run_ids: dict[RunScope, set[str]] = {}
        self.bytes = 0

    def hashes(self, scopes: Iterable[RunScope]) -> dict[str, list[IntArray]]:
        """The hashes of the cached runs by id, a list with those of each piece."""
        found = {}
        for scope in scopes:
            for run_id in self._run_ids.get(scope, ()):
                entry = self._get((run_id, _HASHES))
                if isinstance(entry, list):
                    found[run_id] = entry
        return found

    def rows(self, piece: RunPiece) -> pa.Table | None:
        entry = self._get((piece.run_id, piece.number))
        return None if isinstance(entry, list) else entry

    def add(self, scope: RunScope, run: Run) -> None:
        """Add a run, and those of its pieces that are loaded."""
        self._run_ids.setdefault(scope, set()).add(run.id)
        self._put((run.id, _HASHES), [piece.hashes for piece in run.pieces])
        for number, piece in enumerate(run.pieces):
            if piece.rows is not None:
                self._put((run.id, number), piece.rows)

    def add_rows(self, piece: RunPiece) -> None:
        if piece.rows is not None:
            self._put((piece.run_id, piece.number), piece.rows)

    def keep_only(self, scope: RunScope, run_ids: set[str]) -> None:
        """Drop the runs of a scope that are not part of the state any more."""
        gone = self._run_ids.get(scope, set()) - run_ids
        if gone:
            self._run_ids[scope] -= gone
            for key in [key for key in self._entries if key[0] in gone]:
                self._drop(key)

    def _get(self, key: _Key) -> list[IntArray] | pa.Table | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def _put(self, key: _Key, entry: list[IntArray] | pa.Table) -> None:
        self._drop(key)
        self._entries[key] = entry
        self.bytes += _size(entry)
        while self.bytes > self._max_bytes and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= _size(entry)


def _size(entry: list[IntArray] | pa.Table) -> int:
    # The memory of the entry itself counts too, since small cycles leave many small ones.
    return 500 + (sum(hashes.nbytes for hashes in entry) if isinstance(entry, list) else int(entry.nbytes))
