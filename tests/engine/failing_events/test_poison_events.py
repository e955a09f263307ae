"""An event that fails the cycle is found by bisection and becomes a dead letter."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest
from pyspark import TaskContext

from penstock.core.errors import ConfigurationError, RepeatedFailure
from penstock.engine.planning import poison_search
from tests.engine.failing_events.events import good
from tests.engine.pipelines import T0, Bench, counted, stream


def test_an_expression_that_spark_cannot_compute_costs_one_event(bench: Bench) -> None:
    bench.queue(partitions=1)
    odd = ("k", {"ts": T0, "amount": 1, "code": "x"})
    bench.push([*(("k", {"ts": T0, "amount": 1, "code": str(i)}) for i in range(5)), odd, *good(5)])
    bench.run(counted(stream().filter("cast(code AS int) >= 0 OR code IS NULL")).to("totals"))

    assert bench.by_key("n") == {"k": 10}
    (letter,) = bench.letters()
    assert letter.data["code"] == "x"
    assert "CAST_INVALID_INPUT" in letter.error


def test_one_event_that_fails_its_cycle_is_found_by_bisection_over_partitions(bench: Bench) -> None:
    bench.queue(partitions=4)
    events = [(f"k{n % 40}", {"ts": T0, "amount": 1, "code": "x" if n == 777 else "1"}) for n in range(2_000)]
    bench.push(events)
    query = bench.run(counted(stream().filter("cast(code AS int) > 0")).to("totals"))

    assert sum(bench.by_key("n").values()) == 1_999
    assert [letter.data["code"] for letter in bench.letters()] == ["x"]
    assert query.status.failed_cycles <= 13


def test_many_events_in_a_row_whose_values_fail_do_not_stop_the_query(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poison_search, "MAX_GIVEN_UP", 3)
    bench.queue(partitions=1)
    codes = ["1"] * 30 + ["x"] * 5 + ["1"] * 30
    bench.push([("k", {"ts": T0, "amount": 1, "code": code}) for code in codes])
    query = bench.run(counted(stream().filter("cast(code AS int) > 0")).to("totals"))

    assert bench.by_key("n") == {"k": 60}
    assert len(bench.letters()) == 5
    assert query.status.failed_cycles < 15


def test_when_every_event_seems_to_be_at_fault_the_query_stops(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the environment that is broken: the events stay where they are."""

    def broken(event: dict[str, Any]) -> Any:
        if TaskContext.get() is not None and event.get("amount"):
            os._exit(3)
        return event

    monkeypatch.setattr(poison_search, "MAX_GIVEN_UP", 1)
    monkeypatch.setattr(poison_search, "TRIES", 1)
    bench.queue(partitions=1)
    bench.push(good(3))
    made = stream(schema={"amount": "bigint"}).map(broken, returns={"amount": "bigint"}).to("copies")
    with pytest.raises(RepeatedFailure, match="1 events in a row failed with the same error"):
        bench.run(made, max_events_per_cycle=1)

    (letter,) = bench.letters()
    assert letter.offset == 0
    assert letter.error.startswith("every cycle with this event fails: Python worker exited unexpectedly")
    assert bench.ask("SELECT sum(lag) FROM penstock.lag WHERE group_name = 'q'") == 2


def test_missing_key_of_encrypted_events_stops_the_query_and_blames_no_event(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the driver has the key: the tasks run in processes that were started before."""
    monkeypatch.setenv("PENSTOCK_ENCRYPTION_KEYS", base64.b64encode(os.urandom(32)).decode())
    bench.penstock.queue("orders").config(encrypted=True).create("hash", 1)
    bench.push(good(3))
    with pytest.raises(ConfigurationError, match=r"a task lacks a setting.*is not among the keys"):
        bench.run(counted(stream()).to("totals"))

    assert bench.letters() == []
    assert bench.ask("SELECT sum(lag) FROM penstock.lag WHERE group_name = 'q'") == 3
