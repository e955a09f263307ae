"""What tasks add up by themselves is what adding up event by event gives."""

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
from penstock.engine.arrow_csv import as_csv
from penstock.engine.worker import preaggregate
from penstock.engine.worker.json_columns import NUMBER
from penstock.engine.worker.preaggregate import BLOCKS, Combining, added_up, combined, combining_of
from penstock.engine.worker.read_config import META

FIELDS = pa.schema([("amount", NUMBER), ("n", pa.int64()), ("ratio", pa.float64()), ("who", pa.string())])
EVENTS = pa.schema([*META, *FIELDS])
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


def how(stream: Stream | None = None, late: str = "drop", **aggregates: Any) -> Combining | None:
    made = (stream or Stream.from_("orders")).window_tumbling(seconds=5, event_time="ts", late=late)
    defined = made.aggregate(aggregates or AGGREGATES)
    return combining_of(defined, FIELDS, defined.steps)


HUGE = Decimal("77777777777777777777.7")
amounts = st.one_of(st.none(), st.decimals(-1000, 1000, places=4), st.sampled_from([HUGE, -HUGE]))
events = st.lists(
    st.fixed_dictionaries(
        {
            "__partition": st.integers(1, 2),
            "__key": st.sampled_from([None, "", "ada", "bob"]),
            "__time": st.integers(-20 * SECOND, 20 * SECOND),
            "__bound": st.sampled_from([-(10**15), 0, 15 * SECOND]),
            "__redriven": st.booleans(),
            "amount": amounts,
            "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "ratio": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "who": st.none(),
        }
    ),
    max_size=12,
)


def expected(rows: list[dict[str, Any]], with_late: bool) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        start = row["__time"] // (5 * SECOND) * 5 * SECOND
        late = start + 5 * SECOND <= row["__bound"]
        refused = late and not with_late and not row["__redriven"]
        where = (row["__partition"], row["__offset"]) if refused else (None, None)
        found[(row["__key"] or "", start, start + 5 * SECOND, late, *where)].append(row)
    return found


def added(rows: list[Any]) -> Any:
    return sum(map(Decimal, rows)) if rows else None


def one_by_one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    known = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    return {
        "a0": len(rows),
        "a1": len(known["amount"]),
        "a2": added(known["amount"]),
        "a3": added(known["amount"]),
        "a3n": len(known["amount"]),
        "a4": min(known["n"], default=None),
        "a5": max(known["amount"], default=None),
        "a6": added(known["n"]),
        "a7": max(known["ratio"], default=None),
        "__p": max(known["__partition"]),
    }


def together(way: Combining, tasks: list[list[pa.Table]]) -> list[dict[str, Any]]:
    """What the driver makes of what the tasks hand on."""
    blocks = [block for tables in tasks for block in combined(way, iter(tables))]
    rows: list[dict[str, Any]] = added_up(way, pa.Table.from_batches(blocks, schema=BLOCKS)).to_pylist()
    return rows


@pytest.mark.parametrize("late", ["drop", "include"])
@settings(deadline=None)
@given(st.lists(st.lists(events, max_size=3), max_size=3))
def test_it_is_what_adding_up_one_by_one_gives(late: str, tasks: list[list[list[dict[str, Any]]]]) -> None:
    way = how(late=late)
    assert way is not None
    every = [row for batches in tasks for rows in batches for row in rows]
    for place, row in enumerate(every):
        row["__offset"] = place // 2  # an event may become two
    groups = expected(every, late == "include")
    wanted = {group: one_by_one(rows) for group, rows in groups.items()}
    tables = [[pa.Table.from_pylist(rows, schema=EVENTS) for rows in batches] for batches in tasks]
    # Room for 20 digits before the point.
    if any(abs(row["a2"] or 0) >= 10**20 for row in wanted.values()):
        with pytest.raises(OverflowError, match="more than 38 digits"):
            together(way, tables)
        return

    found = together(way, tables)

    assert len(found) == len(wanted)
    assert {tuple(row.pop(name) for name in preaggregate.GROUPS): row for row in found} == wanted


