"""Aggregates as columns: the partial aggregates that Spark computes, and how PostgreSQL merges them.

Each aggregate has one state column or several. Spark computes a partial value of each for every key and window of a
cycle. PostgreSQL merges it into the window's row. The shown value is an SQL expression over the state columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.core.errors import InvalidRequest
from penstock.engine.compile.key_text import postgres_type, to_text
from penstock.engine.compile.windows.exact_sums import HIGH_SUFFIX, exact_sum
from penstock.stream.aggregates import WindowAggregate

#: The order of events for first and last: by time, then by partition and offset.
_EVENT_ORDER = ("__time", "__partition", "__offset")
#: An approximate distinct count keeps so many of the lowest hashes.
_MAX_HASHES = 1024


@dataclass(frozen=True, slots=True)
class StateColumn:
    name: str
    pg_type: str
    #: The Spark expression of a partial value.
    partial: Column
    #: SQL that merges two values: ``{state}`` is the stored one and ``{partial}`` the new one. ``{state:order}`` and
    #: ``{partial:order}`` are the positions of the events that they come from.
    merge: str
    #: SQL that converts the copied partial value, ``{}``, to the column's type.
    read: str = "{}"
    #: The type as which the partial value is copied, if it is another one.
    copied_as: str = ""
    #: The Spark expression of the digits that are too many for ``partial``.
    high_digits: Column | None = None

    @property
    def spark_columns(self) -> list[Column]:
        high = [] if self.high_digits is None else [self.high_digits.alias(self.name + HIGH_SUFFIX)]
        return [self.partial.alias(self.name), *high]

    @property
    def staged_type(self) -> str:
        return self.copied_as or self.pg_type


@dataclass(frozen=True, slots=True)
class ResultColumn:
    name: str
    pg_type: str
    state: tuple[StateColumn, ...]
    #: SQL of the shown value over the state columns, each written ``{column}``.
    final: str


class AggregateArgument(NamedTuple):
    value: Column
    spark_type: str


_MERGE_SUMS = (
    "CASE WHEN {state} IS NULL THEN {partial} WHEN {partial} IS NULL THEN {state} ELSE {state} + {partial} END"
)
#: For doubles, whose sum may overflow.
MERGE_DOUBLE_SUMS = (
    "CASE WHEN {state} IS NULL THEN {partial} WHEN {partial} IS NULL THEN {state} "
    "WHEN abs({state}) < 8e307 AND abs({partial}) < 8e307 THEN {state} + {partial} "
    "ELSE penstock.add_doubles({state}, {partial}) END"
)
_MERGE_COUNTS = "{state} + {partial}"
#: Counts the values of a JSON array, by value.
_COUNT_VALUES = (
    "(SELECT coalesce(jsonb_object_agg(c.v, c.n), '{{}}') "
    "FROM (SELECT v, count(*) AS n FROM jsonb_array_elements_text({}::jsonb) AS v GROUP BY v) AS c)"
)
#: Counts the values of a JSON array like _COUNT_VALUES, and in buckets if there are too many.
READ_PERCENTILE = (
    "(WITH c AS MATERIALIZED (SELECT v, count(*) AS n FROM jsonb_array_elements_text({}::jsonb) AS v GROUP BY v) "
    "SELECT CASE WHEN (SELECT count(*) FROM c) <= 1024 "
    "THEN (SELECT coalesce(jsonb_object_agg(c.v, c.n), '{{}}') FROM c) "
    "ELSE (SELECT jsonb_object_agg(b.name, b.n) "
    "FROM (SELECT penstock.bucket_name(c.v) AS name, sum(c.n)::bigint AS n FROM c GROUP BY 1) AS b) END)"
)


def result_columns(
    aggregates: Mapping[str, WindowAggregate], arguments: Mapping[str, AggregateArgument]
) -> list[ResultColumn]:
    """The columns of a query's result. ``arguments`` has the arguments of the aggregates that have one."""
    columns = []
    for index, (name, aggregate) in enumerate(aggregates.items()):
        value, spark_type = arguments.get(name, (None, ""))
        columns.append(_BUILDERS[aggregate.kind](name, f"a{index}", value, spark_type, aggregate))
    return columns


