"""The changes of a view's result in a cycle, by key: rows that appear, change or disappear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.kernels.arrays import mask, one_chunk
from penstock.engine.kernels.equality import equal_rows
from penstock.engine.results.output_rows import OutputRows, to_lines
from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.views.view_reader import KEY_TEXT, ViewColumn
from penstock.engine.worker.json_rows import encode_rows, join_texts


@dataclass(frozen=True)
class ViewChanges:
    """The tables have the columns of the result. Rows at the same position of ``before`` and ``after`` have one key."""

    inserted: pa.Table
    before: pa.Table
    after: pa.Table
    deleted: pa.Table

    @property
    def rows_to_store(self) -> pa.Table:
        return pa.concat_tables([self.inserted, self.after])

    @property
    def count(self) -> int:
        """The number of rows that appeared, changed or disappeared."""
        return sum(rows.num_rows for rows in (self.inserted, self.after, self.deleted))

    @property
    def rows_to_delete(self) -> pa.Table:
        return self.deleted


def group_changes(rows: pa.Table, key: Sequence[str]) -> ViewChanges:
    """Group the changes that Spark computed by key, without updates that change nothing.

    A key disappears at most once and appears at most once.
    """
    is_removed = pc.less(rows.column(WEIGHT), 0)
    removed, added = rows.filter(is_removed), rows.filter(pc.invert(is_removed))
    if not removed.num_rows:
        return ViewChanges(added, removed, removed, removed)
    ordered = pa.concat_tables([removed, added])
    positions = pa.array(np.arange(ordered.num_rows))
    by_key = ordered.select(list(key)).append_column(WEIGHT, positions)
    grouped = by_key.group_by(list(key), use_threads=False).aggregate([(WEIGHT, "min"), (WEIGHT, "max")])
    first, last = (grouped.column(f"{WEIGHT}_{name}").to_numpy() for name in ("min", "max"))
    is_pair, is_old = first != last, first < removed.num_rows
    before, after = ordered.take(first[is_pair]), ordered.take(last[is_pair])
    # The columns in which a row changed may not be selected.
    is_changed = ~equal_rows(before, after, [name for name in rows.column_names if name not in (*key, WEIGHT)])
    return ViewChanges(
        ordered.take(first[~is_pair & ~is_old]),
        mask(before, is_changed),
        mask(after, is_changed),
        ordered.take(first[~is_pair & is_old]),
    )


def change_events(
    changes: ViewChanges,
    columns: Sequence[ViewColumn],
    cycle: int,
    now: datetime,
    *,
    old_columns: Sequence[ViewColumn] | None = None,
) -> OutputRows:
    """The events of the changes queue, with their keys: ``{"op": "update", "before": {...}, "after": {...}, ...}``.

    ``old_columns`` are the columns of the rows before, if these are of another version of the view.
    """
    old_columns = columns if old_columns is None else old_columns
    end = f',"cycle":{cycle},"time":"{now.isoformat()}"}}'
    keys, lines = [], []
    for op, before, after in (
        ("delete", changes.deleted, None),
        ("update", changes.before, changes.after),
        ("insert", None, changes.inserted),
    ):
        keyed = before if before is not None else after
        assert keyed is not None  # noqa: S101 - one of the two is there
        if keyed.num_rows:
            old = "null" if before is None else _json_rows(before, old_columns)
            new = "null" if after is None else _json_rows(after, columns)
            keys.append(one_chunk(keyed.column(KEY_TEXT)))
            texts = join_texts(f'{{"op":"{op}","before":', old, ',"after":', new, end)
            lines += to_lines(texts).chunks
    # Empty texts are no keys.
    texts = pa.chunked_array(keys, pa.string())
    is_key = pc.not_equal(texts, "")
    return OutputRows(
        pc.if_else(is_key, texts, pa.scalar(None, pa.string())), pa.chunked_array(lines, pa.large_binary())
    )


def _json_rows(rows: pa.Table, columns: Sequence[ViewColumn]) -> pa.ChunkedArray:
    visible = [column for column in columns if not column.is_hidden]
    for name in [each.name for each in visible if pa.types.is_floating(rows.schema.field(each.name).type)]:
        # JSON has no NaN and no infinity.
        finite = pc.if_else(pc.is_finite(rows.column(name)), rows.column(name), None)
        rows = rows.set_column(rows.column_names.index(name), name, finite)
    return encode_rows(
        rows, [each.name for each in visible], frozenset(each.name for each in visible if each.pg_type == "jsonb")
    )
