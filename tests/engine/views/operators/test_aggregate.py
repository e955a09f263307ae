"""Aggregates equal those of Python over the rows that are left, after every cycle."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.kernels.int128 import SumOverflow
from penstock.engine.kernels.order_keys import SortColumn
from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.accumulators import Accumulator, Count, DoubleSum, ExactSum, Extreme, Variance
from penstock.engine.views.operators.aggregate import ROWS, AggregateColumns, AggregateOperator, Preaggregate
from penstock.engine.views.operators.distinct_values import DistinctValues
from penstock.engine.views.operators.extremes import RetractableExtreme
from penstock.engine.views.operators.group_items import GroupItems
from penstock.engine.views.operators.percentiles import Percentiles
from tests.engine.state.memory_store import MemoryRunStore
from tests.engine.views.operators.changing_rows import (
    AppliedChanges,
    ChangingRows,
    Row,
    assert_same_rows,
    to_table,
)

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("g", pa.string()),
        ("h", pa.float64()),
        ("i", pa.int64()),
        ("m", pa.decimal128(20, 2)),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int64())),
    ]
)
NUMBERS = ("i", "m", "f", "t", "s", "b")
START = datetime(2026, 1, 1, tzinfo=UTC)


def new_row(chance: random.Random) -> Row:
    def nullable(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return {
        "g": nullable(chance.choice("abc")),
        "h": chance.choice([0.0, 1.5, math.nan]),
        "i": nullable(chance.choice([chance.randrange(-5, 5), chance.randrange(-(2**63), 2**63)])),
        "m": nullable(Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2)),
        "f": nullable(chance.choice([chance.uniform(-1e6, 1e6), 0.5, math.nan, math.inf, -math.inf, 1e9])),
        "s": nullable(chance.choice(["", "ä", "zz", "z", "abc"])),
        "t": nullable(START + timedelta(seconds=chance.randrange(5))),
        "b": nullable(chance.random() < 0.5),
        "l": nullable([chance.randrange(3) for _ in range(chance.randrange(3))]),
    }


def types(*names: str) -> tuple[pa.DataType, ...]:
    return tuple(SCHEMA.field(name).type for name in names)


def extreme(name: str, value: str, *order: str, is_last: bool) -> Extreme:
    columns = tuple(dict.fromkeys((value, *order)))
    return Extreme(name, value, tuple(SortColumn(each, is_descending=is_last) for each in order), types(*columns))


def aggregate_columns(groups: tuple[str, ...], *, is_append_only: bool) -> AggregateColumns:
    """All aggregates of all types."""
    accumulators: list[Accumulator] = [Count(f"count_{name}", name) for name in ("i", "s", "l")]
    accumulators += [
        ExactSum("sum_i", "i", 0),
        ExactSum("sum_m", "m", 2),
        DoubleSum("sum_f", "f"),
        Variance("var", "f"),
    ]
    parts = iter(range(1, 100))
    distinct_sums: dict[str, tuple[Accumulator, ...]] = {
        "i": (ExactSum("distinct_sum_i", "i", 0),),
        "s": (),
        "f": (DoubleSum("distinct_sum_f", "f"),),
    }
    distinct = [
        DistinctValues(
            GroupItems(next(parts), groups, (name,), f"h_{name}", None),
            (Count(f"distinct_{name}", name), *sums),
            is_append_only,
        )
        for name, sums in distinct_sums.items()
    ]
    by_value = [
        extreme(f"{kind}_{name}", name, name, is_last=kind == "max") for name in NUMBERS for kind in ("min", "max")
    ]
    by_row = [extreme("last_l", "l", "t", "id", is_last=True), extreme("first_l", "l", "t", "id", is_last=False)]
    if is_append_only:
        return AggregateColumns(groups, (*accumulators, *by_value, *by_row), tuple(distinct))
    extremes = [
        RetractableExtreme(each, GroupItems(next(parts), groups, each.columns, f"h_{each.value}", None))
        for each in by_value
    ]
    extremes += [
        RetractableExtreme(each, GroupItems(next(parts), groups, ("t", "l", "id"), "h_id", ("id",))) for each in by_row
    ]
    percentiles = [
        Percentiles(
            GroupItems(next(parts), groups, (name,), f"h_{name}", None),
            ((f"p0_{name}", 0.0), (f"p50_{name}", 0.5), (f"p90_{name}", 0.9), (f"p100_{name}", 1.0)),
            SCHEMA.field(name).type,
        )
        for name in ("i", "m", "s")
    ]
    return AggregateColumns(groups, tuple(accumulators), tuple(distinct), tuple(extremes), tuple(percentiles))


def float_key(value: Any) -> Any:
    """Python's order of values, with NaN as the greatest."""
    return (math.isnan(value), value) if isinstance(value, float) else value


