"""Streams without windows emit each event once, in order, changed by the steps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Context, InvalidRequest
from penstock.sinks import File
from tests.engine.pipelines import Bench, stream

WHEN = datetime(2024, 2, 29, tzinfo=UTC)


def numbered(count: int) -> list[tuple[str, dict[str, Any]]]:
    return [(f"k{i % 3}", {"i": i, "amount": Decimal(i) / 4}) for i in range(count)]


def out(bench: Bench, queue: str = "out") -> list[tuple[str | None, Any]]:
    return sorted(
        ((event.key, data) for event, data in zip(bench.events(queue), bench.emitted(queue), strict=True)),
        key=lambda pair: pair[1]["i"],
    )


def test_filtered_events_are_unchanged(bench: Bench) -> None:
    odd = {"i": 100, "amount": Decimal("12345678901234567890.123456789012345678"), "Ω": [None, {"a": 1e-7}], "n": None}
    bench.queue()
    bench.push([*numbered(20), ("k0", odd)])
    bench.run(stream().filter("amount >= 2").to("out"), max_events_per_cycle=5)

    assert out(bench) == [*numbered(20)[8:], ("k0", {**odd, "Ω": [None, {"a": Decimal("1e-7")}]})]
    first, last = ([e.raw for e in bench.events(name) if b"100" in e.raw] for name in ("orders", "out"))
    assert first == last, "to the byte"
    for key in ("k0", "k1", "k2"):
        order = [event.data["i"] for event in bench.events("out") if event.key == key]
        assert order == sorted(order)


def test_numbers_stay_exact_in_spark(bench: Bench) -> None:
    amounts = ["12345678901234567890.123456789012345678", "0.1", "-5", "1000000000000000000", "0.000000000000000001"]
    bench.queue(partitions=1)
    bench.push(("k", {"i": i, "amount": Decimal(amount)}) for i, amount in enumerate(amounts))
    bench.run(stream().map("i, amount, amount > 0 AS positive").to("out"))

    assert [data for _, data in out(bench)] == [
        {"i": i, "amount": Decimal(amount), "positive": Decimal(amount) > 0} for i, amount in enumerate(amounts)
    ]


@pytest.mark.parametrize("steps", [[], ["amount >= 0"]], ids=["alone", "after an expression"])
def test_a_key_function_adds_no_field_to_the_event(bench: Bench, steps: list[str]) -> None:
    bench.queue()
    bench.push(numbered(6))
    made = stream()
    for condition in steps:
        made = made.filter(condition)
    bench.run(made.to("out", partition=lambda event: f"p{event['i'] % 2}"))

    assert out(bench) == [(f"p{i % 2}", data) for i, (_, data) in enumerate(numbered(6))]


def test_a_key_function_gets_events_that_are_not_objects(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([("k", 5), ("k", [1, 2]), ("k", "text")])
    bench.run(stream().to("out", partition=lambda event: type(event).__name__))

    found = [(event.key, data) for event, data in zip(bench.events("out"), bench.emitted("out"), strict=True)]
    assert sorted(found, key=str) == [("int", 5), ("list", [1, 2]), ("str", "text")]


def test_sinks_run_with_the_query_and_have_written_everything_when_it_ends(bench: Bench, tmp_path: Path) -> None:
    bench.queue()
    bench.push(numbered(20))
    made = stream().filter("i >= 5").to("out", File(tmp_path / "out.jsonl"))
    bench.run(made)

    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["i"] for line in lines) == list(range(5, 20))

    bench.push([("k0", {"i": 20, "amount": 1})])
    bench.run(made, sinks=False)
    assert (tmp_path / "out.jsonl").read_text().splitlines() == lines, "the sinks did not run"
    assert bench.ask("SELECT lag FROM penstock.sinks WHERE queue = 'out'") == 1


def test_functions_and_expressions_can_be_mixed(bench: Bench) -> None:
    def pair(event: dict[str, Any], ctx: Context) -> list[dict[str, Any]]:
        where = {"key": ctx.metadata["key"], "queue": ctx.metadata["queue"]}
        return [{"i": event["i"] * 2 + place, **where} for place in (0, 1)]

    bench.queue()
    bench.push(numbered(5))
    made = stream().filter(lambda event: event["i"] != 2).flat_map(pair).filter(lambda event: event["i"] != 3)
    query = bench.run(made.to("out", partition="concat('p', cast(i AS int))"))

    assert query.status.dropped == bench.ledger("dropped") == 2
    assert out(bench) == [
        (f"p{i}", {"i": i, "key": f"k{i // 2 % 3}", "queue": "orders"}) for i in (0, 1, 2, 6, 7, 8, 9)
    ]


def test_an_integer_as_text_has_no_decimals(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"i": 5})])
    bench.run(stream().map("i, concat('p', i) AS text").to("out"))

    assert bench.emitted("out") == [{"i": 5, "text": "p5"}]


@pytest.fixture
def rates(bench: Bench) -> Bench:
    """A reference table with two currencies, and events with three."""
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE rates (currency text, rate numeric)")
        conn.execute("INSERT INTO rates VALUES ('EUR', 1.25), ('JPY', 0.01)")
    bench.queue()
    bench.push([("k", {"i": i, "currency": c}) for i, c in enumerate(["EUR", "JPY", "XXX"])])
    return bench


def test_sql_joins_with_a_table_of_the_database(rates: Bench) -> None:
    rates.run(stream().sql("SELECT i, fx.rate FROM stream JOIN fx USING (currency)", fx="rates").to("out"))

    assert [data for _, data in out(rates)] == [{"i": 0, "rate": Decimal("1.25")}, {"i": 1, "rate": Decimal("0.01")}]


def test_star_selects_the_whole_event(rates: Bench) -> None:
    made = stream().sql("SELECT *, fx.rate * 2 AS twice FROM stream JOIN fx USING (currency)", fx="rates")
    rates.push([("k", {"i": 9, "currency": "EUR", "note": {"deep": [1, None]}})])
    rates.run(made.map(lambda event: {**event, "is_python": True}).to("out"))

    *_, (_, last) = out(rates)
    more = {"rate": Decimal("1.25"), "twice": Decimal("2.5"), "is_python": True}
    assert last == {"i": 9, "currency": "EUR", "note": {"deep": [1, None]}, **more}


def test_the_stream_can_have_an_alias(rates: Bench) -> None:
    query = "SELECT s.i, f.rate FROM stream s LEFT JOIN fx AS f ON f.currency = s.currency"
    rates.run(stream().sql(query, fx="SELECT * FROM rates WHERE rate > 1").to("out"))

    assert [data["rate"] for _, data in out(rates)] == [Decimal("1.25"), None, None]


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (stream().filter("amuont > 0").to("out"), r"amuont.*schema="),
        (stream().sql("SELECT i, fx.rat FROM stream JOIN fx USING (currency)", fx="rates").to("out"), "rat"),
        (stream().sql("SELECT i FROM stream JOIN nowhere USING (currency)").to("out"), r"nowhere.*fx='app.rates'"),
        (stream().map("no_such_function(i) AS i").to("out"), "no_such_function"),
    ],
)
def test_errors_in_expressions_are_raised_when_the_query_starts(
    rates: Bench, made: Any, word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRequest, match=word):
        rates.run(made)
    assert "java" not in capfd.readouterr().err, "a message without a stack trace"
    assert rates.ask("SELECT count(*) FROM penstock.cycles") == 0


def test_functions_after_a_spark_step_get_the_same_metadata(bench: Bench) -> None:
    names = ["queue", "partition", "partition_id", "offset", "key", "id", "time", "appended_at", "headers"]

    def record(event: dict[str, Any], ctx: Context) -> Any:
        metadata = {name: repr(ctx.metadata[name]) for name in names}
        entry = {**metadata, "stage": ctx.stage, "query": ctx.query_id}
        return {**event, "records": [*event.get("records", []), entry]}

    bench.queue()
    bench.push([{"key": "k", "data": {"i": 1}, "id": "one", "headers": {"trace": "x"}, "time": WHEN}])
    made = stream().map(record, name="a").filter("i > 0").map(record, name="b").filter("i > 0").map(lambda e: e)
    # The types of the returned fields are inferred.
    bench.run(made.filter("i > 0").filter(record, name="d").map(record, name="c").map("i, records").to("out"))

    ((_, event),) = out(bench)
    assert [entry.pop("stage") for entry in event["records"]] == ["a", "b", "c"]
    first = event["records"][0]
    assert all(entry == first for entry in event["records"])
    assert (first["query"], first["id"], first["headers"]) == ("q", "'one'", "{'trace': 'x'}")
    assert first["time"] == repr(WHEN)


def test_enrich_adds_fields_of_a_reference_table(rates: Bench) -> None:
    rates.run(stream().enrich("rates", on="currency").to("left"), "left")
    rates.run(stream().enrich("rates", on="currency", how="inner").to("inner"), "inner")

    known = [
        {"i": 0, "currency": "EUR", "rate": Decimal("1.25")},
        {"i": 1, "currency": "JPY", "rate": Decimal("0.01")},
    ]
    assert [data for _, data in out(rates, "inner")] == known
    assert [data for _, data in out(rates, "left")] == [*known, {"i": 2, "currency": "XXX", "rate": None}]


def test_foreach_is_called_for_every_event(bench: Bench, tmp_path: Any) -> None:
    def touch_file(event: dict[str, Any]) -> None:
        (tmp_path / str(event["i"])).touch()

    bench.queue()
    bench.push(numbered(7))
    bench.run(stream().foreach(touch_file), max_events_per_cycle=3)

    assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(7))
    assert bench.ledger("events_in") == 7


def test_events_that_are_not_objects_pass_if_no_field_is_read(bench: Bench) -> None:
    datas: list[Any] = [1, "text", None, [1, 2], True, {"a": "\x00"}]
    bench.queue(partitions=1)
    bench.push(("k", data) for data in datas)
    bench.run(stream().filter("true").to("out"))

    assert bench.emitted("out") == datas
    assert bench.letters() == []


def test_a_function_chooses_the_key_of_closed_windows(bench: Bench) -> None:
    bench.queue()
    bench.push(numbered(6))
    made = stream().window_tumbling(seconds=3600).aggregate({"n": "count(*)"})
    bench.run(made.to("out", partition=lambda window: f"p{window['n']}"))

    assert {event.key for event in bench.events("out")} == {"p2"}
