"""Each aggregate equals the same aggregate in Python, whatever the cycles are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from penstock import agg
from tests.engine import oracle
from tests.engine.oracle import OracleEvent
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, counted, stream

ALL: dict[str, Any] = {
    "n": agg.count(),
    "with_amount": "count(amount)",
    "total": "sum(amount)",
    "lowest": agg.min("amount"),
    "highest": agg.max("amount"),
    "average": "avg(amount)",
    "spread": "stddev(amount)",
    "opening": "first(amount)",
    "closing": "last(kind)",
    "least_kind": "min(kind)",
    "large": agg.count_if("amount > 50"),
    "kinds": "count(DISTINCT kind)",
    "about": "approx_distinct(kind)",
    "amounts": "count_distinct(amount)",
    "median": "percentile(amount, 0.5)",
    "p99": agg.percentile("amount", 0.99),
    "favourites": agg.top_k("kind", 2),
}


def check(row: dict[str, Any], events: Sequence[OracleEvent]) -> None:
    """Check the row of a window, from a view or from the sink, against its events."""
    amounts = [Decimal(a) for e in events if (a := e.data.get("amount")) is not None]
    kinds = [k for e in events if (k := e.data.get("kind")) is not None]
    expected = {
        "n": len(events),
        "with_amount": len(amounts),
        "total": oracle.total(amounts),
        "lowest": min(amounts, default=None),
        "highest": max(amounts, default=None),
        "average": oracle.mean(amounts),
        "opening": oracle.earliest(events, "amount"),
        "closing": oracle.latest(events, "kind"),
        "least_kind": min(kinds, default=None, key=str.encode),
        "large": sum(amount > 50 for amount in amounts),
        "kinds": len(set(kinds)),
        "about": len(set(kinds)),
        "amounts": len(set(amounts)),
        "favourites": oracle.top_values(kinds, 2),
    }
    assert {name: row[name] for name in expected} == expected
    deviation = oracle.standard_deviation(amounts)
    assert (None if row["spread"] is None else float(row["spread"])) == (
        None if deviation is None else pytest.approx(deviation, rel=1e-9, abs=1e-9)
    )
    assert oracle.is_percentile(_double(row["median"]), amounts, 0.5)
    assert oracle.is_percentile(_double(row["p99"]), amounts, 0.99)


def _double(value: Any) -> float | None:
    return None if value is None else float(value)


@pytest.mark.parametrize("most", [7, 1000])
def test_every_aggregate_equals_plain_python(bench: Bench, most: int) -> None:
    dice = random.Random(most)
    bench.queue(partitions=3)
    for start in (0, 60):
        bench.push(
            (
                dice.choice("abc"),
                {
                    "ts": T0 + dice.randrange(3600),
                    "amount": None if dice.random() < 0.1 else Decimal(dice.randrange(-3000, 9000)) / 100,
                    **({"kind": dice.choice(["x", "y", "zé", "Ω'"])} if dice.random() < 0.9 else {}),
                },
            )
            for _ in range(start, start + 60)
        )
    made = stream().window_tumbling(
        seconds=3600, event_time="ts", allowed_lateness_seconds=3600, idle_flush_seconds=NEVER_IDLE
    )
    bench.run(made.aggregate(ALL).to("totals"), max_events_per_cycle=most)

    rows = bench.by_window()
    emitted = {event["key"]: event for event in bench.emitted()}
    expected = oracle.compute_windows(
        [_at(e, e.data["ts"]) for e in bench.seen()], oracle.tumbling(3600), lateness=3_600_000_000
    )
    assert rows.keys() == expected.windows.keys()
    for place, events in expected.windows.items():
        check(rows[place], events)
        check(emitted[place[0]], events)


def _at(event: OracleEvent, seconds: int) -> OracleEvent:
    return OracleEvent(event.partition, event.offset, event.key, seconds * 1_000_000, event.data)


def test_sums_of_decimals_are_exact(bench: Bench) -> None:
    cases = {
        "0.3": ["0.1", "0.2"],
        "1.000000000000000001": ["0.000000000000000001", "1"],
        "10000000000000000000": ["9999999999999999999", "1"],
        "1002.5": ["1e3", "2.50", "-0.0"],
        "0.999999999999999999": ["19999999999999999999.999999999999999999", "-19999999999999999999"],
        "101.000000000000000001": ["1E-18", "1e+2", "100e-2"],
        "-0.1": ["-0.1", "0"],
    }
    bench.queue()
    for key, amounts in cases.items():
        lines = [f'{{"k": "{key}", "ts": {T0}, "amount": {amount}}}' for amount in amounts]
        bench.penstock.queue("orders").push_ndjson("\n".join(lines).encode(), key_field="k")
    bench.run(counted(stream()).to("totals"))

    assert bench.letters() == []
    assert bench.by_key("total") == {key: Decimal(key) for key in cases}
    assert {event["key"]: event["total"] for event in bench.emitted()} == {key: Decimal(key) for key in cases}


@pytest.mark.parametrize(
    "made",
    [
        stream().filter(lambda event: event["amount"] > 0),
        stream().map(lambda event: {**event, "more": 1}),
        stream().filter("amount > 0").filter(lambda event: event["amount"] > 0),
        stream().key_by(lambda event: event["who"]),
    ],
)
def test_sums_are_exact_after_python_functions(bench: Bench, made: Any) -> None:
    bench.queue(partitions=1)
    amounts = ["12345678901234567.891", "0.123456789012345678", "0.1", "0.2", "99999999999999999999"]
    lines = [f'{{"ts": {T0}, "who": "k", "amount": {amount}}}' for amount in amounts]
    bench.penstock.queue("orders").push_ndjson("\n".join(lines).encode(), key_field="who")
    bench.run(counted(made))

    assert bench.letters() == []
    assert bench.by_key("total") == {"k": oracle.total(list(map(Decimal, amounts)))}


def test_sums_of_many_large_numbers_are_exact(bench: Bench) -> None:
    bench.queue()
    amount = Decimal("77777777777777777777.777777777777777777")
    bench.push(("k", {"ts": T0, "amount": amount}) for _ in range(4))
    bench.run(counted(stream()))

    assert bench.by_key("total") == {"k": oracle.total([amount] * 4)}
    assert bench.letters() == []


def test_a_product_of_fields_is_exact(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"ts": T0, "price": Decimal("1.2345678"), "quantity": 3})])
    made = stream().window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"total": "sum(price * quantity)"}))

    assert bench.by_key("total") == {"k": Decimal("3.7037034")}


def test_a_field_can_be_declared_as_double(bench: Bench) -> None:
    bench.queue()
    bench.push(("k", {"ts": T0, "amount": amount}) for amount in (0.1, 0.2, 1e300))
    bench.run(counted(stream(schema={"amount": "double"})))

    assert bench.by_key("total") == {"k": 1e300}


def test_a_mean_has_the_28_digits_of_pythons_decimal(bench: Bench) -> None:
    cases = [
        ["1", "1", "0"],
        ["2", "2", "1"],
        ["1000", "1000", "1"],
        ["0.001", "0.001", "0.002"],
        ["999.999999999999999999", "999.999999999999999999", "999.999999999999999998"],
        ["-99999999999999999999", "0", "0"],
        ["0", "0"],
    ]
    bench.queue()
    for key, case in enumerate(cases):
        bench.push((str(key), {"ts": T0, "amount": Decimal(amount)}) for amount in case)
    made = stream().window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"average": "avg(amount)"}))

    assert bench.by_key("average") == {str(i): oracle.mean(list(map(Decimal, case))) for i, case in enumerate(cases)}


def test_many_distinct_values_are_estimated(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push(("k", {"ts": T0, "visitor": f"v{i}"}) for i in range(5000))
    made = stream().window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"about": "approx_distinct(visitor)"}), max_events_per_cycle=2000)

    assert bench.by_key("about")["k"] == pytest.approx(5000, rel=0.1)


@pytest.mark.parametrize("most", [3, 100_000])
def test_percentiles_are_exact_for_few_values_and_close_for_many(bench: Bench, most: int) -> None:
    cases: dict[str, list[float]] = {
        "few": [266, 1005, 1069, 2475],
        "small": [1e-90, 2e-90, 4e-120, 5e-324, -0.0, 0.0],
        "many": [-(1.01**n) for n in range(-600, 600)] if most > 3 else [7.25],
    }
    bench.queue(partitions=1)
    for key, values in cases.items():
        bench.push((key, {"ts": T0, "x": value}) for value in values)
    made = stream(schema={"x": "double"}).window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    fractions = {f"p{index}": fraction for index, fraction in enumerate((0, 0.5, 0.75, 0.9, 1))}
    bench.run(
        made.aggregate({name: agg.percentile("x", fraction) for name, fraction in fractions.items()}),
        max_events_per_cycle=most,
    )
    for row in bench.rows():
        for name, fraction in fractions.items():
            assert oracle.is_percentile(row[name], cases[row["key"]], fraction)


def test_an_aggregate_can_have_a_function_as_argument(bench: Bench) -> None:
    bench.queue()
    bench.push(("k", {"ts": T0, "name": name}) for name in ("ada", "grace"))
    made = stream().window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"letters": agg.sum(lambda event: len(event["name"]))}))

    assert bench.by_key("letters") == {"k": 8}


def test_booleans_lists_and_objects_keep_their_types(bench: Bench) -> None:
    bench.queue()
    bench.push(
        [
            ("k", {"ts": T0, "ok": True, "tags": ["a", "b"], "who": {"name": "ada", "age": 36}}),
            ("k", {"ts": T0 + 1, "ok": False, "tags": [], "who": {"name": None}}),
        ]
    )
    made = stream().window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"ok": "first(ok)", "tags": "first(tags)", "who": "first(who)", "best": "max(ok)"}))

    (row,) = bench.rows()
    assert (row["ok"], row["tags"], row["best"]) == (True, ["a", "b"], True)
    assert row["who"] == {"name": "ada", "age": 36}


def test_zeros_of_both_signs_are_one_value(bench: Bench) -> None:
    bench.queue()
    zeros = "\n".join(f'{{"ts": {T0}, "amount": {amount}}}' for amount in ("0.0", "-0.0", "0", "-0", "1.5"))
    bench.penstock.queue("orders").push_ndjson(zeros.encode())
    made = (
        stream(schema={"amount": "double"})
        .key_by("amount < 1")
        .window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    )
    bench.run(made.aggregate({"exact": "count_distinct(amount)", "about": "approx_distinct(amount)"}).to("totals"))

    assert {row["key"]: (row["exact"], row["about"]) for row in bench.rows()} == {"true": (1, 1), "false": (1, 1)}
