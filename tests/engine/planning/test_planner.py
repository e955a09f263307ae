"""Planning of cycles, without Spark."""

from __future__ import annotations

import threading

from penstock.engine.cycle_plan import SourceGroup
from penstock.engine.planning.planner import Planner, PlannerConfig
from tests.engine.pipelines import T0, Bench


def test_planner_returns_while_it_waits_for_a_long_interval(bench: Bench) -> None:
    bench.queue()
    assert not bench.penstock.queue("orders").group("q").pop(), "a pop subscribes the group"
    bench.push([("k", {"ts": T0, "amount": 1})])
    query = bench.ask(
        "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0) "
        "RETURNING id"
    )
    queue_id, group_id = bench.ask("SELECT queue_id FROM penstock.groups"), bench.ask("SELECT id FROM penstock.groups")
    longer_than_any_machine_is_up = 1e10
    planner = Planner(
        PlannerConfig(
            conninfo=bench.url,
            query_id=query,
            query="q",
            fence=0,
            groups=[SourceGroup("orders", queue_id, "q", group_id)],
            lease_seconds=30.0,
            interval_seconds=longer_than_any_machine_is_up,
            small_events=1000,
            max_events=1000,
            stopping=threading.Event(),
        )
    )
    try:
        assert planner.next_cycle(0.1) is not None
        assert planner.next_cycle(0.1) is None
    finally:
        planner.close()
