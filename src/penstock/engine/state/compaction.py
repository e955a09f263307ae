"""Compaction: how many of the newest runs are merged into one, and how their rows are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import combine, mask, take, values_of
from penstock.engine.kernels.row_groups import Groups, group_rows, stable_argsort
from penstock.engine.state.runs import HASH, PIECE_BYTES, Run, RunPiece, RunTimes, new_pieces, piece_table

#: So many runs of a similar size become one. A row is rewritten once for each factor of this that the state grows by.
_FAN_OUT = 4
#: Runs with fewer rows count as equally small.
_SMALL_RUN = 256
#: Deleted rows leave the state when all runs of a shard become one. A cycle that expires groups does so once the newer
#: runs have this part of the rows of the oldest one.
_REWRITTEN_SHARE = 4
#: Runs are merged in blocks of about so many rows.
_BLOCK_ROWS = 1_048_576


@dataclass(frozen=True)
class Merge:
    """How the rows of several runs become one run. Rows are equal if their hashes and keys are.

    Without keys all rows are kept. Otherwise the latest of equal rows is kept, or their counts are added.
    """

    keys: tuple[str, ...] | None = None
    #: A row is deleted if this column is not positive. Such rows are kept until there is no older run.
    alive: str | None = None
    #: The column of counts that are added up.
    count: str | None = None
    #: The column of the event times. Runs drop their rows before ``since_us`` when they are merged.
    time: str | None = None
    since_us: int | None = None
    #: About the most bytes of a run and of its pieces, if rows are wide. They can be dropped earlier than larger ones,
    #: and less is read for a few of their rows.
    run_bytes: int | None = None
    piece_bytes: int = PIECE_BYTES

    @property
    def keeps_order(self) -> bool:
        """True if newer runs override older ones."""
        return self.keys is not None

    def apply(self, rows: pa.Table, *, is_oldest: bool) -> pa.Table:
        """Merge rows, of which older ones come first. The result is in the order of the hashes."""
        hashes = values_of(rows.column(HASH))
        if self.keys is None:
            order = stable_argsort(hashes)
            return take(rows, order)
        groups = group_rows(hashes, [rows.column(key) for key in self.keys], is_stable=True)
        if self.count is not None:
            return self._add_counts(rows, groups, self.count)
        latest = groups.last
        if self.alive is not None and is_oldest:
            latest = latest[values_of(rows.column(self.alive))[latest] > 0]
        return take(rows, latest)

    def without_expired(self, rows: pa.Table) -> pa.Table:
        if self.time is None or self.since_us is None:
            return rows
        return mask(rows, values_of(rows.column(self.time)) >= self.since_us)

    def without_deleted(self, rows: pa.Table) -> pa.Table:
        return rows if self.alive is None else mask(rows, values_of(rows.column(self.alive)) > 0)

    def _add_counts(self, rows: pa.Table, groups: Groups, count: str) -> pa.Table:
        counts = np.add.reduceat(values_of(rows.column(count))[groups.order], groups.starts)
        merged = take(rows, groups.first)
        merged = merged.set_column(merged.column_names.index(count), count, pa.array(counts))
        return mask(merged, counts != 0)


def choose_runs(runs: Sequence[Run], rows: pa.Table, merge: Merge, *, shrinks: bool = False) -> Sequence[Run]:
    """The runs that are merged with new rows, the oldest first: the newest ones that are small enough.

    If the time of half of a run's rows has passed, it is merged too, so that at most every second row of the state has
    expired. Where newer runs override older ones, that is the oldest run together with all others.
    """
    max_rows = None
    if merge.run_bytes is not None:
        max_rows = rows.num_rows * merge.run_bytes // max(1, rows.nbytes)
    merged = runs_to_merge([run.count for run in runs], rows.num_rows, shrinks=shrinks, max_rows=max_rows)
    older = runs[: len(runs) - merged]
    has_expired = next((run for run in older if _is_half_expired(run, merge)), None)
    if merge.keeps_order:
        return runs if has_expired is not None and has_expired is runs[0] else runs[len(older) :]
    return [*([] if has_expired is None else [has_expired]), *runs[len(older) :]]


def _is_half_expired(run: Run, merge: Merge) -> bool:
    return run.times is not None and merge.since_us is not None and run.times.median_us < merge.since_us


def runs_to_merge(counts: Sequence[int], new: int, *, shrinks: bool = False, max_rows: int | None = None) -> int:
    """How many of the newest runs are merged with new rows. ``counts`` are the rows of the runs, the oldest first.

    With ``shrinks``, all runs are merged as soon as that is cheap, so that deleted rows leave the state.
    """
    if shrinks and (new + sum(counts[1:])) * _REWRITTEN_SHARE >= sum(counts[:1]):
        return len(counts)
    size, merged = new, 0
    while True:
        limit = _SMALL_RUN
        while limit <= size:
            limit *= _FAN_OUT
        similar = merged
        while similar < len(counts) and counts[-1 - similar] < limit:
            similar += 1
        merged_size = size + sum(counts[len(counts) - similar : len(counts) - merged])
        if similar - merged < _FAN_OUT - 1 or (max_rows is not None and merged_size > max(max_rows, _SMALL_RUN)):
            return merged
        size = merged_size
        merged = similar


def merge_runs(runs: Sequence[Run], rows: pa.Table, merge: Merge, *, is_oldest: bool) -> list[RunPiece]:
    """Merge runs, the oldest first, with newer rows. All pieces of the runs are loaded.

    The new rows are in the order of their hashes and have different keys.
    """
    if not runs:
        return new_pieces(merge.without_deleted(rows) if is_oldest else rows, merge.piece_bytes)
    pieces: list[RunPiece] = []
    for block in _blocks(runs, rows, merge):
        merged = merge.apply(block, is_oldest=is_oldest)
        if merged.num_rows:
            pieces += new_pieces(merged, merge.piece_bytes)
    return pieces


def times_of(pieces: Sequence[RunPiece], merge: Merge) -> RunTimes | None:
    """The event times of the rows of a run."""
    if merge.time is None or not pieces:
        return None
    columns = [piece.hashes if merge.time == HASH else values_of(piece.table().column(merge.time)) for piece in pieces]
    return RunTimes.of(np.concatenate(columns))


def _blocks(runs: Sequence[Run], rows: pa.Table, merge: Merge) -> Iterator[pa.Table]:
    """The rows of all runs in blocks by hash, so that a merge of large runs needs little memory at a time."""
    total = rows.num_rows + sum(run.count for run in runs)
    limits: list[int] = []
    if total > _BLOCK_ROWS:
        hashes = np.concatenate([values_of(rows.column(HASH)), *(p.hashes for run in runs for p in run.pieces)])
        hashes.sort()
        limits = np.unique(hashes[_BLOCK_ROWS::_BLOCK_ROWS]).tolist()
    sources = [*(merge.without_expired(piece_table(piece)) for run in runs for piece in run.pieces), rows]
    cut = [[0, *np.searchsorted(values_of(s.column(HASH)), limits).tolist(), s.num_rows] for s in sources]
    for number in range(len(limits) + 1):
        slices = [s.slice(at[number], at[number + 1] - at[number]) for s, at in zip(sources, cut, strict=True)]
        yield combine(pa.concat_tables([each for each in slices if each.num_rows] or [rows.slice(0, 0)]))
