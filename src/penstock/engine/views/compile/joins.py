"""Compiles joins. The operators join on equal keys; further conditions are evaluated by Spark on their result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from penstock.engine.compile import exact_decimals
from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.state.runs import HASH
from penstock.engine.views.compile.spark_relation import (
    SparkRelation,
    apply_function,
    arrow_schema,
    comparable,
    hash_of,
    nullable_fields,
    quoted,
)
from penstock.engine.views.operators.base import ROW_HASH
from penstock.engine.views.operators.join import JoinOperator
from penstock.engine.views.operators.join_side import NULL_KEY, SIDE, UNMATCHED, JoinSide
from penstock.engine.views.operators.semi_join import SemiJoinOperator
from penstock.stream.views.view_plan import Join, JoinKind

if TYPE_CHECKING:
    from penstock.engine.views.compile.view_compiler import PlanContext

_ONE_SIDED = (JoinKind.SEMI, JoinKind.ANTI)


#: The sides of which rows without a match are looked for.
_OUTER_SIDES = {
    JoinKind.LEFT: (0,),
    JoinKind.RIGHT: (1,),
    JoinKind.FULL: (0, 1),
    JoinKind.SEMI: (0,),
    JoinKind.ANTI: (0,),
}


def compile_join(
    join: Join, left: SparkRelation, right: SparkRelation, context: PlanContext, next_operator: Callable[[], int]
) -> SparkRelation:
    taken = {name: context.names.next() for name in right.key if name in left.names and name not in right.columns}
    right = right.rename_hidden(taken)
    keys = JoinKeys.of(left, right, join.left_keys, join.right_keys)
    if join.kind in _ONE_SIDED and join.condition is None:
        return _compile_semi_join(left, right, join.kind, keys, context, next_operator())
    pairs = SparkRelation(
        left.frame,  # replaced below
        (*left.columns, *right.columns),
        (*left.key, *right.key),
        is_append_only=join.kind is JoinKind.INNER
        and left.is_append_only
        and right.is_append_only
        and not context.has_ttl,
    )
    if join.condition is None:
        frame = _compile_equi_join(left, right, join.kind, keys, (), context, next_operator())
    else:
        frame = _compile_conditional_join(join, left, right, keys, context, next_operator)
    if join.kind in _ONE_SIDED:
        return replace(left, frame=frame, is_append_only=False)
    if join.kind is JoinKind.INNER:
        return replace(pairs, frame=frame.drop(UNMATCHED))
    return _with_mark(frame, pairs, context)


def _compile_conditional_join(
    join: Join,
    left: SparkRelation,
    right: SparkRelation,
    keys: JoinKeys,
    context: PlanContext,
    next_operator: Callable[[], int],
) -> DataFrame:
    """The pairs that fulfil the condition, and the rows that are in none of them.

    The operator that finds the pairs passes the rows along, so that no input is computed twice.
    """
    sides = _OUTER_SIDES.get(join.kind, ())
    frame = _compile_equi_join(left, right, JoinKind.INNER, keys, sides, context, next_operator())
    frame = frame.filter((F.col(UNMATCHED) != 0) | left.expression(join.condition or "true"))
    for side in sides:
        frame = _compile_rows_in_pairs(frame, (left, right)[side], side, join.kind, context, next_operator())
    return frame


def _compile_rows_in_pairs(
    frame: DataFrame, relation: SparkRelation, side: int, kind: JoinKind, context: PlanContext, operator: int
) -> DataFrame:
    """Keep the pairs, and of the rows of one side those that are in no pair.

    For a semi or an anti join, keep only the rows that are in a pair or in none.
    """
    key = [quoted(name) for name in relation.key]
    number = F.when(F.col(UNMATCHED) == side + 1, 0).when(F.col(UNMATCHED) == 0, 1).otherwise(2)
    rows = frame.select(
        hash_of(key).alias(HASH),
        hash_of(key).alias(ROW_HASH),
        number.cast("tinyint").alias(SIDE),
        F.lit(False).alias(NULL_KEY),
        *map(quoted, frame.columns),
    )
    rows = context.exchange(rows)
    is_one_sided = kind in _ONE_SIDED
    names = relation.names if is_one_sided else [name for name in frame.columns if name != WEIGHT]
    output = pa.schema([*nullable_fields(arrow_schema(rows), names), pa.field(WEIGHT, pa.int8())])
    function = SemiJoinOperator(
        output,
        context.state_of(operator, expires=False),
        kind is not JoinKind.SEMI,
        relation.key,
        # Rows that expire in the operator before disappear here.
        JoinSide(0, relation.key, relation.names, relation.key, relation.is_append_only and not context.has_ttl),
        None if is_one_sided else side + 1,
    )
    return apply_function(rows, function)


@dataclass(frozen=True)
class JoinKeys:
    """The keys of both inputs, in common types."""

    left: Sequence[Column]
    right: Sequence[Column]

    @classmethod
    def of(
        cls, left: SparkRelation, right: SparkRelation, left_keys: Sequence[str], right_keys: Sequence[str]
    ) -> JoinKeys:
        ours = [left.expression(sql) for sql in left_keys]
        theirs = [right.expression(sql) for sql in right_keys]
        types = [(left.type_of(a), right.type_of(b)) for a, b in zip(ours, theirs, strict=True)]
        return cls(
            [
                comparable(left.frame, _common(left, column, pair[1]), f"the join key {sql}")
                for column, pair, sql in zip(ours, types, left_keys, strict=True)
            ],
            [
                comparable(right.frame, _common(right, column, pair[0]), f"the join key {sql}")
                for column, pair, sql in zip(theirs, types, right_keys, strict=True)
            ],
        )


def _with_mark(frame: DataFrame, pairs: SparkRelation, context: PlanContext) -> SparkRelation:
    """The result of an outer join. The mark tells a row without a match from a pair with a row whose key is null."""
    mark = context.names.next()
    frame = frame.select(*map(quoted, pairs.names), quoted(UNMATCHED).alias(mark), quoted(WEIGHT))
    return SparkRelation(frame, pairs.columns, (mark, *pairs.key), is_append_only=False)


def _compile_equi_join(
    left: SparkRelation,
    right: SparkRelation,
    kind: JoinKind,
    keys: JoinKeys,
    passed: tuple[int, ...],
    context: PlanContext,
    operator: int,
) -> DataFrame:
    """The columns of both sides, UNMATCHED and WEIGHT. Changes of the sides in ``passed`` are rows too."""
    key_names = tuple(f"__jk{number}" for number in range(len(keys.left)))
    sides = (_side(left, 0, key_names, context), _side(right, 1, key_names, context))
    expires = left.is_append_only or right.is_append_only
    inputs = []
    for number, (relation, values) in enumerate(((left, keys.left), (right, keys.right))):
        rows = _join_input(relation, number, key_names, values, relation.names)
        # Rows with a null key have no match.
        keeps_nulls = number in (*passed, *_OUTER_SIDES.get(kind, ()))
        inputs.append(rows if keeps_nulls else rows.filter(~F.col(NULL_KEY)))
    rows = _exchange_both(inputs, context, expires=expires)
    fields = nullable_fields(arrow_schema(rows), (*sides[0].columns, *sides[1].columns))
    output = pa.schema([*fields, pa.field(UNMATCHED, pa.int8()), pa.field(WEIGHT, pa.int8())])
    state = context.state_of(operator, expires=expires)
    frame = apply_function(rows, JoinOperator(output, state, kind, key_names, *sides, passed))
    columns = [
        quoted(prefixed).alias(name)
        for side, relation in zip(sides, (left, right), strict=True)
        for prefixed, name in zip(side.columns, relation.names, strict=True)
    ]
    return frame.select(*columns, UNMATCHED, quoted(WEIGHT))


def _compile_semi_join(
    left: SparkRelation, right: SparkRelation, kind: JoinKind, keys: JoinKeys, context: PlanContext, operator: int
) -> SparkRelation:
    key_names = tuple(f"__jk{number}" for number in range(len(keys.left)))
    side = _side(left, 0, key_names, context)
    expires = left.is_append_only or right.is_append_only
    inputs = [
        _join_input(left, 0, key_names, keys.left, left.names),
        _join_input(right, 1, key_names, keys.right, ()).filter(~F.col(NULL_KEY)),
    ]
    if kind is JoinKind.SEMI:
        inputs[0] = inputs[0].filter(~F.col(NULL_KEY))
    rows = _exchange_both(inputs, context, expires=expires)
    fields = nullable_fields(arrow_schema(rows), side.columns)
    output = pa.schema([*fields, pa.field(WEIGHT, pa.int8())])
    state = context.state_of(operator, expires=expires)
    other_expires = right.is_append_only and context.has_ttl
    function = SemiJoinOperator(output, state, kind is JoinKind.ANTI, key_names, side, other_expires=other_expires)
    frame = apply_function(rows, function)
    columns = [quoted(prefixed).alias(name) for prefixed, name in zip(side.columns, left.names, strict=True)]
    return SparkRelation(frame.select(*columns, quoted(WEIGHT)), left.columns, left.key, is_append_only=False)


def _side(relation: SparkRelation, number: int, join_keys: tuple[str, ...], context: PlanContext) -> JoinSide:
    names = {name: _prefixed(number, name) for name in relation.names}
    key = tuple(names[name] for name in relation.key)
    expires = relation.is_append_only and context.has_ttl
    return JoinSide(number, join_keys, tuple(names.values()), key, relation.is_append_only and not expires, expires)


def _join_input(
    relation: SparkRelation,
    side: int,
    keys: Sequence[str],
    values: Sequence[Column],
    names: Sequence[str],
) -> DataFrame:
    has_null = F.lit(False)
    for value in values:
        has_null = has_null | value.isNull()
    columns = [
        hash_of(values).alias(HASH),
        hash_of([quoted(name) for name in relation.key]).alias(ROW_HASH),
        F.lit(side).cast("tinyint").alias(SIDE),
        has_null.alias(NULL_KEY),
        *(value.alias(name) for name, value in zip(keys, values, strict=True)),
        *(quoted(name).alias(_prefixed(side, name)) for name in names),
    ]
    return relation.select(columns).frame


def _exchange_both(inputs: Sequence[DataFrame], context: PlanContext, *, expires: bool) -> DataFrame:
    rows = inputs[0].unionByName(inputs[1], allowMissingColumns=True)
    return context.exchange(rows, expires=expires)


def _prefixed(side: int, name: str) -> str:
    return f"{'lr'[side]}:{name}"


def _common(relation: SparkRelation, column: Column, other: DataType) -> Column:
    """The value in the type that it has in common with the other side's, as Spark would compare them."""
    return exact_decimals.with_null_for_failed_casts(relation.spark, F.coalesce(column, F.lit(None).cast(other)))
