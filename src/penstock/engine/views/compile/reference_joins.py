"""Compiles joins with reference tables. Spark joins each row once, when it appears, and nothing is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.views.compile.joins import JoinKeys
from penstock.engine.views.compile.spark_relation import SparkRelation, quoted
from penstock.stream.views.view_plan import Join, JoinKind, is_reference

_SPARK_KINDS = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left",
    JoinKind.RIGHT: "left",
    JoinKind.SEMI: "left_semi",
    JoinKind.ANTI: "left_anti",
}
_EXISTS = "__exists"


def compile_lookup(join: Join, left: SparkRelation, right: SparkRelation) -> SparkRelation:
    """The rows of one side, with the matching rows of the reference table on the other side."""
    rows, table = (left, right) if is_reference(join.right) else (right, left)
    keys = JoinKeys.of(left, right, join.left_keys, join.right_keys)
    conditions = [own == other for own, other in zip(keys.left, keys.right, strict=True)]
    if join.condition is not None:
        conditions.append(left.expression(join.condition))
    is_filter = join.kind in (JoinKind.SEMI, JoinKind.ANTI)
    if is_filter and not conditions:
        return replace(rows, frame=_filter_by_existence(rows, table, join.kind))
    on = reduce(lambda one, other: one & other, conditions, F.lit(True))
    joined = rows.frame.join(F.broadcast(table.frame.drop(WEIGHT)), on, _SPARK_KINDS[join.kind])
    if is_filter:
        return replace(rows, frame=joined)
    pairs = replace(rows, columns=(*left.columns, *right.columns), key=(*rows.key, *table.key))
    return replace(pairs, frame=joined.select(*map(quoted, pairs.names), quoted(WEIGHT)))


def _filter_by_existence(rows: SparkRelation, table: SparkRelation, kind: JoinKind) -> DataFrame:
    """All rows or none, depending on whether the table has a row.

    Spark would skip the rows of a semi join with an empty table, and operators with state below it would not run.
    """
    exists = F.broadcast(table.frame.select(F.lit(True).alias(_EXISTS)).limit(1))
    condition = F.col(_EXISTS).isNotNull() if kind is JoinKind.SEMI else F.col(_EXISTS).isNull()
    return rows.frame.join(exists, F.lit(True), "left").filter(condition).drop(_EXISTS)
