"""Pre-aggregated rows equal aggregates over the single events."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Stream, agg
from penstock.engine.compile.preaggregation import plan_preaggregation
from penstock.engine.worker.json_columns import DEFAULT_NUMBER
from penstock.engine.worker.preaggregate import (
    BLOCK_SCHEMA,
    GROUP_COLUMNS,
    Preaggregation,
    merge_blocks,
    preaggregate_batches,
)
from penstock.engine.worker.read_config import SYSTEM_COLUMNS

FIELDS = pa.schema([("amount", DEFAULT_NUMBER), ("n", pa.int64()), ("ratio", pa.float64()), ("who", pa.string())])
EVENTS = pa.schema([*SYSTEM_COLUMNS, *FIELDS])
AGGREGATES = {
    "count": agg.count(),
    "paid": "count(amount)",
    "total": "sum(amount)",
    "mean": "avg(amount)",
    "least": "min(n)",
    "most": "max(amount)",
    "whole": "sum(n)",
    "part": "max(ratio)",
}
SECOND = 1_000_000


def plan(stream: Stream | None = None, late: str = "drop", **aggregates: Any) -> Preaggregation:
    windows = (stream or Stream.from_("orders")).window_tumbling(seconds=5, event_time="ts", late=late)
    aggregated = windows.aggregate(aggregates or AGGREGATES)
    planned = plan_preaggregation(aggregated, FIELDS, aggregated.steps)
    assert planned is not None
    return planned


HUGE = Decimal("77777777777777777777.7")
amounts = st.one_of(st.none(), st.decimals(-1000, 1000, places=4), st.sampled_from([HUGE, -HUGE]))
events = st.lists(
    st.fixed_dictionaries(
        {
            "__partition": st.integers(1, 2),
            "__key": st.sampled_from([None, "", "ada", "bob"]),
            "__time": st.integers(-20 * SECOND, 20 * SECOND),
            "__watermark": st.sampled_from([-(10**15), 0, 15 * SECOND]),
            "__redriven": st.booleans(),
            "amount": amounts,
            "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "ratio": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "who": st.none(),
        }
    ),
    max_size=12,
)


def group_events(rows: list[dict[str, Any]], with_late: bool) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        start = row["__time"] // (5 * SECOND) * 5 * SECOND
        late = start + 5 * SECOND <= row["__watermark"]
        is_rejected = late and not with_late and not row["__redriven"]
        event = (row["__partition"], row["__offset"]) if is_rejected else (None, None)
        groups[(row["__key"] or "", start, start + 5 * SECOND, late, *event)].append(row)
    return groups


def exact_sum(values: list[Any]) -> Any:
    return sum(map(Decimal, values)) if values else None


def aggregate_events(rows: list[dict[str, Any]]) -> dict[str, Any]:
    known = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    return {
        "a0": len(rows),
        "a1": len(known["amount"]),
        "a2": exact_sum(known["amount"]),
        "a3": exact_sum(known["amount"]),
        "a3n": len(known["amount"]),
        "a4": min(known["n"], default=None),
        "a5": max(known["amount"], default=None),
        "a6": exact_sum(known["n"]),
        "a7": max(known["ratio"], default=None),
        "__window_partition": max(known["__partition"]),
    }


def run_tasks(preaggregation: Preaggregation, tasks: list[list[pa.Table]]) -> list[dict[str, Any]]:
    """The rows that the driver merges from the blocks of all tasks."""
    blocks = [block for tables in tasks for block in preaggregate_batches(preaggregation, tables)]
    merged = merge_blocks(preaggregation, pa.Table.from_batches(blocks, schema=BLOCK_SCHEMA))
    rows: list[dict[str, Any]] = merged.to_pylist()
    return rows


@pytest.mark.parametrize("late", ["drop", "include"])
@settings(deadline=None)
@given(st.lists(st.lists(events, max_size=3), max_size=3))
def test_preaggregates_equal_aggregates_over_events(late: str, tasks: list[list[list[dict[str, Any]]]]) -> None:
    preaggregation = plan(late=late)
    every = [row for batches in tasks for rows in batches for row in rows]
    for index, row in enumerate(every):
        row["__offset"] = index // 2  # an event can have two rows
    groups = group_events(every, late == "include")
    expected = {group: aggregate_events(rows) for group, rows in groups.items()}
    tables = [[pa.Table.from_pylist(rows, schema=EVENTS) for rows in batches] for batches in tasks]
    rows = run_tasks(preaggregation, tables)

    assert len(rows) == len(expected)
    assert {tuple(row.pop(name) for name in GROUP_COLUMNS): row for row in rows} == expected


@pytest.mark.parametrize("late_time", [0, -(10**12)])
def test_a_sum_may_have_more_digits_than_a_decimal(late_time: int) -> None:
    number = Decimal("99999999999999999999.999999999999999999")
    row = {"__partition": 1, "__offset": 0, "__key": "ada", "__time": 0, "__watermark": 0, "__redriven": False, "n": 1}
    rows = [{**row, "__time": late_time if n == 0 else 0, "amount": number} for n in range(4)]
    tables = [pa.Table.from_pylist(part, schema=EVENTS) for part in (rows[:2], rows[2:])]
    merged = run_tasks(plan(late="include"), [[table] for table in tables])
    assert sum(row["a2"] for row in merged) == number * 4


def test_a_task_merges_events_of_different_tables() -> None:
    row = {"__partition": 1, "__offset": 0, "__key": "ada", "__time": 0, "__watermark": -1, "__redriven": False, "n": 1}
    table = pa.Table.from_pylist([row] * 1000, schema=EVENTS)

    [block] = preaggregate_batches(plan(), [table, table])

    rows = pa.ipc.open_stream(block.column(0)[0].as_buffer()).read_all()
    assert rows.column("a0").to_pylist() == [2000]


@pytest.mark.parametrize("is_distinguished", [True, False])
def test_null_key_and_empty_key_are_distinguished_only_on_demand(is_distinguished: bool) -> None:
    stream = dataclasses.replace(Stream.from_("orders").key_by("who"), distinguishes_null_key=is_distinguished)
    row = {"__partition": 1, "__offset": 0, "__time": 0, "__watermark": -1, "__redriven": False}
    tables = [
        pa.Table.from_pylist([{**row, "who": key} for key in keys], schema=EVENTS)
        for keys in ([None, "", "", "ada"], ['"', '""', "", None])
    ]

    counts = {row["__group_key"]: row["a0"] for row in run_tasks(plan(stream, n="count(*)"), [[t] for t in tables])}

    if is_distinguished:
        assert counts == {"": 2, '""': 3, "ada": 1, '"""': 1, '""""': 1}
    else:
        assert counts == {"": 5, "ada": 1, '"': 1, '""': 1}


def test_a_task_returns_a_block_when_its_buffer_is_full() -> None:
    preaggregation = plan()
    row = {"__partition": 1, "__offset": 0, "__time": 0, "__watermark": -1, "__redriven": False}
    tables = [pa.Table.from_pylist([{**row, "__key": f"{t} {i}"} for i in range(6)], schema=EVENTS) for t in range(5)]
    blocks = list(preaggregate_batches(preaggregation, tables, max_buffered_rows=10))
    assert len(blocks) == 3
    assert merge_blocks(preaggregation, pa.Table.from_batches(blocks, schema=BLOCK_SCHEMA)).num_rows == 30


def test_filters_and_renamed_fields_apply_before_preaggregation() -> None:
    stream = Stream.from_("orders").filter("n > 1").map("amount AS paid, who AS buyer, n").filter("buyer = 'ada'")
    row = {"__partition": 1, "__offset": 0, "__key": "-", "__time": 0, "__watermark": -1, "__redriven": False}
    rows = [
        {**row, "n": n, "who": who, "amount": Decimal(n or 0)} for n in (1, 2, 3, None) for who in ("ada", "bob", None)
    ]

    preaggregation = plan(stream.key_by("buyer"), total="sum(paid)")
    [result] = run_tasks(preaggregation, [[pa.Table.from_pylist(rows, schema=EVENTS)]])

    assert (result["__group_key"], result["a0"]) == ("ada", 5)
