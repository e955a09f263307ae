"""Match the events of a stream-stream join, in a Spark worker.

A task joins the events of its cycle with each other and with the stored rows. A pair is found when the second of its
events is read. A row stays in the state until the watermark excludes further matches. So each pair is found exactly
once, however the events are divided into cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core import json
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.joins.join_state import JOIN_SHARDS, LEFT, RIGHT, ROW_ID, JoinState
from penstock.engine.joins.pairs import PairEncoder, make_pairs, unmatched_pairs
from penstock.engine.joins.unmatched_rows import find_unmatched, load_rows, store_unmatched, unmatched_rows
from penstock.engine.kernels.arrays import BoolArray, IntArray, combine, is_valid, mask, take, values_of
from penstock.engine.state.operator_state import OperatorState, shards_of
from penstock.engine.state.runs import HASH
from penstock.engine.worker.json_rows import encode_rows
from penstock.engine.worker.json_values import decode_rows
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.spark_task import current_task, load_plan, send_stage_report
from penstock.engine.worker.task_reports import EventRef, TaskReport

#: The stage number of the reports, after those of the inputs' stages.
_MATCH_STAGE = 900
_COLUMNS = [HASH, "__k", "__time", "__line", "__key", "__partition", "__offset"]


@dataclass(frozen=True)
class LineEncoder:
    """Encodes the events of an input as JSON."""

    side: int
    #: The fields that the input's steps have computed, beside the event or instead of it.
    fields: tuple[str, ...]
    outputs_event: bool

    @property
    def columns(self) -> list[str]:
        """The columns of the fields."""
        return [f"__{self.side}_{number}" for number in range(len(self.fields))]

    def with_lines(self, rows: pa.Table) -> pa.Table:
        lines = rows.column("__line")
        if self.fields and rows.num_rows:
            values = rows.select(self.columns).rename_columns(list(self.fields))
            if self.outputs_event:
                merged = decode_rows(values, self.fields, lines.to_pylist())
                lines = pa.chunked_array([[json.encode(event).decode() for event in merged]], pa.large_string())
            else:
                lines = encode_rows(values, self.fields)
        # All lines together may have more than 2 GiB.
        rows = rows.set_column(rows.column_names.index("__line"), "__line", lines.cast(pa.large_string()))
        return combine(rows.select(_COLUMNS))


@dataclass(frozen=True)
class JoinMatcher:
    """The function with which Spark joins the events of a task. The side of an empty row of a shard is null."""

    read_config: ReadConfig
    state: JoinState
    pairs: PairEncoder
    #: For each side.
    lines: tuple[LineEncoder, LineEncoder] = (LineEncoder(LEFT, (), True), LineEncoder(RIGHT, (), True))

    @property
    def output_schema(self) -> pa.Schema:
        return self.pairs.output_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs, store the events, and report late ones."""
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        task = current_task()
        plan = CyclePlan(0, True, [], []) if task is None else load_plan(self.read_config, task.job)
        rows = pa.Table.from_batches(received)
        # Without the metadata of Spark's schema.
        rows = combine(pa.table(rows.columns, names=rows.column_names))
        shards = np.flatnonzero(np.bincount(shards_of(values_of(rows.column(HASH)), JOIN_SHARDS))).tolist()
        late = values_of(rows.column("__late"), False)
        pairs = self.join(mask(rows, ~late), self.state.config.open(shards), plan)
        report = TaskReport([], [], {}, late=_event_refs(mask(rows, late)) if late.any() else [])
        if pairs.num_rows:
            yield from self.pairs.encode(pairs)
        send_stage_report(self.read_config, _MATCH_STAGE, report)

    def join(self, events: pa.Table, rows: OperatorState, plan: CyclePlan) -> pa.Table:
        """The pairs of the events in time and of ``rows``, which are the stored ones. Stores the events."""
        state = self.state
        side, has_key = values_of(events.column("__side"), -1), _has_key(events)
        left, right = (lines.with_lines(mask(events, (side == lines.side) & has_key)) for lines in self.lines)
        left = left.append_column(ROW_ID, pa.array(_row_ids(values_of(left.column(HASH)), plan)))
        new = state.match_new(left, right)
        after = state.match_stored(LEFT, left, rows, plan.closed_us)
        before = state.match_stored(RIGHT, right, rows, plan.closed_us)
        firsts = take(left, new.positions)
        pairs = [make_pairs(firsts, take(right, new.others), firsts)]
        if after.others is not None:
            firsts = take(left, after.positions)
            pairs.append(make_pairs(firsts, after.others, firsts))
        if before.others is not None:
            pairs.append(make_pairs(before.others, take(right, before.positions), take(right, before.positions)))
        added = {LEFT: left, RIGHT: right}
        if state.is_outer:
            is_matched = np.zeros(left.num_rows, np.bool_)
            is_matched[new.positions] = True
            is_matched[after.positions] = True
            without_key = self.lines[LEFT].with_lines(mask(events, (side == LEFT) & ~has_key))
            ids = _row_ids(values_of(without_key.column(HASH)), plan, left.num_rows)
            added[LEFT] = pa.concat_tables([left, without_key.append_column(ROW_ID, pa.array(ids))])
            pairs += self._expire(added[LEFT], is_matched, before.others, rows, plan)
        for number in (LEFT, RIGHT):
            state.store(number, added[number], rows, state.since_us(number, plan))
        rows.flush()
        return combine(pa.concat_tables(pairs))

    def _expire(
        self,
        left: pa.Table,
        is_matched: BoolArray,
        stored_matches: pa.Table | None,
        rows: OperatorState,
        plan: CyclePlan,
    ) -> list[pa.Table]:
        """Store which left rows are without a match. Returns those that the cycle emits.

        ``left`` are the new rows. The first of them have a key.
        """
        is_open = np.ones(left.num_rows, np.bool_)
        is_open[: len(is_matched)] = ~is_matched
        alone = mask(left, is_open)
        columns = (values_of(self.state.stored_form(alone).column(name)) for name in ("__time", ROW_ID, HASH))
        changes = [unmatched_rows(*columns, is_open=True)]
        if stored_matches is not None:
            ids, first = np.unique(values_of(stored_matches.column(ROW_ID)), return_index=True)
            times, hashes = (values_of(stored_matches.column(name))[first] for name in ("__time", HASH))
            changes.append(unmatched_rows(times, ids, hashes, is_open=False))
        emitted = None
        if plan.expired_rows and plan.expired_until is not None:
            emitted = find_unmatched(rows, plan.expired_until)
        pairs = [] if emitted is None or not emitted.num_rows else [unmatched_pairs(load_rows(emitted, rows))]
        store_unmatched(changes, emitted, plan, rows)
        return pairs


def _has_key(events: pa.Table) -> BoolArray:
    keyed = is_valid(events.column("__k"))
    return np.ones(events.num_rows, np.bool_) if keyed is None else keyed


def _row_ids(hashes: IntArray, plan: CyclePlan, first: int = 0) -> IntArray:
    """A number for each row from the position ``first`` on, which no other row of the query has."""
    positions = np.arange(first, first + len(hashes))
    ids: IntArray = (plan.cycle << 32) + positions * JOIN_SHARDS + shards_of(hashes, JOIN_SHARDS)
    return ids


def _event_refs(events: pa.Table) -> list[EventRef]:
    columns = (events.column(name).to_pylist() for name in ("__partition", "__offset"))
    return sorted(map(EventRef, *columns))
