"""A query that is behind: cycles one after the other, each computed while the one before is committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from penstock.core.errors import DatabaseUnavailable, SparkFailure
from penstock.engine import query as queries
from penstock.engine.cycle.cycle import Cycles
from penstock.engine.driver.prefetch import Ahead
from penstock.engine.ledger import COMMIT_BEFORE
from penstock.engine.plan import Lane
from penstock.engine.planning.planner import Planner, Planning
from tests.engine.pipelines import T0, Bench, counted, eventually, stream

OPEN = "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL"


def at(second: float, amount: int = 1, key: str | None = "k") -> tuple[str | None, dict[str, Any]]:
    return key, {"ts": T0 + second, "amount": amount}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cycles that were computed before their turn."""
    found: list[int] = []
    take = Ahead.take

    def noted(self: Ahead) -> Any:
        one = take(self)
        found.append(one[0].cycle)
        return one

    monkeypatch.setattr(Ahead, "take", noted)
    return found


def test_a_query_that_is_behind_catches_up_and_then_follows(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1, key=f"k{i % 7}") for i in range(40)])
    made = counted(stream()).to("totals")
    with bench.running(made, max_events_per_cycle=9) as query:
        eventually(lambda: query.status.events_in == 40, "the backlog to be read")
        bench.push([at(2, key="new")])
        eventually(lambda: query.status.events_in == 41, "the event that came then to be read")
        assert query.status.cycles >= 6
    bench.run(made)
    assert bench.by_key("n") == {f"k{i}": 6 if i < 5 else 5 for i in range(7)} | {"new": 1}
    assert bench.ledger("events_in") == 41


def test_a_query_that_catches_up_ends_with_the_cycle_that_it_is_in(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1) for _ in range(3_000)])
    made = counted(stream()).to("totals")
    with bench.running(made, max_events_per_cycle=1) as query:
        eventually(lambda: query.status.cycles > 2, "some cycles to be done")
    read = bench.ledger("events_in")
    assert 2 < read < 3_000
    assert query.status.events_in == read
    bench.run(made)
    assert bench.by_key("n") == {"k": 3_000}


