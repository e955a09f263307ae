"""Compiles window functions. Spark computes them over the rows of changed groups, before and after the changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.state.runs import HASH
from penstock.engine.views.compile.group_columns import group_columns
from penstock.engine.views.compile.spark_relation import (
    SparkRelation,
    apply_function,
    arrow_schema,
    hash_of,
    nullable_fields,
    quoted,
)
from penstock.engine.views.operators.group_rows import GROUP_HASH, CancelEqualRows, GroupRowsOperator
from penstock.stream.views.view_plan import SortKey, WindowFunction, WindowFunctions

if TYPE_CHECKING:
    from penstock.engine.views.compile.view_compiler import PlanContext

#: Functions whose value is the same for rows that are equal in the order, so that the order gets no tie-breaker.
_PEER_FUNCTIONS = ("rank(", "dense_rank(", "percent_rank(", "cume_dist(")
#: Functions that depend on the order of all rows.
_ROW_FUNCTIONS = ("row_number(", "lag(", "lead(", "ntile(", "first_value(", "first(")


def compile_window_functions(
    windows: WindowFunctions, relation: SparkRelation, context: PlanContext, operator: int
) -> SparkRelation:
    rows, groups = group_columns(relation, windows.partition_by)
    rows = context.exchange(rows, expires=relation.is_append_only)
    fields = nullable_fields(arrow_schema(rows), dict.fromkeys((*groups, *relation.names)))
    output = pa.schema([pa.field(GROUP_HASH, pa.int64()), *fields, pa.field(WEIGHT, pa.int8())])
    function = GroupRowsOperator(
        output, context.state_of(operator, expires=relation.is_append_only), groups, relation.key
    )
    frame = apply_function(rows, function)
    if not context.is_single:
        # The window functions need no other exchange: the groups have this hash.
        frame = frame.repartition(context.tasks, GROUP_HASH)
    old_and_new = replace(relation, frame=frame, is_append_only=False)
    computed = [
        old_and_new.expression(_over(each, windows.order_by, groups, relation.key)).alias(each.name)
        for each in windows.functions
    ]
    key_hash = hash_of([quoted(name) for name in relation.key]).alias(HASH)
    frame = old_and_new.select([key_hash, *map(quoted, relation.names), *computed]).frame
    columns = (*relation.columns, *(each.name for each in windows.functions))
    names = (*relation.names, *(each.name for each in windows.functions))
    output = pa.schema([*nullable_fields(arrow_schema(frame), names), pa.field(WEIGHT, pa.int8())])
    frame = apply_function(frame, CancelEqualRows(output, relation.key))
    return SparkRelation(frame, columns, relation.key, is_append_only=False)


def _over(function: WindowFunction, order_by: Sequence[SortKey], groups: Sequence[str], key: Sequence[str]) -> str:
    """The call over the rows before the changes or after them, which WEIGHT tells apart."""
    partition = ", ".join(f"`{name}`" for name in (GROUP_HASH, *groups, WEIGHT))
    order = [
        f"{each.sql} {'DESC' if each.is_descending else 'ASC'} NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in order_by
    ]
    call = function.sql.lower()
    counts_rows = function.frame is not None and function.frame.upper().startswith("ROWS")
    if call.startswith(_ROW_FUNCTIONS) or (counts_rows and not call.startswith(_PEER_FUNCTIONS)):
        order += [f"`{name}`" for name in key]
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    over = f"OVER (PARTITION BY {partition}{ordered} {function.frame or ''})"
    if call.startswith("avg("):
        # Spark's mean of decimals has too few digits.
        argument = function.sql[len("avg") :]
        return f"CASE WHEN count{argument} {over} > 0 THEN sum{argument} {over} / count{argument} {over} END"
    return f"{function.sql} {over}"
