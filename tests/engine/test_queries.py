"""Names of queries, changes of their streams, their start positions, and keys."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock import Conflict, InvalidName, InvalidOption, NotFound, PenstockError, agg
from tests.conditions import eventually
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, counted, stream


def at(second: float, amount: int = 1, key: str | None = "k") -> tuple[str | None, dict[str, Any]]:
    return key, {"ts": T0 + second, "amount": amount}


def test_a_changed_query_is_refused_and_says_what_changed(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1), at(2, -1)])
    before = counted(stream().filter("amount > 0")).to("totals")
    after = counted(stream().filter("amount > -5")).to("totals")
    bench.run(before)
    assert bench.by_key("n") == {"k": 1}

    with pytest.raises(Conflict, match=r"(?s)another stream.*amount > 0.*amount > -5.*reset=True"):
        bench.run(after)
    assert bench.by_key("n") == {"k": 1}, "a refused start changes nothing"

    # With another name it reads from its start position; with reset it starts over.
    moment = datetime.now(UTC)
    bench.push([at(3, 10)])
    bench.run(after, "q2", subscription_from=moment)
    bench.run(after, "q3", subscription_from="beginning")
    bench.run(after, reset=True)
    assert bench.by_key("total", "q2") == {"k": 10}
    assert bench.by_key("total", "q3") == bench.by_key("total") == {"k": 10}
    assert bench.by_key("n", "q3") == bench.by_key("n") == {"k": 3}


def test_the_same_query_goes_on_where_it_was(bench: Bench) -> None:
    bench.queue()
    made = counted(stream()).to("totals")
    bench.push([at(1)])
    bench.run(made, flush=False)
    bench.run(made, flush=False)
    bench.push([at(2, 5)])
    turned = dataclasses.replace(made, aggregates=dict(reversed(made.aggregates.items())))
    bench.run(turned)

    assert bench.by_key("n") == {"k": 2}
    assert bench.by_key("total") == {"k": 6}, "the order of the aggregates is no change"
    assert bench.ledger("events_in") == 2
    # The totals agree, and each cycle that read events has the time of its oldest event.
    totals = (
        "SELECT ARRAY[events_in, windows, (SELECT sum(n) FROM unnest(fresh_counts) AS n)] FROM penstock.query_totals"
    )
    assert bench.ask(totals) == [2, 1, 2]
    fresh = "SELECT count(*) FROM penstock.cycles WHERE oldest_at < committed_at AND watermark IS NOT NULL"
    assert bench.ask(fresh) == 2


def test_a_query_that_found_nothing_at_first_reads_what_comes_later(bench: Bench) -> None:
    """The types of fields are not guessed before there is an event."""
    bench.queue()
    made = stream().window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    made = made.aggregate({"best": "max(amount)", "last": "last(amount)"}).to("totals")
    bench.run(made)
    started = made.start("q", settings=bench.settings)
    started.stop()
    bench.push([at(1, 9), at(2, 10)])
    bench.run(made)

    assert bench.letters() == []
    assert bench.by_key("best") == {"k": 10}
    assert bench.by_key("last") == {"k": 10}


def test_a_started_query_waits_for_the_first_event(bench: Bench) -> None:
    bench.queue()
    with bench.running(counted(stream()).to("totals")) as query:
        assert query.is_running
        bench.push([at(1)])
        eventually(lambda: query.status.events_in == 1, "the first event")
        bench.push([at(2)])
        eventually(lambda: query.status.events_in == 2, "the second event")
        assert [row["n"] for row in bench.live()] == [2]


ODD_KEYS = [
    None,
    "it's",
    'say "no"',
    "a,b",
    "a\nb",
    "a\r\nb",
    "\\.",
    "a\n\\.\nb",
    "\t tab ",
    "Ω≈ç 😀",
    "NULL",
    "\\N",
    "{x}",
    "%s",
    "k" * 1024,
]


@pytest.mark.parametrize("partitioning", ["hash", "key"])
def test_a_key_may_be_anything(bench: Bench, partitioning: str) -> None:
    bench.queue(partitioning=partitioning, partitions=2)
    bench.push(at(1, key=key) for key in ODD_KEYS)
    bench.push(at(2, 10, key=key) for key in ODD_KEYS)
    made = counted(stream()).to("totals")
    bench.run(made, max_events_per_cycle=17, flush=False)
    assert {row["key"] for row in bench.live()} == set(ODD_KEYS)
    bench.run(made)

    assert bench.letters() == []
    assert bench.by_key("total") == dict.fromkeys(ODD_KEYS, 11)
    assert {(event.key, event.data["key"]) for event in bench.events("totals")} == {(k, k) for k in ODD_KEYS}
    assert all(event["total"] == 11 for event in bench.emitted())


def test_a_value_that_no_table_holds_is_a_dead_letter(bench: Bench) -> None:
    """U+0000, which PostgreSQL has not, and a key that is too long for an index."""
    bench.queue(partitions=1)
    incompressible = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(3000))
    events = [
        {"ts": T0, "who": "ada", "note": "fine"},
        {"ts": T0, "who": "ada", "note": "nul \x00"},
        {"ts": T0, "who": "bob\x00", "note": "fine"},
        {"ts": T0, "who": incompressible, "note": "fine"},
        {"ts": T0, "who": "ada", "note": "fine", "unread": "\x00"},
    ]
    bench.push(("k", data) for data in events)
    made = stream().key_by("who").window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    made = made.aggregate({"n": "count(*)", "note": "last(note)", "notes": "count_distinct(note)"})
    bench.run(made.to("totals"))

    assert bench.by_key("n") == {"ada": 2}
    assert [letter.offset for letter in bench.letters()] == [1, 2, 3]


@pytest.mark.parametrize("kind", [None, "double", "decimal(20,6)"])
def test_whole_times_that_become_fractional_need_a_type_if_an_expression_reads_them(
    bench: Bench, kind: str | None
) -> None:
    """Without an expression, they need none: tests/engine/worker/test_decode.py."""
    bench.queue(partitions=1)
    schema = {} if kind is None else {"schema": {"ts": kind}}
    made = stream(**schema).window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    made = made.aggregate({"n": "count(*)", "last": "max(ts)"}).to("totals")
    bench.push([("k", {"ts": T0})])
    bench.run(made, flush=False)
    bench.push([("k", {"ts": T0 + 0.25})])
    bench.run(made, flush=False)

    assert bench.by_key("n") == {"k": 1 if kind is None else 2}
    assert [letter.stage for letter in bench.letters()] == (["parse"] if kind is None else [])
    if kind is None:
        mapping = "* EXCEPT (ts), cast(ts * 1000 AS bigint) AS ts"
        assert bench.penstock.queue("orders").dlq("q").redrive(mapping=mapping).replayed == 1
        bench.run(made)
        assert bench.by_key("n") == {"k": 2}


@pytest.mark.parametrize("name", ["Wide name, with 'quotes' and \"more\" 100%", "n" * 63, "{id}"])
def test_a_query_may_be_called_anything(bench: Bench, name: str) -> None:
    bench.queue()
    bench.push([at(1)])
    bench.run(counted(stream()), name)

    assert bench.ledger("events_in", name) == 1
    assert [row["n"] for row in bench.rows(name)] == [1]


def test_an_id_that_cannot_name_a_view_is_refused(bench: Bench) -> None:
    bench.queue()
    with pytest.raises(InvalidName, match="63 bytes"):
        bench.run(counted(stream()), "n" * 64)


def test_an_id_without_views_may_have_200_characters(bench: Bench) -> None:
    bench.queue()
    bench.queue("copies")
    bench.push([at(1), at(2)])
    bench.run(stream().to("copies"), "n" * 200)

    assert bench.ledger("events_in", "n" * 200) == 2
    with pytest.raises(InvalidName, match="up to 200 characters"):
        bench.run(stream().to("copies"), "n" * 201)


def test_invalid_queries_are_refused_with_a_message(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1)])
    with pytest.raises(NotFound, match="nowhere"):
        bench.run(counted(stream("nowhere")))
    with pytest.raises(InvalidOption, match="not an option of a query"):
        bench.run(counted(stream()), speed=3)
    with pytest.raises(PenstockError, match="needs numbers"):
        bench.run(counted(stream(schema={"amount": "string"})), "text")


def test_a_field_that_no_event_has_is_refused_and_can_be_corrected(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1)])
    with pytest.raises(PenstockError, match="amuont"):
        bench.run(counted(stream().filter("amuont > 0")))
    bench.run(counted(stream().filter("amount > 0")))

    assert bench.by_key("n") == {"k": 1}


def test_a_second_driver_stands_by_and_a_running_query_is_not_reset(bench: Bench) -> None:
    bench.queue()
    made = counted(stream()).to("totals")
    bench.push([at(1)])
    with bench.running(made) as query:
        eventually(lambda: query.status.events_in == 1, "the first event")
        other = made.start("q", settings=bench.settings)
        eventually(lambda: other.status.state == "standby", "the standby")
        with pytest.raises(PenstockError, match="running"):
            made.start("q", settings=bench.settings, reset=True)
        query.stop()
        bench.push([at(2)])
        eventually(lambda: other.status.events_in == 1, "the standby at work")
        other.stop(flush=True)

    assert bench.by_key("n") == {"k": 2}


def test_several_queues_are_read_as_one(bench: Bench) -> None:
    bench.queue("orders")
    bench.queue("refunds", "key")
    bench.push([at(1), at(2)])
    bench.push([at(3, -1)], "refunds")
    bench.run(counted(stream("orders", "refunds")).to("totals"))

    assert bench.by_key("total") == {"k": 1}
    assert bench.by_key("n") == {"k": 3}


def test_a_large_backlog_is_read_in_large_cycles_of_several_tasks(bench: Bench) -> None:
    bench.queue(partitions=4)
    for start in range(0, 60_000, 20_000):
        bench.push((f"c{i % 50}", {"ts": T0 + i // 20, "amount": i % 7}) for i in range(start, start + 20_000))
    made = stream().map("amount * 2 AS amount").filter("amount > 0")
    made = made.window_tumbling(
        seconds=600, event_time="ts", allowed_lateness_seconds=60, idle_flush_seconds=NEVER_IDLE
    )
    query = bench.run(made.aggregate({"n": "count(*)", "total": "sum(amount)"}).to("totals"))

    rows = bench.rows()
    assert sum(row["n"] for row in rows) == sum(1 for i in range(60_000) if i % 7)
    assert sum(row["total"] for row in rows) == 2 * sum(i % 7 for i in range(60_000))
    assert len(rows) == len(bench.emitted()) == 250
    assert bench.letters() == []
    assert query.status.events_in == 60_000


@pytest.mark.parametrize("aggregate", [agg.sum("n"), agg.count_distinct("n")], ids=["pre-aggregated", "Spark"])
def test_key_by_keeps_apart_an_empty_text_null_and_quotes(bench: Bench, aggregate: Any) -> None:
    texts = ["", None, '"', '""', "a", ""]
    bench.queue(partitions=1)
    bench.push([(None, {"ts": T0, "n": 1, "s": text}) for text in texts])
    made = stream().key_by("s").window_tumbling(seconds=60, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"count": agg.count(), "value": aggregate}).to("totals"))

    assert bench.by_key("count") == {'""': 2, None: 1, '"""': 1, '""""': 1, "a": 1}
    assert {event.key for event in bench.events("totals")} == {'""', None, '"""', '""""', "a"}


def test_sums_of_more_than_38_digits_are_exact(bench: Bench) -> None:
    amount = Decimal("99999999999999999999.5")
    bench.queue(partitions=2)
    bench.push([(f"k{n % 3}", {"ts": T0, "amount": amount, "s": "x"}) for n in range(30)])
    made = stream().window_tumbling(seconds=60, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    bench.run(made.aggregate({"total": agg.sum("amount")}).to("totals"))
    by_spark = {"total": agg.sum("amount"), "mean": agg.avg("amount"), "kinds": agg.count_distinct("s")}
    failed_cycles = bench.run(made.aggregate(by_spark).to("totals"), "spark").status.failed_cycles

    assert bench.letters() == []
    assert failed_cycles == 0
    assert bench.by_key("mean", "spark") == dict.fromkeys(("k0", "k1", "k2"), amount)
    for query in ("q", "spark"):
        assert bench.by_key("total", query) == {key: amount * 10 for key in ("k0", "k1", "k2")}