def test_the_next_cycle_is_computed_while_one_is_committed(bench: Bench, taken: list[int]) -> None:
    bench.queue()
    bench.push([at(1, i, f"k{i % 7}") for i in range(70)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert len(taken) >= 4
    assert bench.by_key("total") == {f"k{i}": sum(range(i, 70, 7)) for i in range(7)}
    assert bench.ledger("events_in") == 70
    assert bench.ask(OPEN) == 0


def test_the_last_cycle_is_computed_ahead_although_it_is_not_full(bench: Bench, taken: list[int]) -> None:
    bench.queue()
    bench.push([at(1, i) for i in range(43)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert taken[-1] == bench.ask("SELECT cycle FROM penstock.cycles WHERE planned = 3")
    assert bench.by_key("n") == {"k": 43}
    assert bench.ask(OPEN) == 0


def test_the_ledger_says_of_a_cycle_that_was_computed_ahead_how_long_it_lay_there(
    bench: Bench, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Ahead.take

    def when_it_is_there(self: Ahead) -> Any:
        one = take(self)
        one[1].result()
        return one

    monkeypatch.setattr(Ahead, "take", when_it_is_there)
    bench.queue()
    bench.push([at(1, i, f"k{i % 7}") for i in range(40)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    with psycopg.connect(bench.url, row_factory=dict_row) as conn:
        cycles = conn.execute("SELECT * FROM penstock.cycles ORDER BY cycle").fetchall()
        totals = conn.execute("SELECT cycle_seconds FROM penstock.query_totals").fetchone()
    assert taken
    assert {each["cycle"] for each in cycles if COMMIT_BEFORE in each["took"]} == set(taken)
    for each, before in zip(cycles[1:], cycles, strict=False):
        if each["cycle"] in taken:
            assert each["planned_at"] < each["started_at"] < before["committed_at"], "it began before its turn"
            worked = timedelta(milliseconds=sum(each["took"].values()))
            assert worked <= each["committed_at"] - each["planned_at"], "no part is counted twice"
    lay = sum(each["took"].get(COMMIT_BEFORE, 0.0) for each in cycles) / 1000
    whole = sum((each["committed_at"] - each["planned_at"]).total_seconds() for each in cycles)
    assert totals is not None
    assert totals["cycle_seconds"] == pytest.approx(whole - lay, abs=0.001 * len(cycles))


def test_what_was_computed_for_a_state_that_did_not_come_is_thrown_away(
    bench: Bench, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Sequence[Lane]] = []
    is_as_planned = Planner.is_as_planned

    def but_for_the_third(self: Planner, lanes: Sequence[Lane]) -> bool:
        looked.append(lanes)
        return is_as_planned(self, lanes) and len(looked) != 3

    monkeypatch.setattr(Planner, "is_as_planned", but_for_the_third)
    bench.queue()
    bench.push([at(1, i, f"k{i % 7}") for i in range(70)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert len(looked) == len(taken) == 3
    assert bench.by_key("total") == {f"k{i}": sum(range(i, 70, 7)) for i in range(7)}
    assert bench.ledger("events_in") == 70
    assert bench.ask(OPEN) == 0


def test_what_was_about_to_be_computed_is_cancelled_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cancellation that comes before the job finds nothing to cancel; the one after it does."""
    cancel, cancelled, answer = Cycles.cancel, threading.Event(), Cycles.answer
    may_go_on = tmp_path / "may go on"

    def noted(self: Cycles, tag: str) -> None:
        cancel(self, tag)
        cancelled.set()

    def slow_to_begin(self: Cycles, plan: Any, tag: str | None = None) -> Any:
        if tag is None:
            return answer(self, plan)
        assert cancelled.wait(60)
        try:
            return answer(self, plan, tag)
        except Exception:
            may_go_on.touch()
            raise

    def held(event: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while event["amount"] >= 10 and not may_go_on.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return event

    monkeypatch.setattr(Cycles, "cancel", noted)
    monkeypatch.setattr(Cycles, "answer", slow_to_begin)
    monkeypatch.setattr(Planner, "is_as_planned", lambda self, lanes: False)
    bench.queue(partitions=1)
    bench.push([at(1, i, f"k{i % 7}") for i in range(30)])
    made = stream().map(held, returns={"amount": "bigint", "ts": "double"})
    bench.run(counted(made).to("totals"), max_events_per_cycle=10)

    assert may_go_on.exists(), "what was computed ahead was cancelled"
    assert bench.ledger("events_in") == 30
    assert bench.ledger("dead") == 0
    assert bench.ask(OPEN) == 0


def test_what_ends_a_query_is_said_also_when_its_plan_ahead_cannot_be_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: Cycles, cycle: int) -> None:
        raise DatabaseUnavailable("it is away")

    def refused(self: Cycles, work: Any) -> Any:
        raise psycopg.ProgrammingError("no such table")

    monkeypatch.setattr(Cycles, "forget", lost)
    monkeypatch.setattr(Cycles, "commit", refused)
    bench.queue()
    bench.push([at(1, i) for i in range(30)])
    with pytest.raises(psycopg.ProgrammingError, match="no such table"):
        bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)


@pytest.fixture
def stream_that_never_starts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Spark that computes, and cannot start a stream; it is tried again at once, and not often."""
    name = "spark.sql.streaming.checkpointFileManagerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, "no.such.FileManager")
    monkeypatch.setattr(queries, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(queries, "_MOST_FAILURES", 2)
    yield
    spark.conf.set(name, str(before))


@pytest.mark.usefixtures("stream_that_never_starts")
def test_a_stream_that_never_starts_is_given_up_however_much_was_caught_up(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1, i) for i in range(30)])
    query = counted(stream()).start("q", settings=bench.settings, interval_seconds=0.0, max_events_per_cycle=10)

    def push_on() -> None:
        # Each time that it has caught up and could not go on, there is more to catch up with.
        while query.is_running:
            if query.status.error is not None:
                bench.push([at(1, i) for i in range(30)])
                eventually(lambda: query.status.error is None or not query.is_running, "the next start")
            time.sleep(0.01)

    pushing = threading.Thread(target=push_on)
    pushing.start()
    try:
        with pytest.raises(
            SparkFailure, match=r"started 3 times in a row .*could not be started: .*no\.such\.FileManager"
        ):
            assert query.wait(90), "it was to be given up"
    finally:
        query.ask_to_stop()
        pushing.join()
    assert query.status.events_in >= 30


def test_windows_that_all_partitions_close_together_are_computed_in_their_turn(bench: Bench, taken: list[int]) -> None:
    bench.queue()
    bench.push([at(1, i, None) for i in range(40)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert len(taken) <= 1, "the first one says that it is not worth it"
    assert bench.by_key("n") == {None: 40}


@pytest.mark.chaos
def test_a_backlog_in_which_an_event_kills_its_task_is_read_but_for_that_event(bench: Bench, taken: list[int]) -> None:
    def deadly(event: dict[str, Any]) -> dict[str, Any]:
        if event["amount"] == 33:
            import os

            os._exit(1)
        return event

    bench.queue()
    bench.push([at(1, i) for i in range(60)])
    made = stream().map(deadly, returns={"amount": "bigint", "ts": "double"})
    bench.run(counted(made).to("totals"), max_events_per_cycle=10)

    assert [letter.data["amount"] for letter in bench.letters()] == [33]
    assert bench.by_key("total") == {"k": sum(range(60)) - 33}
    assert bench.ask("SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL AND error IS NULL") == 0


def test_who_waits_long_for_the_next_cycle_is_asked_again_meanwhile(bench: Bench) -> None:
    bench.queue()
    assert not bench.penstock.queue("orders").group("q").pop(), "it is only to be subscribed"
    bench.push([at(1)])
    query = bench.ask(
        "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0) "
        "RETURNING id"
    )
    group = (bench.ask("SELECT queue_id FROM penstock.groups"), bench.ask("SELECT id FROM penstock.groups"))
    longer_than_any_machine_is_up = 1e10
    planner = Planner(
        Planning(bench.url, query, 0, (group,), 30.0, longer_than_any_machine_is_up, 1000, 1000, 1, None, 0, 0, None)
    )
    try:
        assert planner.next_cycle() is not None
        assert planner.next_cycle() is None
    finally:
        planner.close()
