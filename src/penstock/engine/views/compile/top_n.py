"""Compiles the first n rows of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.kernels.order_keys import SortColumn
from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.views.compile.group_columns import group_columns, plain_column_name
from penstock.engine.views.compile.spark_relation import SparkRelation, apply_function, arrow_schema, nullable_fields
from penstock.engine.views.operators.top_n import TopNOperator
from penstock.stream.views.view_plan import TopN

if TYPE_CHECKING:
    from penstock.engine.views.compile.view_compiler import PlanContext


def compile_top_n(top_n: TopN, relation: SparkRelation, context: PlanContext, operator: int) -> SparkRelation:
    rows, groups = group_columns(relation, top_n.partition_by)
    order: list[SortColumn] = []
    for number, sort_key in enumerate(top_n.order_by):
        name = plain_column_name(sort_key.sql, relation)
        if name is None:
            name = f"__so{number}"
            rows = rows.withColumn(name, relation.key_expression(sort_key.sql, "ORDER BY"))
        else:
            relation.key_expression(sort_key.sql, "ORDER BY")
        order.append(SortColumn(name, sort_key.is_descending, sort_key.nulls_first))
    order += [SortColumn(name) for name in relation.key]
    rows = context.exchange(rows, expires=relation.is_append_only)
    fields = nullable_fields(arrow_schema(rows), relation.names)
    if top_n.rank_name is not None:
        fields.append(pa.field(top_n.rank_name, pa.int32()))
    function = TopNOperator(
        pa.schema([*fields, pa.field(WEIGHT, pa.int8())]),
        context.state_of(operator, expires=relation.is_append_only),
        groups,
        relation.key,
        tuple(order),
        top_n.limit,
        top_n.rank_name,
        relation.is_append_only,
    )
    columns = relation.columns if top_n.rank_name is None else (*relation.columns, top_n.rank_name)
    # A group has one first row, so a new first row is an update.
    has_group_key = top_n.limit == 1 and bool(groups) and set(groups) <= set(relation.names)
    key = groups if has_group_key else relation.key
    return SparkRelation(apply_function(rows, function), columns, key, is_append_only=False)
