"""What tasks add up by themselves is what adding up event by event gives."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Stream, agg
from penstock.engine import combining
from penstock.engine.combining import Combining, combined, combining_of
from penstock.engine.fields import NUMBER
from penstock.engine.reading import META

FIELDS = pa.schema([("amount", NUMBER), ("n", pa.int64()), ("ratio", pa.float64()), ("who", pa.string())])
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
    return combining_of(made.aggregate(aggregates or AGGREGATES), FIELDS)


amounts = st.one_of(st.none(), st.decimals(-1000, 1000, places=4), st.just(Decimal("77777777777777777777.7")))
events = st.lists(
    st.fixed_dictionaries(
        {
            "__partition": st.integers(1, 2),
            "__offset": st.integers(0, 10**6),
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
    max_size=40,
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


def known(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def added(rows: list[Any]) -> Any:
    return sum(map(Decimal, rows)) if rows else None


@pytest.mark.parametrize("late", ["drop", "include"])
@settings(deadline=None)
@given(st.lists(events, max_size=4))
def test_it_is_what_adding_up_one_by_one_gives(late: str, batches: list[list[dict[str, Any]]]) -> None:
    way = how(late=late)
    assert way is not None
    schema = pa.schema([*META, *FIELDS])
    out = pa.Table.from_batches(
        list(combined(way, (pa.Table.from_pylist(some, schema=schema) for some in batches))), schema=way.schema
    )
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in out.to_pylist():
        found[tuple(row[name] for name in combining.GROUPS)].append(row)

    wanted = expected([row for some in batches for row in some], late == "include")
    assert found.keys() == wanted.keys()
    for group, rows in wanted.items():
        # Spark adds up what is left apart.
        partials = found[group]
        assert sum(known(partials, "a0")) == len(rows)
        assert sum(known(partials, "a1")) == sum(known(partials, "a3n")) == len(known(rows, "amount"))
        assert added(known(partials, "a2")) == added(known(partials, "a3")) == added(known(rows, "amount"))
        assert min(known(partials, "a4"), default=None) == min(known(rows, "n"), default=None)
        assert max(known(partials, "a5"), default=None) == max(known(rows, "amount"), default=None)
        assert added(known(partials, "a6")) == added(known(rows, "n"))
        assert max(known(partials, "a7"), default=None) == max(known(rows, "ratio"), default=None)
        assert max(known(partials, "__p")) == max(known(rows, "__partition"))


def test_events_of_a_key_and_window_become_one_row_whatever_table_they_came_in() -> None:
    way = how()
    assert way is not None
    row = {"__partition": 1, "__offset": 0, "__key": "ada", "__time": 0, "__bound": -1, "__redriven": False, "n": 1}
    table = pa.Table.from_pylist([row] * 1000, schema=pa.schema([*META, *FIELDS]))

    [batch] = combined(way, iter([table, table]))

    assert batch.num_rows == 1
    assert batch.column("a0").to_pylist() == [2000]


def test_a_task_hands_on_what_it_holds_when_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "_HELD", 10)
    way = how()
    assert way is not None
    row = {"__partition": 1, "__offset": 0, "__time": 0, "__bound": -1, "__redriven": False}
    tables = [
        pa.Table.from_pylist([{**row, "__key": f"{t} {i}"} for i in range(6)], schema=pa.schema([*META, *FIELDS]))
        for t in range(5)
    ]
    assert [batch.num_rows for batch in combined(way, iter(tables))] == [12, 12, 6]


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
