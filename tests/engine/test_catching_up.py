"""A query that is behind: cycles one after the other, each computed while the one before is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.engine.ahead import Ahead
from penstock.engine.plan import Lane
from penstock.engine.planning import Planner, Planning
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
    planner = Planner(Planning(bench.url, query, 0, (group,), 30.0, 3600.0, 1000, 1000, 1, None, 0, 0, None))
    assert planner.next_cycle() is not None
    assert planner.next_cycle() is None
    planner.close()
