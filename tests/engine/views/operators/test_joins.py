"""Joins of changing inputs equal nested loops over the rows that are left, after every cycle."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import ROW_HASH, StatefulOperator
from penstock.engine.views.operators.join import JoinOperator
from penstock.engine.views.operators.join_side import NULL_KEY, SIDE, UNMATCHED, JoinSide
from penstock.engine.views.operators.semi_join import SemiJoinOperator
from penstock.stream.views.view_plan import JoinKind
from tests.engine.state.memory_store import MemoryRunStore
from tests.engine.views.operators.changing_rows import AppliedChanges, ChangingRows, Row, assert_same_rows, to_table

KEYS = ("k", "j")
LEFT, RIGHT = ("l:id", "l:v"), ("r:id", "r:v")
FIELDS: dict[str, Any] = {name: pa.string() for name in KEYS}
FIELDS |= {"l:id": pa.int64(), "l:v": pa.list_(pa.int64()), "r:id": pa.int64(), "r:v": pa.string()}
SCHEMA = pa.schema([*FIELDS.items(), (SIDE, pa.int8()), (NULL_KEY, pa.bool_())])


def new_row(chance: random.Random) -> Row:
    return {"k": chance.choice([None, "a", "b", "c", "d"]), "j": chance.choice("xy"), "v": chance.randrange(3)}


def as_input(row: Row, side: int) -> Row:
    """The row in a table with the columns of both sides."""
    prefix = "lr"[side]
    value = [row["v"]] * row["v"] if side == 0 else str(row["v"])
    empty = dict.fromkeys(FIELDS)
    is_null = row["k"] is None
    return empty | {
        **{name: row[name] for name in KEYS},
        **{f"{prefix}:id": row["id"], f"{prefix}:v": value, SIDE: side, NULL_KEY: is_null},
    }


def operator_of(kind: JoinKind, appends: tuple[bool, bool], shards: int) -> StatefulOperator:
    left, right = (
        JoinSide(number, KEYS, names, names[:1], appends[number]) for number, names in enumerate((LEFT, RIGHT))
    )
    state = StateConfig("", 0, shards=shards)
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        output = pa.schema([*((name, FIELDS[name]) for name in LEFT), (WEIGHT, pa.int8())])
        return SemiJoinOperator(output, state, kind is JoinKind.ANTI, KEYS, left)
    fields = [(name, FIELDS[name]) for name in (*LEFT, *RIGHT)]
    output = pa.schema([*fields, (UNMATCHED, pa.int8()), (WEIGHT, pa.int8())])
    return JoinOperator(output, state, kind, KEYS, left, right)


def expected_rows(kind: JoinKind, left: list[Row], right: list[Row]) -> list[Row]:
    ours, theirs = [as_input(row, 0) for row in left], [as_input(row, 1) for row in right]

    def matches(a: Row, b: Row) -> bool:
        return all(a[name] is not None and a[name] == b[name] for name in KEYS)

    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        wanted = kind is JoinKind.SEMI
        return [{n: a[n] for n in LEFT} for a in ours if any(matches(a, b) for b in theirs) == wanted]
    pairs = [(a, b) for a in ours for b in theirs if matches(a, b)]
    rows = [{**{n: a[n] for n in LEFT}, **{n: b[n] for n in RIGHT}, UNMATCHED: 0} for a, b in pairs]
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        alone = [a for a in ours if not any(matches(a, b) for b in theirs)]
        rows += [{**{n: a[n] for n in LEFT}, **dict.fromkeys(RIGHT), UNMATCHED: 1} for a in alone]
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        alone = [b for b in theirs if not any(matches(a, b) for a in ours)]
        rows += [{**dict.fromkeys(LEFT), **{n: b[n] for n in RIGHT}, UNMATCHED: 2} for b in alone]
    return rows


def is_filtered(kind: JoinKind, side: int, row: Row) -> bool:
    """Whether rows with a null key are dropped before the operator, since they can have no result."""
    keeps = {
        JoinKind.LEFT: (0,),
        JoinKind.ANTI: (0,),
        JoinKind.RIGHT: (1,),
        JoinKind.FULL: (0, 1),
    }.get(kind, ())
    return row["k"] is None and side not in keeps


@pytest.mark.parametrize("kind", list(JoinKind))
@pytest.mark.parametrize("appends", [(True, True), (True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("is_weak", [False, True], ids=["", "colliding hashes"])
def test_results_equal_nested_loops_after_every_cycle(
    kind: JoinKind, appends: tuple[bool, bool], is_weak: bool
) -> None:
    chance = random.Random(f"{kind} {appends} {is_weak}")
    shards = chance.choice([1, 3])
    operator, store = operator_of(kind, appends, shards), MemoryRunStore()
    sides = [ChangingRows(chance, lambda: new_row(chance), is_append_only=each) for each in appends]
    key = ("l:id",) if kind in (JoinKind.SEMI, JoinKind.ANTI) else ("l:id", "r:id")
    result = AppliedChanges(key)
    for _ in range(25):
        changes = [
            (as_input(row, side), weight)
            for side in (0, 1)
            for row, weight in sides[side].change(chance.choice([0, 1, 2, 8]))
            if not is_filtered(kind, side, row)
        ]
        if changes:
            hashes = {HASH: KEYS, ROW_HASH: ["l:id", "r:id"]}
            result.apply(store.run_cycle(operator, to_table(changes, SCHEMA, hashes, is_weak=is_weak)))
        left, right = (list(side.rows.values()) for side in sides)
        assert_same_rows(result.rows.values(), expected_rows(kind, left, right))
