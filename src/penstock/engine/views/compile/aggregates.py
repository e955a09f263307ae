"""Compiles aggregates: from calls to the columns of the state, and from those to the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, IntegralType, LongType, NumericType, StringType

from penstock.core.errors import InvalidRequest
from penstock.engine.kernels.order_keys import SortColumn
from penstock.engine.state.exchange import with_empty_rows
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
from penstock.engine.views.operators.accumulators import Accumulator, Count, DoubleSum, ExactSum, Extreme, Variance
from penstock.engine.views.operators.aggregate import ROWS, AggregateColumns, AggregateOperator, Preaggregate
from penstock.engine.views.operators.distinct_values import DistinctValues
from penstock.engine.views.operators.extremes import RetractableExtreme
from penstock.engine.views.operators.group_items import GroupItems
from penstock.engine.views.operators.percentiles import Percentiles
from penstock.stream.views.expressions import column_names, plain_column
from penstock.stream.views.view_plan import Aggregate, AggregateCall, SlidingWindows

if TYPE_CHECKING:
    from penstock.engine.views.compile.view_compiler import PlanContext

#: Functions that return the value of the first or the last row in an order.
_FIRST = frozenset(("min", "min_by", "first", "bool_and"))
_BY_ROW = frozenset(("min_by", "max_by", "first", "last"))
_WITHOUT_DISTINCT = frozenset(("stddev", "variance", "percentile"))
_ROW_HASH = "__h_row"
#: The start of the last sliding window of a row, in microseconds, and the number of its windows.
_LAST, _COUNT = "__last", "__count"


class _AggregateBuilder:
    """Collects the columns that the calls of one operator need. Equal columns are computed once."""

    def __init__(self, aggregate: Aggregate, relation: SparkRelation) -> None:
        self._relation = relation
        #: The SQL of the groups by name.
        self.groups = {group.name: group.sql for group in aggregate.groups}
        self._groups = {name: relation.key_expression(sql, "GROUP BY") for name, sql in self.groups.items()}
        #: The columns of the operator's input and their types, by name.
        self._arguments: dict[str, Column] = {}
        self._types: dict[str, DataType] = {}
        self._argument_names: dict[tuple[str, bool], str] = {}
        self._hashes: dict[str, Column] = {}
        self._parts = 0
        self._accumulators: dict[str, Accumulator] = {}
        self._distinct: dict[str, DistinctValues] = {}
        self._extremes: dict[str, RetractableExtreme] = {}
        self._percentiles: dict[str, Percentiles] = {}
        #: The columns of the operator's output that the results use.
        self.used: dict[str, None] = {}
        #: SQL of the results over the operator's output.
        self.results = [(call.name, self._add_call(call)) for call in aggregate.calls]
        if not (self.used or self._groups):
            self._use(ROWS)

    @property
    def columns(self) -> AggregateColumns:
        return AggregateColumns(
            tuple(self._groups),
            tuple(self._accumulators.values()),
            tuple(self._distinct.values()),
            tuple(self._extremes.values()),
            tuple(self._percentiles.values()),
        )

    def input(self) -> DataFrame:
        columns = {HASH: hash_of(list(self._groups.values())), **self._groups, **self._arguments, **self._hashes}
        return self._relation.select([column.alias(name) for name, column in columns.items()]).frame

    def input_of(self, relation: SparkRelation, group: str, others: Mapping[str, Column]) -> DataFrame:
        """The input with other columns instead of a group."""
        groups = {name: column for name, column in self._groups.items() if name != group} | dict(others)
        columns = {HASH: hash_of(list(groups.values())), **groups, **self._arguments}
        return relation.select([column.alias(name) for name, column in columns.items()]).frame

    def other_sql(self, group: str) -> list[str]:
        """The SQL of all columns of the input except for a group."""
        return [*(sql for name, sql in self.groups.items() if name != group), *(sql for sql, _ in self._argument_names)]

    def _add_call(self, call: AggregateCall) -> str:
        """Add the columns of a call. Returns SQL of its result."""
        if call.is_distinct and call.function in _WITHOUT_DISTINCT:
            raise InvalidRequest(f"{call.function}(DISTINCT ...) is not supported in a view: aggregate a subquery")
        match call.function:
            case "count" if call.argument is None and call.filter is None:
                return self._use(ROWS)
            case "count":
                return self._add_count(
                    call, self._argument(call, call.argument or "true", is_compared=call.is_distinct)
                )
            case "sum" | "avg":
                return self._add_sum(call)
            case "stddev" | "variance":
                variance = self._use(self._add(Variance(*self._named("variance", self._number(call, "DOUBLE")))))
                return f"sqrt({variance})" if call.function == "stddev" else variance
            case "percentile":
                return self._add_percentile(call)
            case _:
                return self._add_extreme(call)

    def _add_count(self, call: AggregateCall, argument: str) -> str:
        count = Count(*self._named("distinct" if call.is_distinct else "count", argument))
        return self._use(self._add_distinct(argument, count) if call.is_distinct else self._add(count))

    def _add_sum(self, call: AggregateCall) -> str:
        argument = self._number(call)
        kind = self._types[argument]
        name = ("__distinct_sum" if call.is_distinct else "__sum") + argument
        if pa.types.is_floating(self._arrow(argument)):
            accumulator: Accumulator = DoubleSum(name, argument)
        else:
            # Ten more digits than the values have, as in Spark. With 38, a common type with others had no decimals.
            precision, scale = (kind.precision, kind.scale) if isinstance(kind, DecimalType) else (19, 0)
            accumulator = ExactSum(name, argument, scale, min(38, precision + 10))
        total = self._use(self._add_distinct(argument, accumulator) if call.is_distinct else self._add(accumulator))
        count = self._add_count(call, argument)
        if call.function == "avg":
            total = f"{total} / {count}"
        elif isinstance(kind, IntegralType) and not isinstance(kind, LongType):
            total = f"CAST({total} AS BIGINT)"
        return f"CASE WHEN {count} > 0 THEN {total} END"

    def _add_percentile(self, call: AggregateCall) -> str:
        argument = self._argument(call, call.argument or "NULL", is_compared=True)
        fraction = call.fraction or 0.0
        name = f"__percentile{argument}_{fraction}"
        known = self._percentiles.get(argument)
        items = self._counted_items(argument) if known is None else known.items
        fractions = dict(known.fractions if known is not None else ()) | {name: fraction}
        self._percentiles[argument] = Percentiles(items, tuple(fractions.items()), self._arrow(argument))
        return self._use(name)

    def _add_extreme(self, call: AggregateCall) -> str:
        is_last = call.function not in _FIRST
        is_by_row = call.function in _BY_ROW
        value = self._argument(call, call.argument or "true", is_compared=not is_by_row)
        key = [self._plain_argument(f"`{name}`") for name in self._relation.key] if is_by_row else []
        if call.function in ("min_by", "max_by"):
            order = [self._argument(call, call.order or "true", is_compared=True), *key]
        elif is_by_row:
            # Nulls do not count, as in windows.
            is_counted = f"CASE WHEN ({call.argument}) IS NOT NULL THEN true END"
            order = [self._argument(call, is_counted, is_compared=True), *key]
        else:
            order = [value]
        columns = tuple(SortColumn(name, is_descending=is_last) for name in order)
        name = f"__{call.function}{''.join(dict.fromkeys((value, *order)))}"
        types = tuple(self._arrow(each) for each in dict.fromkeys((value, *order)))
        extreme = Extreme(name, value, columns, types)
        if self._relation.is_append_only:
            return self._use(self._add(extreme))
        if name not in self._extremes:
            if is_by_row:
                self._hashes[_ROW_HASH] = hash_of([quoted(each) for each in self._relation.key])
                stored = tuple(dict.fromkeys((order[0], value, *order)))
                items = GroupItems(self._next_part(), tuple(self._groups), stored, _ROW_HASH, tuple(key))
            else:
                items = self._counted_items(value)
            self._extremes[name] = RetractableExtreme(extreme, items)
        return self._use(name)

    def _add_distinct(self, argument: str, accumulator: Accumulator) -> str:
        known = self._distinct.get(argument)
        items = self._counted_items(argument) if known is None else known.items
        given = {each.name: each for each in (*(known.accumulators if known is not None else ()), accumulator)}
        self._distinct[argument] = DistinctValues(items, tuple(given.values()), self._relation.is_append_only)
        return accumulator.name

    def _counted_items(self, argument: str) -> GroupItems:
        name = f"__h{argument}"
        self._hashes[name] = hash_of([self._arguments[argument]])
        return GroupItems(self._next_part(), tuple(self._groups), (argument,), name, None)

    def _next_part(self) -> int:
        self._parts += 1
        return self._parts

    def _add(self, accumulator: Accumulator) -> str:
        self._accumulators.setdefault(accumulator.name, accumulator)
        return accumulator.name

    def _use(self, name: str) -> str:
        self.used[name] = None
        return f"`{name}`"

    @staticmethod
    def _named(prefix: str, argument: str) -> tuple[str, str]:
        return f"__{prefix}{argument}", argument

    def _number(self, call: AggregateCall, cast: str | None = None) -> str:
        """The column of an argument that must be a number."""
        sql = call.argument or "NULL"
        kind = self._relation.type_of(self._relation.expression(sql))
        if not isinstance(kind, NumericType | StringType):
            raise InvalidRequest(
                f"{call.function}({sql}) needs numbers, but its argument has the type {kind.simpleString()}"
            )
        if cast is not None or isinstance(kind, StringType):
            sql = f"CAST({sql} AS {cast or 'DOUBLE'})"
        return self._argument(call, sql, is_compared=call.is_distinct)

    def _argument(self, call: AggregateCall, sql: str, *, is_compared: bool) -> str:
        """The name of an argument's column; rows that the filter excludes have a null there."""
        text = sql if call.filter is None else f"CASE WHEN {call.filter} THEN {sql} END"
        return self._plain_argument(text, is_compared=is_compared)

    def _plain_argument(self, sql: str, *, is_compared: bool = False) -> str:
        known = self._argument_names.get((sql, is_compared))
        if known is not None:
            return known
        name = self._argument_names[sql, is_compared] = f"__a{len(self._argument_names)}"
        column = self._relation.expression(sql)
        self._arguments[name] = comparable(self._relation.frame, column, sql) if is_compared else column
        self._types[name] = self._relation.type_of(column)
        return name

    def _arrow(self, argument: str) -> pa.DataType:
        return arrow_schema(self._relation.frame.select(self._arguments[argument].alias("v"))).field(0).type


