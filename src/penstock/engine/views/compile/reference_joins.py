"""Compiles joins with reference tables. Spark joins each row once, when it appears, and nothing is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

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


def compile_lookup(join: Join, left: SparkRelation, right: SparkRelation) -> SparkRelation:
    """The rows of one side, with the matching rows of the reference table on the other side."""
    rows, table = (left, right) if is_reference(join.right) else (right, left)
    keys = JoinKeys.of(left, right, join.left_keys, join.right_keys)
    conditions = [own == other for own, other in zip(keys.left, keys.right, strict=True)]
    if join.condition is not None:
        conditions.append(left.expression(join.condition))
    on = reduce(lambda one, other: one & other, conditions, F.lit(True))
    joined = rows.frame.join(F.broadcast(table.frame.drop(WEIGHT)), on, _SPARK_KINDS[join.kind])
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return replace(rows, frame=joined)
    pairs = replace(rows, columns=(*left.columns, *right.columns), key=(*rows.key, *table.key))
    return replace(pairs, frame=joined.select(*map(quoted, pairs.names), quoted(WEIGHT)))