def total(values: list[float]) -> float | None:
    if not values:
        return None
    if any(map(math.isnan, values)) or {math.inf, -math.inf} <= set(values):
        return math.nan
    return math.inf if math.inf in values else -math.inf if -math.inf in values else math.fsum(values)


def variance(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    return float(statistics.variance(map(Fraction, values)))


def expected_row(columns: AggregateColumns, rows: list[Row]) -> Row:
    """The results of a group, computed in Python."""

    def values(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    by_time = sorted((row for row in rows if row["t"] is not None), key=lambda row: (row["t"], row["id"]))
    functions: dict[str, Callable[[], Any]] = {
        ROWS: lambda: len(rows),
        "sum_i": lambda: Decimal(sum(values("i"))),
        "sum_m": lambda: sum(values("m"), Decimal("0.00")),
        "sum_f": lambda: total(values("f")),
        "var": lambda: variance(values("f")),
        "distinct_sum_i": lambda: Decimal(sum(set(values("i")))),
        "distinct_sum_f": lambda: total(list({float_key(value): value for value in values("f")}.values())),
        "last_l": lambda: by_time[-1]["l"] if by_time else None,
        "first_l": lambda: by_time[0]["l"] if by_time else None,
    }
    row = {name: rows[0][name] if rows else None for name in columns.groups}
    for field in columns.result_fields:
        prefix, _, name = field.name.rpartition("_")
        if field.name in functions:
            row[field.name] = functions[field.name]()
        elif prefix == "count":
            row[field.name] = len(values(name))
        elif prefix == "distinct":
            row[field.name] = len(set(map(float_key, values(name))))
        else:
            ordered = sorted(values(name), key=float_key)
            rank = {"min": 0.0, "max": 1.0}.get(prefix, float(prefix[1:]) / 100 if prefix[0] == "p" else 0)
            position = max(1, math.ceil(rank * len(ordered))) - 1
            row[field.name] = ordered[position] if ordered else None
    return row


def operator_of(columns: AggregateColumns, shards: int, *, is_preaggregated: bool = False) -> AggregateOperator:
    fields = [*(SCHEMA.field(name) for name in columns.groups), *columns.result_fields, pa.field(WEIGHT, pa.int8())]
    return AggregateOperator(pa.schema(fields), StateConfig("", 0, shards=shards), columns, is_preaggregated)


def input_table(changes: list[tuple[Row, int]], groups: tuple[str, ...], *, is_weak: bool) -> pa.Table:
    hashes = {f"h_{name}": [name] for name in ("id", *NUMBERS)} | {HASH: groups}
    return to_table(changes, SCHEMA, hashes, is_weak=is_weak)


def groups_of(rows: list[Row], groups: tuple[str, ...]) -> list[list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(float_key(row[name]) for name in groups), []).append(row)
    return list(found.values())


@pytest.mark.parametrize("is_append_only", [True, False], ids=["append-only", "retracting"])
@pytest.mark.parametrize("groups", [(), ("g",), ("g", "h")], ids=str)
@pytest.mark.parametrize("is_weak", [False, True], ids=["", "colliding hashes"])
def test_results_equal_those_of_python_after_every_cycle(
    groups: tuple[str, ...], is_append_only: bool, is_weak: bool
) -> None:
    chance = random.Random(f"{groups} {is_append_only} {is_weak}")
    for shards in (1, 3):
        columns = aggregate_columns(groups, is_append_only=is_append_only)
        operator, store = operator_of(columns, shards), MemoryRunStore()
        rows = ChangingRows(chance, lambda: new_row(chance), is_append_only=is_append_only)
        result = AppliedChanges(groups)
        for _ in range(15):
            changes = rows.change(chance.choice([1, 2, 5, 30]))
            result.apply(store.run_cycle(operator, input_table(changes, groups, is_weak=is_weak)))
            current = list(rows.rows.values())
            expected = [expected_row(columns, each) for each in (groups_of(current, groups) if groups else [current])]
            assert_same_rows(result.rows.values(), expected, tolerance=1e-9)


def test_partial_aggregates_before_the_exchange_give_the_same_results() -> None:
    chance, groups = random.Random(1), ("g", "h")
    all_columns = aggregate_columns(groups, is_append_only=True)
    columns = AggregateColumns(groups, all_columns.accumulators)
    operator, store = operator_of(columns, 2, is_preaggregated=True), MemoryRunStore()
    fields = [pa.field(HASH, pa.int64()), *(SCHEMA.field(name) for name in groups), *columns.partial_fields]
    preaggregate = Preaggregate(pa.schema(fields), columns)
    rows = ChangingRows(chance, lambda: new_row(chance), is_append_only=True)
    result = AppliedChanges(groups)
    for _ in range(20):
        tasks = [input_table(rows.change(20), groups, is_weak=False) for _ in range(3)]
        batches = [batch for task in tasks for batch in preaggregate(iter(task.to_batches()))]
        result.apply(store.run_cycle(operator, pa.Table.from_batches(batches)))
        expected = [expected_row(columns, each) for each in groups_of(list(rows.rows.values()), groups)]
        assert_same_rows(result.rows.values(), expected, tolerance=1e-9)


def changes_of(values: list[tuple[Any, int]], kind: pa.DataType) -> pa.Table:
    """Changes of one group."""
    count = len(values)
    return pa.table(
        {
            HASH: pa.array([0] * count, pa.int64()),
            "v": pa.array([value for value, _ in values], kind),
            WEIGHT: pa.array([weight for _, weight in values], pa.int8()),
        }
    )


def test_a_double_that_is_added_and_removed_leaves_nothing_behind() -> None:
    columns = AggregateColumns((), (DoubleSum("sum", "v"),))
    output = pa.schema([("sum", pa.float64()), (WEIGHT, pa.int8())])
    operator, store = AggregateOperator(output, StateConfig("", 0), columns), MemoryRunStore()
    result = AppliedChanges(())
    for changes in ([(1e20, 1), (0.1, 1)], [(math.inf, 1)], [(math.inf, -1), (math.nan, 1)], [(math.nan, -1)]):
        result.apply(store.run_cycle(operator, changes_of(changes, pa.float64())))
    result.apply(store.run_cycle(operator, changes_of([(1e20, -1)], pa.float64())))
    assert list(result.rows.values()) == [{"sum": 0.1}]


def test_sums_are_exact_up_to_38_digits_and_fail_beyond() -> None:
    kind = pa.decimal128(38, 0)
    columns = AggregateColumns((), (ExactSum("sum", "v", 0),))
    output = pa.schema([("sum", kind), (WEIGHT, pa.int8())])
    operator, store = AggregateOperator(output, StateConfig("", 0), columns), MemoryRunStore()
    largest, less = Decimal(10**38 - 1), Decimal(10**38 - 8)
    result = AppliedChanges(())
    result.apply(store.run_cycle(operator, changes_of([(largest, 1), (largest.copy_negate(), 1), (less, 1)], kind)))
    assert list(result.rows.values()) == [{"sum": less}]
    for excess in (Decimal(8), largest):
        with pytest.raises(SumOverflow):
            store.run_cycle(operator, changes_of([(excess, 1)], kind))
    result.apply(store.run_cycle(operator, changes_of([(Decimal(7), 1)], kind)))
    assert list(result.rows.values()) == [{"sum": largest}]


def test_a_change_that_the_output_does_not_show_emits_nothing() -> None:
    columns = AggregateColumns(("v",))
    output = pa.schema([("v", pa.int64()), (WEIGHT, pa.int8())])
    operator, store = AggregateOperator(output, StateConfig("", 0), columns), MemoryRunStore()
    assert store.run_cycle(operator, changes_of([(5, 1)], pa.int64())).num_rows == 1
    assert store.run_cycle(operator, changes_of([(5, 1)], pa.int64())).num_rows == 0
    assert store.run_cycle(operator, changes_of([(5, -1)], pa.int64())).num_rows == 0
    assert store.run_cycle(operator, changes_of([(5, -1)], pa.int64())).to_pylist() == [{"v": 5, WEIGHT: -1}]
