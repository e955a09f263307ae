"""The state of a view's operators in Spark's Python workers.

The state of an operator is a list of runs per shard, as in a log-structured merge tree. PostgreSQL stores a piece of a
run as one row (``penstock.state_runs``), which costs about 0.1 µs per row of state where a PostgreSQL row each would
cost 4 to 7 µs. A worker caches runs by their ids. A task asks PostgreSQL for the ids of the current runs and for the
data of those that it does not have, so a cache is never out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, combine, sorted_unique, take, values_of
from penstock.engine.kernels.row_groups import expand_ranges, keep_equal, match_ranges
from penstock.engine.state.compaction import Merge, choose_runs, merge_runs, times_of
from penstock.engine.state.run_store import EmptyStore, PostgresRunStore, RunStore, RunWriter
from penstock.engine.state.runs import HASH, Run, RunKey, RunPiece
from penstock.engine.worker.spark_task import current_task

SHARD, WEIGHT = "__shard", "__weight"

_GROUP_BITS = np.int64(-(2**32))
_ROW_BITS = np.int64(2**32 - 1)


@dataclass(frozen=True)
class StateConfig:
    """Where an operator keeps its state. Spark sends it to every worker."""

    conninfo: str
    #: 0 in a preview, which has no state.
    query_id: int
    operator: int = 0
    shards: int = 1
    #: Groups expire that have no change for so long; 0: never.
    ttl_us: int = 0
    #: True in a cycle that looks for groups that expire.
    is_expiry: bool = False

    def open(self, shards: Sequence[int]) -> OperatorState:
        task = current_task() if self.query_id else None
        if task is None:
            return OperatorState(EmptyStore(), shards, self.shards)
        store = PostgresRunStore(
            self.conninfo, self.query_id, self.operator, RunWriter(task.job.token, task.context.taskAttemptId())
        )
        return OperatorState(store, shards, self.shards, task.job.time_us, shrinks=self.is_expiry)


def row_hashes(groups: IntArray, rows: IntArray) -> IntArray:
    """The hashes of rows in the state, from the hashes of their groups and their own."""
    return (groups & _GROUP_BITS) | (rows & _ROW_BITS)


def shards_of(hashes: IntArray, shards: int) -> IntArray:
    """The shard of each hash, as Spark computes it before the exchange."""
    return (hashes >> 32) % shards


class OperatorState:
    """The state that one task reads and changes: the runs of all shards in its input."""

    def __init__(
        self, store: RunStore, shards: Sequence[int], shard_count: int, now_us: int = 0, *, shrinks: bool = False
    ) -> None:
        self._store = store
        self._shard_count = shard_count
        #: The time of the cycle.
        self.now_us = now_us
        self._shrinks = shrinks
        self._runs: dict[RunKey, list[Run]] = {}
        for run in store.load(shards):
            self._runs.setdefault(run.key, []).append(run)

    def find_latest(self, part: int, wanted: pa.Table, keys: Sequence[str]) -> tuple[pa.Table | None, IntArray]:
        """The latest row with each wanted hash and key, and its position for each of ``wanted``; -1 if there is none.

        ``wanted`` is in the order of its hashes. The result is None if there is no such row.
        """
        hashes = values_of(wanted.column(HASH))
        matches = self._match(part, hashes, hashes)
        index = np.full(len(hashes), -1, np.int64)
        if not matches:
            return None, index
        # The newest row with the hash almost always has the key too.
        newest, place = np.full(len(hashes), -1, np.int64), np.zeros(len(hashes), np.int64)
        is_doubtful = np.zeros(len(hashes), np.bool_)
        for number, (_, positions, numbers) in enumerate(matches):
            newest[numbers], place[numbers] = number, positions
            is_doubtful[numbers[1:][numbers[1:] == numbers[:-1]]] = True
        chosen = [np.flatnonzero(newest == number) for number in range(len(matches))]
        tables = [_rows(piece, place[own]) for (piece, _, _), own in zip(matches, chosen, strict=True) if len(own)]
        found = combine(pa.concat_tables(tables))
        index[np.concatenate(chosen)] = np.arange(found.num_rows)
        candidates = np.flatnonzero(index >= 0)
        numbers, _ = keep_equal(wanted, found, candidates, index[candidates], keys)
        if len(numbers) < len(candidates):
            is_equal = np.zeros(len(hashes), np.bool_)
            is_equal[numbers] = True
            is_doubtful |= (index >= 0) & ~is_equal
        if is_doubtful.any():
            return self._find_among_collisions(matches, wanted, keys, found, index, is_doubtful)
        return found, index

    def _find_among_collisions(
        self,
        matches: list[tuple[RunPiece, IntArray, IntArray]],
        wanted: pa.Table,
        keys: Sequence[str],
        found: pa.Table,
        index: IntArray,
        is_doubtful: BoolArray,
    ) -> tuple[pa.Table, IntArray]:
        """Compare the keys of all rows with a doubtful hash, the newest rows first."""
        index = np.where(is_doubtful, -1, index)
        tables, count = [found], found.num_rows
        for piece, positions, numbers in reversed(matches):
            is_open = is_doubtful[numbers] & (index[numbers] < 0)
            numbers, positions = keep_equal(wanted, piece.table(), numbers[is_open], positions[is_open], keys)
            tables.append(_rows(piece, positions))
            index[numbers] = np.arange(count, count + len(numbers))
            count += len(numbers)
        return combine(pa.concat_tables(tables)), index

    def find_all(self, part: int, hashes: IntArray) -> pa.Table | None:
        """All rows with some hashes, the oldest first. The hashes are sorted."""
        return self._concat(self._match(part, hashes, hashes))

    def find_groups(self, part: int, hashes: IntArray) -> pa.Table | None:
        """All rows of some groups, the oldest first. There may be rows of other groups too."""
        groups = sorted_unique(hashes & _GROUP_BITS)
        return self._concat(self._match(part, groups, groups | _ROW_BITS))

    def find_ranges(self, part: int, low: IntArray, high: IntArray) -> tuple[pa.Table | None, IntArray]:
        """All rows with hashes in some ranges, the oldest first, and the number of the range of each row.

        The ranges are in the order of their lower ends. A row that is in several ranges is there several times.
        """
        matches = self._match(part, low, high)
        numbers = np.concatenate([numbers for _, _, numbers in matches]) if matches else np.empty(0, np.int64)
        return self._concat(matches), numbers

    def select(self, part: int, condition: Callable[[pa.Table], BoolArray]) -> pa.Table | None:
        """All rows that fulfil a condition, also older versions of rows. One piece is in memory at a time."""
        tables = []
        for piece in (p for key, runs in self._runs.items() if key.part == part for run in runs for p in run.pieces):
            is_loaded = piece.rows is not None
            self._store.load_pieces([piece])
            positions = np.flatnonzero(condition(piece.table()))
            if len(positions):
                tables.append(_rows(piece, positions))
            if not is_loaded:
                piece.rows = None
        return combine(pa.concat_tables(tables)) if tables else None

    def add(self, part: int, rows: pa.Table, merge: Merge) -> None:
        """Add rows to a part, and merge them with the newest runs where those are small."""
        if not rows.num_rows:
            return
        rows = _in_column_order(rows)
        rows = merge.apply(rows, is_oldest=False)
        if self._shard_count == 1:
            self._add_run(RunKey(part, 0), rows, merge)
            return
        shards = shards_of(values_of(rows.column(HASH)), self._shard_count).astype(np.int16)
        rows = take(rows, np.argsort(shards, kind="stable"))
        counts = np.bincount(shards, minlength=self._shard_count)
        for shard, end in enumerate(np.cumsum(counts).tolist()):
            if counts[shard]:
                self._add_run(RunKey(part, shard), rows.slice(end - counts[shard], counts[shard]), merge)

    def add_to_shard(self, part: int, shard: int, rows: pa.Table, merge: Merge) -> None:
        """Add rows whose shard does not follow from their hashes."""
        if rows.num_rows:
            self._add_run(RunKey(part, shard), merge.apply(_in_column_order(rows), is_oldest=False), merge)

    def flush(self) -> None:
        """Write the new runs."""
        self._store.flush()

    def runs(self, part: int, shard: int) -> Sequence[Run]:
        """The runs of a part in one shard, the oldest first."""
        return self._runs.get(RunKey(part, shard), [])

    def _match(self, part: int, low: IntArray, high: IntArray) -> list[tuple[RunPiece, IntArray, IntArray]]:
        """The pieces with hashes in some ranges, the oldest first: positions in the piece and numbers of the ranges."""
        matches = []
        highest = high if high is low else np.maximum.accumulate(high)
        for key, runs in self._runs.items():
            if key.part == part:
                for piece in (piece for run in runs for piece in run.pieces):
                    first = int(np.searchsorted(highest, piece.hashes[0], "left"))
                    last = int(np.searchsorted(low, piece.hashes[-1], "right"))
                    if first < last:
                        limit = None if high is low else high[first:last]
                        starts, counts = match_ranges(piece.hashes, low[first:last], limit)
                        positions, numbers = expand_ranges(starts, counts)
                        if len(positions):
                            matches.append((piece, positions, numbers + first))
        self._store.load_pieces([piece for piece, _, _ in matches])
        return matches

    def _concat(self, matches: list[tuple[RunPiece, IntArray, IntArray]]) -> pa.Table | None:
        if not matches:
            return None
        return combine(pa.concat_tables([_rows(piece, positions) for piece, positions, _ in matches]))

    def _add_run(self, key: RunKey, rows: pa.Table, merge: Merge) -> None:
        """Add rows, which are in the order of their hashes and have different keys."""
        runs = self._runs.get(key, [])
        replaced = choose_runs(runs, rows, merge, shrinks=self._shrinks)
        self._store.load_pieces([piece for run in replaced for piece in run.pieces])
        pieces = merge_runs(replaced, rows, merge, is_oldest=len(replaced) == len(runs))
        self._store.stage(key, pieces, replaced, times_of(pieces, merge))


def _in_column_order(rows: pa.Table) -> pa.Table:
    """The rows with the columns in the order of all runs of a part."""
    return rows.select([HASH, *sorted(name for name in rows.column_names if name != HASH)])


def _rows(piece: RunPiece, positions: IntArray) -> pa.Table:
    rows = take(piece.table(), positions)
    return rows.add_column(0, HASH, pa.array(piece.hashes[positions]))
