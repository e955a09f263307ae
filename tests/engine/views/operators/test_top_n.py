"""The first rows of each group equal those of a sort in Python, after every cycle."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.kernels.order_keys import SortColumn
from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import ROW_HASH
from penstock.engine.views.operators.top_n import TopNOperator
from tests.engine.state.memory_store import MemoryRunStore
from tests.engine.views.operators.changing_rows import AppliedChanges, ChangingRows, Row, assert_same_rows, to_table

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("s", pa.string())])


def new_row(chance: random.Random) -> Row:
    return {
        "g": chance.choice([None, "a", "b"]),
        "n": chance.choice([None, *range(4)]),
        "f": chance.choice([None, -1.5, 0.0, math.nan, math.inf, -math.inf]),
        "s": chance.choice([None, "", "a", "aa", "é"]),
    }


def sort_key(row: Row, order: tuple[SortColumn, ...]) -> list[Any]:
    """A key for Python's sort. Descending columns are compared in reverse."""
    keys: list[Any] = []
    for column in order:
        value = row[column.name]
        keys.append((value is None) != column.nulls_first)
        value = (value is not None and isinstance(value, float) and math.isnan(value), value)
        keys.append(Reversed(value) if column.is_descending else Forward(value))
    return keys


class Forward:
    def __init__(self, value: tuple[bool, Any]) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forward) and self.comparable == other.comparable

    def __lt__(self, other: Forward) -> bool:
        return bool(self.comparable < other.comparable)

    @property
    def comparable(self) -> Any:
        is_nan, value = self.value
        return (is_nan,) if is_nan or value is None else (is_nan, value)


class Reversed(Forward):
    def __lt__(self, other: Forward) -> bool:
        return bool(other.comparable < self.comparable)


@pytest.mark.parametrize("is_append_only", [True, False], ids=["append-only", "retracting"])
@pytest.mark.parametrize("limit", [1, 3, 30])
@pytest.mark.parametrize("is_weak", [False, True], ids=["", "colliding hashes"])
def test_first_rows_equal_those_of_a_sort_after_every_cycle(limit: int, is_append_only: bool, is_weak: bool) -> None:
    chance = random.Random(f"{limit} {is_append_only} {is_weak}")
    for number, groups in enumerate([(), ("g",), ("g", "s")]):
        order = tuple(
            SortColumn(name, is_descending=chance.random() < 0.5, nulls_first=chance.random() < 0.5)
            for name in chance.sample(["n", "f", "s"], 2)
        )
        rank = "rank" if number % 2 else None
        fields = [*SCHEMA, *([pa.field("rank", pa.int32())] if rank else []), pa.field(WEIGHT, pa.int8())]
        state = StateConfig("", 0, shards=1 + number)
        total_order = (*order, SortColumn("id"))
        operator = TopNOperator(pa.schema(fields), state, groups, ("id",), total_order, limit, rank, is_append_only)
        store, result = MemoryRunStore(), AppliedChanges(("id",))
        rows = ChangingRows(chance, lambda: new_row(chance), is_append_only=is_append_only)
        for _ in range(40):
            changes = rows.change(chance.choice([1, 3, 30, 60]))
            table = to_table(changes, SCHEMA, {HASH: groups, ROW_HASH: ["id"]}, is_weak=is_weak)
            result.apply(store.run_cycle(operator, table))
            assert_same_rows(result.rows.values(), first_rows(rows, groups, total_order, limit, rank))


def first_rows(
    rows: ChangingRows, groups: tuple[str, ...], order: tuple[SortColumn, ...], limit: int, rank: str | None
) -> list[Row]:
    found: dict[Any, list[Row]] = {}
    for row in sorted(rows.rows.values(), key=lambda row: sort_key(row, order)):
        found.setdefault(tuple(row[name] for name in groups), []).append(row)
    return [
        row | ({rank: number} if rank else {})
        for group in found.values()
        for number, row in enumerate(group[:limit], 1)
    ]


def test_an_append_only_input_stores_only_the_first_rows() -> None:
    chance, groups = random.Random(5), ("g",)
    schema = pa.schema([*SCHEMA, pa.field(WEIGHT, pa.int8())])
    order = (SortColumn("n", is_descending=True), SortColumn("id"))
    operator = TopNOperator(schema, StateConfig("", 0), groups, ("id",), order, 2, None, is_append_only=True)
    store, rows = MemoryRunStore(), ChangingRows(chance, lambda: new_row(chance), is_append_only=True)
    for _ in range(30):
        store.run_cycle(operator, to_table(rows.change(100), SCHEMA, {HASH: groups, ROW_HASH: ["id"]}))
    assert store.row_count < 300