@dataclass(frozen=True)
class WindowedRows:
    """The rows of an aggregate before each of them becomes one row per sliding window."""

    rows: SparkRelation
    #: The column of the window's start.
    name: str
    windows: SlidingWindows


def compile_aggregate(
    aggregate: Aggregate,
    relation: SparkRelation,
    context: PlanContext,
    operator: int,
    windowed: WindowedRows | None = None,
) -> SparkRelation:
    builder = _AggregateBuilder(aggregate, relation)
    rows, columns = builder.input(), builder.columns
    schema = arrow_schema(rows)
    expires = relation.is_append_only
    state = context.state_of(operator, expires=expires)
    # Partial aggregates have no weight, as the rows that look for groups that expire have.
    looks_for_expired = state.is_expiry and state.ttl_us > 0
    if not (columns.groups or state.ttl_us):
        # Spark computes nothing without rows, and an aggregate without groups is a row then, too.
        rows = with_empty_rows(rows, 1)
    preaggregates = columns.can_preaggregate and not (context.is_single or looks_for_expired)
    if preaggregates:
        rows = _preaggregate_windows(builder, windowed, schema) or _preaggregate(rows, columns, schema)
    rows = context.exchange(rows, expires=expires)
    results = [field for field in columns.result_fields if field.name in builder.used]
    output = pa.schema([*nullable_fields(schema, columns.groups), *results, pa.field(WEIGHT, pa.int8())])
    function = AggregateOperator(output, state, columns, preaggregates)
    result = SparkRelation(apply_function(rows, function), columns.groups, columns.groups, is_append_only=False)
    selected = [quoted(name) for name in columns.groups]
    selected += [result.expression(sql).alias(name) for name, sql in builder.results]
    return SparkRelation(
        result.select(selected).frame,
        (*columns.groups, *(name for name, _ in builder.results)),
        columns.groups,
        is_append_only=False,
    )