def _count(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    count = F.count_if(value) if aggregate.kind == "count_if" else F.count(F.lit(1) if value is None else value)
    return ResultColumn(name, "bigint", (StateColumn(slot, "bigint", count, _MERGE_COUNTS),), f"{{{slot}}}")


def _numeric_type(name: str, spark_type: str, aggregate: WindowAggregate) -> str:
    pg_type = postgres_type(spark_type)
    if pg_type not in ("bigint", "numeric", "double precision"):
        raise InvalidRequest(
            f"aggregate {name!r}: {aggregate.describe()} needs numbers, but its argument has the type {spark_type}; "
            "cast it, or declare the field's type with Stream.from_(..., schema={...})"
        )
    return pg_type


def _sum(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    pg_type = _numeric_type(name, spark_type, aggregate)
    if pg_type == "double precision":
        state = StateColumn(slot, pg_type, F.sum(value), MERGE_DOUBLE_SUMS)
    else:
        low, high = (F.sum(value.cast("decimal(38,0)")), None) if pg_type == "bigint" else exact_sum(value, spark_type)
        state = StateColumn(slot, "numeric", low, _MERGE_SUMS, high_digits=high)
    return ResultColumn(name, state.pg_type, (state,), _shown(slot, state.pg_type))


def _avg(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    total = _sum(name, slot, value, spark_type, aggregate)
    count = StateColumn(f"{slot}n", "bigint", F.count(value), _MERGE_COUNTS)
    if total.pg_type == "double precision":
        # Dividing a tiny double would underflow.
        final = f"CASE WHEN abs({{{slot}}}) > 1e-300 THEN {{{slot}}} / {{{slot}n}} WHEN {{{slot}n}} > 0 THEN 0 END"
    else:
        final = f"penstock.mean({{{slot}}}, {{{slot}n}})"
    return ResultColumn(name, total.pg_type, (*total.state, count), final)


def _min_or_max(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    pg_type = postgres_type(spark_type)
    if pg_type == "jsonb":
        raise InvalidRequest(
            f"aggregate {name!r}: {aggregate.describe()} cannot compare values of the type {spark_type}"
        )
    is_max = aggregate.kind == "max"
    partial = F.max(value) if is_max else F.min(value)
    merge = "greatest({state}, {partial})" if is_max else "least({state}, {partial})"
    # Spark compares text by bytes, whatever the collation of the database.
    column_type = 'text COLLATE "C"' if pg_type == "text" else pg_type
    state = StateColumn(slot, column_type, partial, merge, copied_as=pg_type)
    return ResultColumn(name, pg_type, (state,), _shown(slot, pg_type))


def _shown(slot: str, pg_type: str) -> str:
    return f"trim_scale({{{slot}}})" if pg_type == "numeric" else f"{{{slot}}}"


def _stddev(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    """The state is an array of count, mean and sum of squared deviations."""

    _numeric_type(name, spark_type, aggregate)
    number = value.cast("double")
    count = F.count(number)
    deviations = F.coalesce(F.var_pop(number) * count, F.lit(0.0))
    moments = F.concat_ws(",", count.cast("double"), F.coalesce(F.avg(number), F.lit(0.0)), deviations)
    state = StateColumn(
        slot,
        "double precision[]",
        moments,
        "penstock.join_moments({state}, {partial})",
        read="('{{' || {} || '}}')::double precision[]",
        copied_as="text",
    )
    root = f"CASE WHEN {{{slot}}}[3] > 1e-300 THEN sqrt({{{slot}}}[3] / ({{{slot}}}[1] - 1)) ELSE 0 END"
    final = f"CASE WHEN {{{slot}}}[1] > 1 THEN {root} END"
    return ResultColumn(name, "double precision", (state,), final)


def _first_or_last(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    """The state is the value and the position of its event: nulls if all values are null."""
    pg_type, is_last = postgres_type(spark_type), aggregate.kind == "last"
    shown = F.to_json(value) if pg_type == "jsonb" else value
    candidate = F.when(value.isNotNull(), F.struct(*_EVENT_ORDER, shown.alias("v")))
    best = (F.max if is_last else F.min)(candidate)
    operator = ">" if is_last else "<"
    is_better = f"{{state:order}} IS NULL OR {{partial:order}} {operator} {{state:order}}"
    merge = f"CASE WHEN {is_better} THEN {{partial}} ELSE {{state}} END"
    order = [StateColumn(f"{slot}_{i}", "bigint", best[column], merge) for i, column in enumerate(_EVENT_ORDER)]
    states = (StateColumn(slot, pg_type, best["v"], merge), *order)
    return ResultColumn(name, pg_type, states, _shown(slot, pg_type))


def _count_distinct(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    state = StateColumn(
        slot,
        "text[]",
        F.to_json(F.collect_set(to_text(value, spark_type))),
        "penstock.set_union({state}, {partial})",
        read="ARRAY(SELECT jsonb_array_elements_text({}::jsonb))",
        copied_as="text",
    )
    return ResultColumn(name, "bigint", (state,), f"coalesce(cardinality({{{slot}}}), 0)::bigint")


def _approx_distinct(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    """The state is the lowest hashes of the values."""

    hashed = F.when(value.isNotNull(), F.xxhash64(to_text(value, spark_type)))
    lowest = F.slice(F.array_sort(F.collect_set(hashed)), 1, _MAX_HASHES)
    state = StateColumn(
        slot,
        "bigint[]",
        F.concat_ws(",", lowest.cast("array<string>")),
        "penstock.lowest({state}, {partial})",
        read="('{{' || {} || '}}')::bigint[]",
        copied_as="text",
    )
    return ResultColumn(name, "bigint", (state,), f"penstock.distinct_estimate({{{slot}}})")


def _value_counts(slot: str, values: Column) -> StateColumn:
    """A state that counts how often each value occurs."""

    partial = F.to_json(F.collect_list(values))
    merge = "penstock.add_counts({state}, {partial})"
    return StateColumn(slot, "jsonb", partial, merge, read=_COUNT_VALUES, copied_as="text")


def _percentile(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    """The state counts the events of each value, or of each bucket if there are many values."""

    _numeric_type(name, spark_type, aggregate)
    number = value.cast("double") + F.lit(0.0)  # -0.0 and 0.0 are one value
    state = dataclasses.replace(
        _value_counts(slot, F.concat(F.lit("="), number.cast("string"))),
        merge="penstock.add_values({state}, {partial})",
        read=READ_PERCENTILE,
    )
    final = f"penstock.bucket_percentile({{{slot}}}, {aggregate.number})"
    return ResultColumn(name, "double precision", (state,), final)


def _top_k(name: str, slot: str, value: Any, spark_type: str, aggregate: WindowAggregate) -> ResultColumn:
    state = _value_counts(slot, to_text(value, spark_type))
    return ResultColumn(name, "jsonb", (state,), f"penstock.top_counts({{{slot}}}, {int(aggregate.number or 10)})")


_BUILDERS: dict[str, Callable[..., ResultColumn]] = {
    "count": _count,
    "count_if": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _min_or_max,
    "max": _min_or_max,
    "stddev": _stddev,
    "first": _first_or_last,
    "last": _first_or_last,
    "count_distinct": _count_distinct,
    "approx_distinct": _approx_distinct,
    "percentile": _percentile,
    "top_k": _top_k,
}
