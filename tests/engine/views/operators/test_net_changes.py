"""The changes of a view since the last cycle are netted: at most one row of a key disappears, and one appears."""

from __future__ import annotations

import random

import pyarrow as pa

from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.net_changes import SEQUENCE, NetChanges
from tests.engine.views.operators.changing_rows import AppliedChanges, ChangingRows, Row, assert_same_rows, to_table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.string())), (SEQUENCE, pa.int64())])


def test_net_changes_lead_to_the_same_rows() -> None:
    chance = random.Random(3)
    function = NetChanges(pa.schema([*(SCHEMA.field(name) for name in ("id", "v")), (WEIGHT, pa.int8())]), ("id",))
    rows = ChangingRows(chance, lambda: {"v": ["a"] * chance.randrange(3)})
    result = AppliedChanges(("id",))
    sequence = 0
    for _ in range(50):
        changes: list[tuple[Row, int]] = []
        for _ in range(chance.randrange(1, 5)):
            for row, weight in sorted(rows.change(4), key=lambda change: change[1]):
                sequence += 1
                changes.append((row | {SEQUENCE: sequence}, weight))
        chance.shuffle(changes)
        table = to_table(changes, SCHEMA, {HASH: ["id"]}, is_weak=True)
        for batch in function(iter(table.to_batches())):
            result.apply(pa.Table.from_batches([batch]))
        assert_same_rows(result.rows.values(), rows.rows.values())


def test_a_row_that_comes_and_goes_and_one_that_changes_back_are_no_changes() -> None:
    function = NetChanges(pa.schema([("id", pa.int64()), (WEIGHT, pa.int8())]), ("id",))
    weights = [(1, 1), (1, -1), (2, -1), (2, 1), (3, 1), (4, -1)]
    table = pa.table(
        {
            "id": [row_id for row_id, _ in weights],
            SEQUENCE: list(range(len(weights))),
            HASH: [0] * len(weights),
            WEIGHT: pa.array([weight for _, weight in weights], pa.int8()),
        }
    )
    found = [row for batch in function(iter(table.to_batches())) for row in batch.to_pylist()]
    assert {(row["id"], row[WEIGHT]) for row in found} == {(3, 1), (4, -1)}