def _preaggregate(rows: DataFrame, columns: AggregateColumns, schema: pa.Schema) -> DataFrame:
    fields = [*nullable_fields(schema, (HASH, *columns.groups)), *columns.partial_fields]
    return apply_function(rows, Preaggregate(pa.schema(fields), columns))


def _preaggregate_windows(
    builder: _AggregateBuilder, windowed: WindowedRows | None, schema: pa.Schema
) -> DataFrame | None:
    """Aggregate rows that are in the same sliding windows, and then make one row per window.

    None if another column than a group is computed from the start of the window.
    """
    if windowed is None:
        return None
    starts = [name for name, sql in builder.groups.items() if plain_column(sql) == windowed.name]
    if len(starts) != 1 or any(windowed.name in column_names(sql) for sql in builder.other_sql(starts[0])):
        return None
    columns, start = builder.columns, starts[0]
    # The last start and the number of windows tell all windows of a row.
    windows = windowed.windows
    micros, slide = windowed.rows.expression(windows.micros_sql), F.lit(windows.slide_us)
    offset = F.pmod(micros, slide)
    count = F.floor((F.lit(windows.size_us - 1) - offset) / slide).cast("int") + 1
    slices = {_LAST: micros - offset, _COUNT: count}
    rows = builder.input_of(windowed.rows, start, slices).filter(F.col(_COUNT) > 0)
    groups = tuple(name for name in columns.groups if name != start)
    sliced = replace(columns, groups=(*groups, *slices))
    rows = _preaggregate(rows, sliced, arrow_schema(rows))
    numbers = F.sequence(F.lit(0), F.col(_COUNT) - 1)
    each = F.transform(numbers, lambda number: F.timestamp_micros(F.col(_LAST) - number * slide))
    partials = [quoted(field.name) for field in columns.partial_fields]
    rows = rows.select(*map(quoted, groups), F.explode(each).alias(start), *partials)
    names = [quoted(name) for name in columns.groups]
    return rows.select(hash_of(names).alias(HASH), *names, *partials)
