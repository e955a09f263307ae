"""A query with a backlog computes the next cycle while the current one is committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from penstock.core.errors import DatabaseUnavailable
from penstock.engine.cycle.cycle_runner import CycleRunner
from penstock.engine.cycle_ledger import COMMIT_BEFORE
from penstock.engine.cycle_plan import PartitionRange
from penstock.engine.planning.planner import Planner
from tests.conditions import eventually
from tests.engine.pipelines import T0, Bench, counted, stream

OPEN = "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL"


def at(second: float, amount: int = 1, key: str | None = "k") -> tuple[str | None, dict[str, Any]]:
    return key, {"ts": T0 + second, "amount": amount}


def prefetched(bench: Bench) -> list[int]:
    """The cycles that were planned before the one ahead of them was committed."""
    return [
        cycle["cycle"]
        for before, cycle in pairwise(ledger(bench))
        if before["committed_at"] is not None and cycle["planned_at"] < before["committed_at"]
    ]


def ledger(bench: Bench) -> list[dict[str, Any]]:
    with psycopg.connect(bench.url, row_factory=dict_row) as conn:
        return conn.execute("SELECT * FROM penstock.cycles ORDER BY cycle").fetchall()


def test_query_catches_up_with_a_backlog_and_then_follows(bench: Bench) -> None:
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


def test_query_with_a_backlog_stops_after_its_current_cycle(bench: Bench) -> None:
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


def test_next_cycle_is_computed_while_one_is_committed(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1, i, f"k{i % 7}") for i in range(70)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert len(prefetched(bench)) >= 4
    assert bench.by_key("total") == {f"k{i}": sum(range(i, 70, 7)) for i in range(7)}
    assert bench.ledger("events_in") == 70
    assert bench.ask(OPEN) == 0


def test_last_cycle_is_computed_ahead_although_it_is_not_full(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1, i) for i in range(43)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert prefetched(bench)[-1] == bench.ask("SELECT cycle FROM penstock.cycles WHERE planned = 3")
    assert bench.by_key("n") == {"k": 43}
    assert bench.ask(OPEN) == 0


def test_ledger_counts_no_time_of_a_prefetched_cycle_twice(bench: Bench) -> None:
    bench.queue()
    bench.push([at(1, i, f"k{i % 7}") for i in range(40)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    cycles, ahead = ledger(bench), set(prefetched(bench))
    assert ahead
    assert {each["cycle"] for each in cycles if COMMIT_BEFORE in each["took"]} <= ahead
    for cycle in cycles:
        if cycle["cycle"] in ahead:
            worked = timedelta(milliseconds=sum(cycle["took"].values()))
            assert worked <= cycle["committed_at"] - cycle["planned_at"]
    idle = sum(each["took"].get(COMMIT_BEFORE, 0.0) for each in cycles) / 1000
    total = sum((each["committed_at"] - each["planned_at"]).total_seconds() for each in cycles)
    recorded = bench.ask("SELECT cycle_seconds FROM penstock.query_totals")
    assert recorded == pytest.approx(total - idle, abs=0.001 * len(cycles))


def test_result_computed_for_outdated_partitions_is_discarded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[Sequence[PartitionRange]] = []
    is_current = Planner.is_current

    def all_but_the_third(self: Planner, partitions: Sequence[PartitionRange]) -> bool:
        checks.append(partitions)
        return is_current(self, partitions) and len(checks) != 3

    monkeypatch.setattr(Planner, "is_current", all_but_the_third)
    bench.queue()
    bench.push([at(1, i, f"k{i % 7}") for i in range(70)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert len(checks) == 3, "prefetching stops after a miss"
    assert bench.by_key("total") == {f"k{i}": sum(range(i, 70, 7)) for i in range(7)}
    assert bench.ledger("events_in") == 70
    assert bench.ask(OPEN) == 0


def test_job_that_is_about_to_start_is_cancelled_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cancellation that comes before the job finds nothing to cancel; the one after it does."""
    cancel, cancelled, answer = CycleRunner.cancel_jobs, threading.Event(), CycleRunner.run_spark
    may_go_on = tmp_path / "may go on"

    def noted(self: CycleRunner, tag: str) -> None:
        cancel(self, tag)
        cancelled.set()

    def slow_to_begin(self: CycleRunner, plan: Any, tag: str | None = None) -> Any:
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

    monkeypatch.setattr(CycleRunner, "cancel_jobs", noted)
    monkeypatch.setattr(CycleRunner, "run_spark", slow_to_begin)
    monkeypatch.setattr(Planner, "is_current", lambda self, partitions: False)
    bench.queue(partitions=1)
    bench.push([at(1, i, f"k{i % 7}") for i in range(30)])
    made = stream().map(held, returns={"amount": "bigint", "ts": "double"})
    bench.run(counted(made).to("totals"), max_events_per_cycle=10)

    assert may_go_on.exists(), "what was computed ahead was cancelled"
    assert bench.ledger("events_in") == 30
    assert bench.ledger("dead") == 0
    assert bench.ask(OPEN) == 0


def test_error_is_raised_although_the_prefetched_cycle_cannot_be_discarded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: CycleRunner, cycle: int) -> None:
        raise DatabaseUnavailable("it is away")

    def refused(self: CycleRunner, work: Any) -> Any:
        raise psycopg.ProgrammingError("no such table")

    monkeypatch.setattr(CycleRunner, "delete_plan", lost)
    monkeypatch.setattr(CycleRunner, "commit", refused)
    bench.queue()
    bench.push([at(1, i) for i in range(30)])
    with pytest.raises(psycopg.ProgrammingError, match="no such table"):
        bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)


def test_windows_with_a_global_watermark_are_not_prefetched(bench: Bench) -> None:
    bench.queue(partitions=1)  # a second one without an event would hold the watermark back
    bench.push([at(1, i, None) for i in range(40)])
    bench.run(counted(stream()).to("totals"), max_events_per_cycle=10)

    assert len(prefetched(bench)) <= 1, "the first one shows that it does not pay"
    assert bench.by_key("n") == {None: 40}


@pytest.mark.long
def test_backlog_with_an_event_that_kills_its_task_loses_only_that_event(bench: Bench) -> None:
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