def test_events_of_a_key_and_window_become_one_row_whatever_table_they_came_in() -> None:
    way = how()
    assert way is not None
    row = {"__partition": 1, "__offset": 0, "__key": "ada", "__time": 0, "__bound": -1, "__redriven": False, "n": 1}
    table = pa.Table.from_pylist([row] * 1000, schema=EVENTS)

    [block] = combined(way, iter([table, table]))

    rows = pa.ipc.open_stream(block.column(0)[0].as_buffer()).read_all()
    assert rows.column("a0").to_pylist() == [2000]


@pytest.mark.parametrize("apart", [True, False])
def test_no_key_is_another_than_the_empty_text_only_where_the_stream_says_so(apart: bool) -> None:
    stream = dataclasses.replace(Stream.from_("orders").key_by("who"), null_apart=apart)
    way = how(stream, n="count(*)")
    assert way is not None
    row = {"__partition": 1, "__offset": 0, "__time": 0, "__bound": -1, "__redriven": False}
    tables = [
        pa.Table.from_pylist([{**row, "who": who} for who in some], schema=EVENTS)
        for some in ([None, "", "", "ada"], ['"', '""', "", None])
    ]

    found = {made["__k"]: made["a0"] for made in together(way, [[table] for table in tables])}

    if apart:
        assert found == {"": 2, '""': 3, "ada": 1, '"""': 1, '""""': 1}
    else:
        assert found == {"": 5, "ada": 1, '"': 1, '""': 1}


def test_a_task_hands_on_what_it_holds_when_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preaggregate, "_HELD", 10)
    way = how()
    assert way is not None
    row = {"__partition": 1, "__offset": 0, "__time": 0, "__bound": -1, "__redriven": False}
    tables = [pa.Table.from_pylist([{**row, "__key": f"{t} {i}"} for i in range(6)], schema=EVENTS) for t in range(5)]
    assert len(list(combined(way, iter(tables)))) == 3
    assert len(together(way, [tables])) == 30


@pytest.mark.parametrize(
    "aggregate",
    ["sum(amount * 2)", "sum(who.x)", "max(who)", "count_if(n > 3)", "count_distinct(n)", agg.sum(lambda e: e["n"])],
)
def test_what_is_more_than_a_field_is_left_to_spark(aggregate: Any) -> None:
    assert how(count=agg.count(), value=aggregate) is None


def test_a_key_that_is_a_field_of_text_is_that_field_and_any_other_is_left_to_spark() -> None:
    by_who = how(Stream.from_("orders").key_by("who"))
    assert by_who is not None
    assert by_who.key == "who"
    assert how(Stream.from_("orders").key_by("upper(who)")) is None
    assert how(Stream.from_("orders").key_by("n")) is None


def test_conditions_and_other_names_for_fields_come_before_adding_up() -> None:
    made = Stream.from_("orders").filter("n > 1").map("amount AS paid, who AS buyer, n").filter("buyer = 'ada'")
    way = how(made.key_by("buyer"), total="sum(paid)")
    assert way is not None
    row = {"__partition": 1, "__offset": 0, "__key": "-", "__time": 0, "__bound": -1, "__redriven": False}
    rows = [
        {**row, "n": n, "who": who, "amount": Decimal(n or 0)} for n in (1, 2, 3, None) for who in ("ada", "bob", None)
    ]

    [found] = together(way, [[pa.Table.from_pylist(rows, schema=EVENTS)]])

    assert (found["__k"], found["a0"]) == ("ada", 5)


@pytest.mark.parametrize(
    "steps",
    [
        lambda made: made.filter("n + 1 > 2"),
        lambda made: made.filter("n > 1").map("n * 2 AS n"),
        lambda made: made.sql("SELECT n FROM stream"),
        lambda made: made.map("n AS m"),
    ],
)
def test_steps_that_compute_are_left_to_spark(steps: Any) -> None:
    assert how(steps(Stream.from_("orders")), most="max(n)") is None


def test_an_empty_chunk_leaves_nothing_in_what_is_copied() -> None:
    column = pa.chunked_array([pa.array([], pa.int64()), pa.array([7])])
    assert as_csv(pa.table({"key": column, "n": [1]})) == b"7,1\n"
