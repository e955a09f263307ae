"""Gated streams on Spark: which events are released, when and in which order, and which become dead letters."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from penstock import concurrency_gate, sliding_window_gate, token_bucket_gate
from penstock.core.errors import InvalidRequest
from penstock.log.event import Event
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.conditions import eventually
from tests.engine.gates import ideal_limiter
from tests.engine.oracle import micros
from tests.engine.pipelines import Bench, stream


def by_key(events: list[Event]) -> dict[str, list[Event]]:
    grouped: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        grouped[str(event.key)].append(event)
    return grouped


def grants(events: list[Event]) -> list[ideal_limiter.Grant]:
    return [(micros(event.appended_at), TOKEN) for event in events]


@pytest.fixture
def calls(bench: Bench) -> Bench:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    return bench


def push(bench: Bench, tenants: int, each: int, **more: Any) -> None:
    bench.push(((f"t{t}", {"seq": i, **more}) for i in range(each) for t in range(tenants)), "calls")


def test_each_key_has_a_bucket_of_its_own_and_keeps_its_order(calls: Bench) -> None:
    push(calls, 3, 12)
    calls.run(stream("calls").gate(token_bucket_gate(capacity=4, refill_per_sec=20)).to("out"))

    released = by_key(calls.events("out"))
    assert sorted(released) == ["t0", "t1", "t2"]
    for events in released.values():
        assert [event.data["seq"] for event in events] == list(range(12))
        assert ideal_limiter.respects_bucket(grants(events), 4 * TOKEN, 20 * TOKEN)


def test_no_sliding_window_exceeds_its_limit(calls: Bench) -> None:
    push(calls, 2, 14)
    calls.run(stream("calls").gate(sliding_window_gate(limit=5, window_sec=0.5)).to("out"))

    for events in by_key(calls.events("out")).values():
        assert [event.data["seq"] for event in events] == list(range(14))
        assert ideal_limiter.respects_window(grants(events), 5 * TOKEN, 500_000)


@pytest.mark.parametrize("cost", ["weight", "weight * 1", lambda event: event["weight"]])
def test_events_that_can_never_be_released_become_dead_letters(calls: Bench, cost: Any) -> None:
    weights = [1, 11, 2, -1, None, 3, 0]
    calls.push((("t", {"seq": i, "weight": weight}) for i, weight in enumerate(weights)), "calls")
    gate = token_bucket_gate(capacity=10, refill_per_sec=100, cost_fn=cost, allow_zero_cost=False)
    calls.run(stream("calls", schema={"weight": "double"}).gate(gate).to("out"))

    assert [event.data for event in calls.events("out")] == [{"seq": i, "weight": weights[i]} for i in (0, 2, 5)]
    errors = {letter.data["seq"]: letter.error for letter in calls.letters("calls")}
    assert errors == {
        1: "it costs 11, more than the capacity of 10, so it could never pass",
        3: "it costs -1: a cost is not negative",
        4: "its cost is no number",
        6: "it costs nothing, which this gate does not allow",
    }
    assert {letter.stage for letter in calls.letters("calls")} == {"gate 1"}
    assert calls.ledger("dead") == 4


def test_events_filtered_out_before_the_gate_cost_nothing(calls: Bench) -> None:
    def duplicate(event: Any) -> list[Any]:
        return [{**event, "part": part} for part in (0, 1)]

    push(calls, 1, 20)
    gated = (
        stream("calls").filter("seq % 4 = 0").flat_map(duplicate).gate(token_bucket_gate(capacity=4, refill_per_sec=40))
    )
    calls.run(gated.to("out"))

    events = calls.events("out")
    assert [(e.data["seq"], e.data["part"]) for e in events] == [
        (i, part) for i in (0, 4, 8, 12, 16) for part in (0, 1)
    ]
    assert ideal_limiter.respects_bucket(grants(events), 4 * TOKEN, 40 * TOKEN)
    assert calls.ask("SELECT cost_total FROM penstock.gates") == 10


def test_an_event_passes_all_gates_or_none(calls: Bench) -> None:
    push(calls, 1, 12, weight=2)
    requests = token_bucket_gate(capacity=12, refill_per_sec=1)
    weights = sliding_window_gate(limit=8, window_sec=0.4, cost_fn="weight")
    calls.run(stream("calls").gate(requests).gate(weights).to("out"))

    events = calls.events("out")
    assert [event.data["seq"] for event in events] == list(range(12))
    assert ideal_limiter.respects_window([(at, 2 * cost) for at, cost in grants(events)], 8 * TOKEN, 400_000)
    totals = calls.ask("SELECT array_agg(cost_total ORDER BY gate) FROM penstock.gates")
    assert totals == [12, 24]


def test_gates_reject_queues_partitioned_by_hash(bench: Bench) -> None:
    bench.queue("calls", "hash", 2)
    bench.queue("tasks", "key")
    with pytest.raises(InvalidRequest, match=r"fill it with Stream.from_\('calls'\)"):
        stream("calls").gate(token_bucket_gate(capacity=1, refill_per_sec=1)).to("out").start(
            "q", settings=bench.settings
        )
    with pytest.raises(
        InvalidRequest, match="counts events in flight per key, but queue 'calls' is partitioned by hash"
    ):
        stream("tasks").gate(concurrency_gate(limit=1, group="w")).to("calls").start("q", settings=bench.settings)
    assert bench.ask("SELECT count(*) FROM penstock.queries") == 0


def test_a_stream_repartitions_a_queue_by_key_for_a_gate(bench: Bench) -> None:
    bench.queue("calls", "hash", 2)
    bench.queue("calls.by-key", "key")
    push(bench, 3, 4)
    bench.run(stream("calls").to("calls.by-key"), "in-front")
    bench.run(stream("calls.by-key").gate(token_bucket_gate(capacity=4, refill_per_sec=1)).to("out"))
    released = by_key(bench.events("out"))
    assert {key: [event.data["seq"] for event in events] for key, events in released.items()} == {
        f"t{t}": [0, 1, 2, 3] for t in range(3)
    }
    assert bench.ask("SELECT partitioning FROM penstock.queues WHERE name = 'out'") == "key", (
        "the sink can be gated again"
    )


def test_a_parked_partition_is_not_read_while_others_continue(calls: Bench) -> None:
    gate = token_bucket_gate(capacity=2, refill_per_sec=0.001)
    with calls.running(stream("calls").gate(gate).to("out")):
        push(calls, 1, 50)
        eventually(
            lambda: calls.ask("SELECT count(*) FROM penstock.cursors WHERE state = 3") == 1, "the partition is parked"
        )
        before = calls.ask("SELECT sum(planned) FROM penstock.cycles")
        calls.push([("other", {"seq": i}) for i in range(2)], "calls")
        eventually(lambda: len(calls.events("out")) == 4, "the other key is released")
        assert calls.ask("SELECT sum(planned) FROM penstock.cycles") == before + 2, (
            "no event of the first key is read again"
        )
    row = calls.ask("SELECT to_jsonb(g) FROM penstock.gates g WHERE key = 't0'")
    assert (row["allowed_total"], row["backlog"], row["limit"], row["paused"]) == (2, 48, 2, False)
    assert row["tokens"] < 1
    assert row["denied_since"] is not None
    assert row["next_at"] is not None
