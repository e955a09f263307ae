"""Reads the rows of a view's table, and compares those of two versions of a view by the keys of their changes."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.db.pool import Database
from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.kernels.arrays import mask, one_chunk
from penstock.engine.kernels.equality import equal_rows
from penstock.engine.rebuild.stored_view import StoredView
from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.views.compile.spark_relation import SparkRelation
from penstock.engine.views.view_changes import ViewChanges
from penstock.engine.views.view_reader import KEY_TEXT, ViewColumn, output_frame

_sql = Statements("penstock.engine.rebuild", "view_rows.sql")

#: PostgreSQL's text of a time has the format of the session, and microseconds have none.
_MICROS = "(extract(epoch FROM r.{}) * 1000000)::bigint"
_MAX_BLOCK_BYTES = 1 << 30


async def read_rows(database: Database, view: StoredView, without: StoredView | None = None) -> pa.Table:
    """Return the rows of a view as texts. ``without`` is a view whose rows, if it has equal ones, are left out."""
    names = ", ".join(_identifier(column.name) for column in view.columns)
    texts = ", ".join(_text_of(column) for column in view.columns)
    name = "copy_rows" if without is None else "copy_other_rows"
    other = {} if without is None else {"other": without.id}
    statement = fill_placeholders(_sql[name], id=view.id, names=names, texts=texts, **other)
    blocks = io.BytesIO()
    async with database.connection() as conn, conn.cursor() as cursor, cursor.copy(statement) as copy:
        async for block in copy:
            blocks.write(block)
    columns = [f"c{number}" for number in range(len(view.columns))]
    if not blocks.tell():
        return pa.table({name: pa.array([], pa.string()) for name in columns})
    return csv.read_csv(
        pa.py_buffer(blocks.getvalue()),
        csv.ReadOptions(column_names=columns, block_size=min(max(blocks.tell(), 1 << 20), _MAX_BLOCK_BYTES)),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def with_keys(spark: SparkSession, view: StoredView, texts: pa.Table) -> pa.Table:
    """Return rows as a cycle of the view computes them: with their types, and with the key of their changes."""
    frame: DataFrame = spark.createDataFrame(texts)
    values = [_value_of(F.col(f"c{number}"), column) for number, column in enumerate(view.columns)]
    named = [value.alias(column.name) for value, column in zip(values, view.columns, strict=True)]
    frame = frame.select(*named, F.lit(1).cast("tinyint").alias(WEIGHT))
    visible = tuple(column.name for column in view.visible)
    return output_frame(SparkRelation(frame, visible, view.key, is_append_only=False), with_key_text=True).toArrow()


def have_equal_columns(old: StoredView, new: StoredView) -> bool:
    """Tell whether rows of two views can be compared column by column."""
    return list(old.columns) == list(new.columns) and old.key == new.key


def compare_rows(old: pa.Table | None, new: pa.Table, visible: Sequence[str] | None) -> ViewChanges:
    """Return the changes that lead from old rows to new ones.

    Rows belong together if the key of their changes is the same, because consumers know rows by this key. ``visible``
    are the columns of both, if they are the same; then equal rows are left out.
    """
    if old is None:
        return ViewChanges(new, new.slice(0, 0), new.slice(0, 0), new.slice(0, 0))
    # Equal values have equal positions, and a null has one, too.
    found = pc.index_in(one_chunk(new.column(KEY_TEXT)), value_set=one_chunk(old.column(KEY_TEXT)))
    is_pair = np.asarray(pc.is_valid(found))
    positions = np.asarray(found.fill_null(-1)).astype(np.int64)
    is_kept = np.zeros(old.num_rows, np.bool_)
    is_kept[positions[is_pair]] = True
    before, after = old.take(pa.array(positions[is_pair])), mask(new, is_pair)
    if visible is not None and before.num_rows:
        is_changed = ~equal_rows(before, after, visible)
        before, after = mask(before, is_changed), mask(after, is_changed)
    return ViewChanges(mask(new, ~is_pair), before, after, mask(old, ~is_kept))


def _text_of(column: ViewColumn) -> str:
    name = _identifier(column.name)
    return _MICROS.format(name) if column.pg_type == "timestamptz" else f"r.{name}"


def _value_of(text: Column, column: ViewColumn) -> Column:
    """The value that Spark computed, from PostgreSQL's text of it."""
    if column.spark_type == "binary":
        return F.unbase64(text)
    if column.pg_type == "timestamptz":
        return F.timestamp_micros(text.cast("bigint")).cast(column.spark_type)
    if column.pg_type == "boolean":
        return text == "t"
    if column.pg_type == "jsonb":
        return text  # as JSON, as a cycle stores it. Such a column is not part of a key
    return text.cast(column.spark_type)


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string()
