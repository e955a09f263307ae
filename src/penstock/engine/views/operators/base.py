"""A stateful operator as a function over Arrow batches: changes in, changes out, state in PostgreSQL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import IntArray, combine, mask, take, values_of
from penstock.engine.kernels.equality import equal_rows
from penstock.engine.kernels.row_groups import Groups, group_rows
from penstock.engine.state.operator_state import WEIGHT, OperatorState, StateConfig, row_hashes, shards_of
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.group_times import TIMES_PART, GroupTimes

#: The hash of a row's key, in the input of operators that keep rows.
ROW_HASH = "__row_hash"


@dataclass(frozen=True)
class ArrowFunction:
    """A function that Spark calls in a worker, with all rows of a task at once."""

    output_schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = [batch for batch in batches if batch.num_rows]
        if received:
            result = self.compute(plain_table(received))
            if result.num_rows:
                yield from result.select(self.output_schema.names).cast(self.output_schema).to_batches()

    @abstractmethod
    def compute(self, rows: pa.Table) -> pa.Table:
        """The result for all rows, with the columns of the output's schema in any order."""


@dataclass(frozen=True)
class StatefulOperator(ArrowFunction):
    """An operator that gets all changes of some shards.

    Each change has a weight: 1 for a row that appears and -1 for one that disappears. In one cycle a row's key
    disappears at most once and appears at most once.
    """

    state: StateConfig

    def compute(self, rows: pa.Table) -> pa.Table:
        shards = np.flatnonzero(np.bincount(shards_of(values_of(rows.column(HASH)), self.state.shards))).tolist()
        state = self.state.open(shards)
        result = self.update(rows, state)
        state.flush()
        return result

    def update(self, rows: pa.Table, state: OperatorState) -> pa.Table:
        """The changes of the result for all rows of the input, and for groups that expire."""
        if not self.state.ttl_us:
            return self.apply(rows, state)
        changes = mask(rows, values_of(rows.column(WEIGHT)) != 0) if self.state.is_expiry else rows
        changed = self.times.changed(self.rows_of_groups(changes))
        expired = changed.slice(0, 0)
        if self.state.is_expiry:
            expired = self.times.find_expired(self.state.ttl_us, changed, state)
        if self.times.part == TIMES_PART:
            self.times.store(changed, expired, state)
        if expired.num_rows:
            return self.expire(expired, changes, state)
        return self.apply(changes, state) if changes.num_rows else self.output_schema.empty_table()

    @abstractmethod
    def apply(self, changes: pa.Table, state: OperatorState) -> pa.Table:
        """The changes of the result. Adds the changes of the state."""

    @property
    @abstractmethod
    def times(self) -> GroupTimes:
        """Where the times of the groups are stored, if groups expire."""

    def rows_of_groups(self, changes: pa.Table) -> pa.Table:
        """The changes that belong to a group."""
        return changes

    @abstractmethod
    def expire(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> pa.Table:
        """As ``apply``, and delete what is stored of some groups. The changes are of other groups."""


def plain_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """A table of batches, without the metadata of Spark's schema."""
    table = combine(pa.Table.from_batches(batches))
    return pa.table(table.columns, names=table.column_names)


def with_weight(rows: pa.Table, weight: int) -> pa.Table:
    """The rows with one weight for all."""
    column = pa.array(np.full(rows.num_rows, weight, np.int8))
    if WEIGHT in rows.column_names:
        return rows.set_column(rows.column_names.index(WEIGHT), WEIGHT, column)
    return rows.append_column(WEIGHT, column)


def appearing(changes: pa.Table) -> pa.Table:
    return mask(changes, values_of(changes.column(WEIGHT)) > 0)


def disappearing(changes: pa.Table) -> pa.Table:
    return mask(changes, values_of(changes.column(WEIGHT)) < 0)


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """Tables with the same columns, one after the other."""
    given = list(tables)
    kept = [table for table in given if table.num_rows]
    return combine(pa.concat_tables(kept)) if kept else given[0]


def with_row_hashes(changes: pa.Table) -> pa.Table:
    """Replace the hashes of groups and of keys by those of the state, from which both follow."""
    hashes = row_hashes(values_of(changes.column(HASH)), values_of(changes.column(ROW_HASH)))
    changes = changes.drop_columns([ROW_HASH])
    return changes.set_column(changes.column_names.index(HASH), HASH, pa.array(hashes))


def disappearing_first(changes: pa.Table) -> pa.Table:
    """The changes in the order in which they happen."""
    weights = values_of(changes.column(WEIGHT))
    if (weights > 0).all() or (weights < 0).all():
        return changes
    return take(changes, np.argsort(weights, kind="stable"))


def cancel_equal_rows(changes: pa.Table, key: Sequence[str], values: Sequence[str]) -> pa.Table:
    """Drop rows that disappear and appear with the same values."""
    weights = values_of(changes.column(WEIGHT))
    if (weights > 0).all() or (weights < 0).all():
        return changes
    groups = key_groups(changes, key)
    pairs = groups.sizes == 2
    before, after = groups.first[pairs], groups.last[pairs]
    names = [name for name in values if name not in key]
    is_equal = np.ones(len(before), np.bool_)
    if names:
        is_equal = equal_rows(take(changes.select(names), before), take(changes.select(names), after), names)
    # Two rows with the same key and the same weight would break the invariant, and must not vanish silently.
    is_equal &= weights[before] != weights[after]
    keep = np.ones(changes.num_rows, np.bool_)
    keep[before[is_equal]] = False
    keep[after[is_equal]] = False
    return mask(changes, keep)


def key_groups(rows: pa.Table, key: Sequence[str]) -> Groups:
    """The rows of each hash and key, in their order."""
    hashes: IntArray = values_of(rows.column(HASH))
    return group_rows(hashes, [rows.column(name) for name in key], is_stable=True)
