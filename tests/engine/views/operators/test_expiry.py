"""Groups without a change for the time to live expire, on a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.kernels.order_keys import SortColumn
from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.aggregate import AggregateColumns
from penstock.engine.views.operators.base import ROW_HASH, StatefulOperator
from penstock.engine.views.operators.group_items import GroupItems
from penstock.engine.views.operators.join import JoinOperator
from penstock.engine.views.operators.percentiles import Percentiles
from penstock.engine.views.operators.semi_join import SemiJoinOperator
from penstock.engine.views.operators.top_n import TopNOperator
from penstock.stream.views.view_plan import JoinKind
from tests.engine.state.memory_store import MemoryRunStore
from tests.engine.views.operators import test_aggregate as aggregates
from tests.engine.views.operators import test_joins as joins
from tests.engine.views.operators import test_top_n as top_n
from tests.engine.views.operators.changing_rows import AppliedChanges, ChangingRows, Row, assert_same_rows, to_table

TTL_US = 5


class Expiry:
    """Cycles of an operator at random times. The rows of groups that expire leave the inputs."""

    def __init__(
        self,
        chance: random.Random,
        operator: StatefulOperator,
        inputs: Sequence[ChangingRows],
        group: Callable[[Row], Any],
        to_input: Callable[[list[tuple[Row, int, int]]], pa.Table],
        key: Sequence[str],
    ) -> None:
        self._chance, self._inputs, self._group, self._to_input = chance, inputs, group, to_input
        self._operator = replace(operator, state=replace(operator.state, ttl_us=TTL_US))
        self.store, self.result = MemoryRunStore(), AppliedChanges(key)
        self._now = 1
        self._changed: dict[Any, int] = {}

    def cycle(self) -> None:
        self._now += self._chance.choice([0, 1, 3])
        is_expiry = self._chance.random() < 0.4
        changes = [
            (row, weight, side)
            for side, rows in enumerate(self._inputs)
            # The events of a view are not read in a cycle that expires groups. The rows of its operators may change.
            for row, weight in (
                [] if is_expiry and rows.is_append_only else rows.change(self._chance.choice([0, 1, 4]))
            )
        ]
        self._run(changes, is_expiry)

    def end(self) -> None:
        """Let all groups expire."""
        self._now += TTL_US
        self._run([], True)

    def _run(self, changes: list[tuple[Row, int, int]], is_expiry: bool) -> None:
        groups = {self._group(row) for row, _, _ in changes} - {None}
        self._changed |= dict.fromkeys(groups, self._now)
        if changes or is_expiry:
            table = self._to_input(changes)
            self.result.apply(self.store.run_cycle(self._operator, table, self._now, is_expiry=is_expiry))
        if is_expiry:
            expired = {group for group, at in self._changed.items() if at <= self._now - TTL_US}
            for group in expired:
                del self._changed[group]
            for rows in self._inputs:
                if rows.is_append_only:
                    left = {number: row for number, row in rows.rows.items() if self._group(row) not in expired}
                    rows.rows = left


@pytest.mark.parametrize("groups", [(), ("g",), ("g", "h")], ids=str)
@pytest.mark.parametrize("is_weak", [False, True], ids=["", "colliding hashes"])
@pytest.mark.parametrize("shards", [1, 3])
def test_groups_of_aggregates_expire(groups: tuple[str, ...], is_weak: bool, shards: int) -> None:
    chance = random.Random(f"{groups} {is_weak} {shards}")
    columns = aggregates.aggregate_columns(groups, is_append_only=True)
    items = GroupItems(100, groups, ("m",), "h_m", None)
    percentiles = Percentiles(items, (("p50_m", 0.5),), aggregates.SCHEMA.field("m").type)
    columns = AggregateColumns(groups, columns.accumulators, columns.distinct, (), (percentiles,))
    rows = ChangingRows(chance, lambda: aggregates.new_row(chance), is_append_only=True)
    expiry = Expiry(
        chance,
        aggregates.operator_of(columns, shards),
        [rows],
        lambda row: tuple(aggregates.float_key(row[name]) for name in groups),
        lambda changes: aggregates.input_table([(row, w) for row, w, _ in changes], groups, is_weak=is_weak),
        groups,
    )
    for _ in range(30):
        expiry.cycle()
        found = aggregates.groups_of(list(rows.rows.values()), groups)
        expected = [aggregates.expected_row(columns, each) for each in found]
        assert_same_rows(expiry.result.rows.values(), expected, tolerance=1e-9)
    expiry.end()
    assert not expiry.result.rows
    assert not expiry.store.row_count


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("groups", [(), ("g",), ("g", "s")], ids=str)
@pytest.mark.parametrize("is_weak", [False, True], ids=["", "colliding hashes"])
def test_groups_of_first_rows_expire(limit: int, groups: tuple[str, ...], is_weak: bool) -> None:
    chance = random.Random(f"{limit} {groups} {is_weak}")
    order = (SortColumn("n", is_descending=True), SortColumn("id"))
    schema = pa.schema([*top_n.SCHEMA, pa.field("rank", pa.int32()), pa.field(WEIGHT, pa.int8())])
    operator = TopNOperator(
        schema, StateConfig("", 0, shards=2), groups, ("id",), order, limit, "rank", is_append_only=True
    )
    rows = ChangingRows(chance, lambda: top_n.new_row(chance), is_append_only=True)
    hashes = {HASH: groups, ROW_HASH: ["id"]}
    expiry = Expiry(
        chance,
        operator,
        [rows],
        lambda row: tuple(row[name] for name in groups),
        lambda changes: to_table([(row, w) for row, w, _ in changes], top_n.SCHEMA, hashes, is_weak=is_weak),
        ("id",),
    )
    for _ in range(40):
        expiry.cycle()
        assert_same_rows(expiry.result.rows.values(), top_n.first_rows(rows, groups, order, limit, "rank"))
    expiry.end()
    assert not expiry.store.row_count


@pytest.mark.parametrize("kind", list(JoinKind))
@pytest.mark.parametrize("appends", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("is_weak", [False, True], ids=["", "colliding hashes"])
def test_join_keys_expire(kind: JoinKind, appends: tuple[bool, bool], is_weak: bool) -> None:
    chance = random.Random(f"{kind} {appends} {is_weak}")
    operator = joins.operator_of(kind, (False, False), chance.choice([1, 3]))
    if isinstance(operator, JoinOperator):
        left, right = (
            replace(side, expires=each) for side, each in zip((operator.left, operator.right), appends, strict=True)
        )
        operator = replace(operator, left=left, right=right)
    elif isinstance(operator, SemiJoinOperator):
        operator = replace(operator, left=replace(operator.left, expires=appends[0]), other_expires=appends[1])
    sides = [ChangingRows(chance, lambda: joins.new_row(chance), is_append_only=each) for each in appends]

    def to_input(changes: list[tuple[Row, int, int]]) -> pa.Table:
        rows = [(joins.as_input(r, side), w) for r, w, side in changes if not joins.is_filtered(kind, side, r)]
        return to_table(rows, joins.SCHEMA, {HASH: joins.KEYS, ROW_HASH: ["l:id", "r:id"]}, is_weak=is_weak)

    expiry = Expiry(
        chance,
        operator,
        sides,
        lambda row: None if row["k"] is None else (row["k"], row["j"]),
        to_input,
        ("l:id",) if kind in (JoinKind.SEMI, JoinKind.ANTI) else ("l:id", "r:id"),
    )
    for _ in range(40):
        expiry.cycle()
        left_rows, right_rows = (list(side.rows.values()) for side in sides)
        assert_same_rows(expiry.result.rows.values(), joins.expected_rows(kind, left_rows, right_rows))
    expiry.end()
    if all(appends):
        assert not expiry.store.row_count
