"""Limits that change while a query runs: per key and for all, paused and resumed, held back as a partner asked."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from penstock import concurrency_gate, token_bucket_gate
from penstock.core.errors import InvalidOption, NotFound
from penstock.engine.gates import release_loop
from penstock.stream.gates import NANO
from tests.engine.gates import limiter
from tests.engine.oracle import micros
from tests.engine.pipelines import Bench, eventually, stream

#: Whether a lane is laid down.
ASLEEP = """
SELECT count(*) FROM penstock.cursors c JOIN penstock.gate_lanes l USING (partition_id) WHERE c.state = 3 AND l.key = %s
"""
#: End the connection on which a driver hears of changes.
DEAFEN = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'LISTEN penstock_gates'"

SLOW = stream("calls").gate(token_bucket_gate(capacity=2, refill_per_sec=0.001)).to("out")

#: As the recipe has them, word for word but for the query's name.
LOWEST_FIRST = """
SELECT
    s.key                         AS tenant_or_partition,
    (s.value->>'tokens')::float   AS tokens_remaining,
    (s.value->>'allowedTotal')::int AS lifetime_allowed,
    (s.value->>'consumedTotal')::int AS lifetime_cost,
    s.updated_at
FROM queen_streams.state s
JOIN queen_streams.queries q ON q.id = s.query_id
WHERE q.name = 'ota-rate-limiter.v1'
ORDER BY tokens_remaining ASC
LIMIT 20;
"""
EMPTY = """
SELECT s.key, (s.value->>'tokens')::float AS tokens
FROM queen_streams.state s
JOIN queen_streams.queries q ON q.id = s.query_id
WHERE q.name = 'ota-rate-limiter.v1'
  AND (s.value->>'tokens')::float < 1
ORDER BY s.updated_at DESC;
"""


@pytest.fixture
def calls(bench: Bench) -> Bench:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"seq": i}) for i in range(6) for t in range(2)), "calls")
    return bench


def passed(bench: Bench, key: str) -> int:
    return sum(1 for event in bench.events("out") if event.key == key)


def test_a_lane_passes_at_once_what_new_limits_allow(calls: Bench) -> None:
    gate = calls.penstock.gate("q")
    with calls.running(SLOW):
        eventually(lambda: len(calls.events("out")) == 4, "two of each pass")
        gate.set("t0", rate=1000)
        eventually(lambda: passed(calls, "t0") == 6, "all of the lane that was given more pass")
        assert passed(calls, "t1") == 2
        gate.set(rate=500)
        eventually(lambda: passed(calls, "t1") == 6, "and all of the others, when all are")
        rates = {info.key: info.rate for info in gate.list()}
        assert rates == {"t0": 1000, "t1": 500}, "a key's own limit counts before that of all"
        gate.set("t0", clear=True)
        assert {info.key: info.rate for info in gate.list()} == {"t0": 500, "t1": 500}


def test_limits_that_are_written_into_the_table_count_at_once(calls: Bench) -> None:
    weights = "INSERT INTO penstock.gate_limits (query, key, gate, weight) VALUES ('q', '', 0, 2)"
    contract = "INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't0', 1, 1000)"
    asleep = """
        SELECT count(*) FROM penstock.cursors c JOIN penstock.gate_lanes l USING (partition_id)
        WHERE c.state = 3 AND l.next_at IS NOT NULL
    """
    with calls.running(SLOW), psycopg.connect(calls.url, autocommit=True) as conn:
        eventually(lambda: calls.ask(asleep) == 2, "both are laid down")
        conn.execute(weights.encode())
        eventually(lambda: calls.ask(asleep) == 2, "and again, after a look at what changed for all")
        conn.execute(contract.encode())
        eventually(lambda: passed(calls, "t0") == 6, "all of the lane that was given more pass")
        assert passed(calls, "t1") == 2


def test_a_stream_that_is_started_anew_with_other_limits_lets_its_lanes_pass_at_once(calls: Bench) -> None:
    with calls.running(SLOW):
        eventually(
            lambda: calls.ask("SELECT count(*) FROM penstock.cursors WHERE state = 3") == 2, "both are laid down"
        )
    with calls.running(stream("calls").gate(token_bucket_gate(capacity=2, refill_per_sec=1000)).to("out")):
        eventually(lambda: len(calls.events("out")) == 12, "all pass, though they were to wait for long")


def test_a_lane_is_paused_and_resumed_and_held_back_for_a_while(calls: Bench) -> None:
    gate = calls.penstock.gate("q")
    fast = stream("calls").gate(token_bucket_gate(capacity=2, refill_per_sec=50)).to("out")
    with calls.running(fast):
        eventually(lambda: len(calls.events("out")) == 12, "all pass")
        gate.pause("t0")
        gate.hold("t1", seconds=1.5)
        said = datetime.now(UTC)
        calls.push([(key, {"seq": 6}) for key in ("t0", "t1", "t2")], "calls")
        eventually(lambda: passed(calls, "t1") == 7, "what was held back passes after its time")
        assert (passed(calls, "t0"), passed(calls, "t2")) == (6, 1)
        last = [event for event in calls.events("out") if event.key == "t1"][-1]
        assert micros(last.appended_at) >= micros(said) + 1_400_000, "not before"
        assert {info.key for info in gate.list() if info.paused} == {"t0"}
        eventually(lambda: calls.ask(ASLEEP, "t0") == 1, "nobody looks at what is paused")
        calls.ask(DEAFEN)
        gate.resume("t0")
        eventually(lambda: passed(calls, "t0") == 7, "what was paused passes, also if the driver did not hear of it")


def test_what_waits_for_long_is_put_back_when_too_much_is_at_hand_and_read_again_when_it_may_pass(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_loop, "MOST_AT_HAND", 12)
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"seq": i}) for i in range(6) for t in range(10)), "calls")
    with bench.running(SLOW):
        put_back = "SELECT count(*) FROM penstock.gate_lanes WHERE put_back > 0"
        eventually(lambda: bench.ask(put_back) >= 4, "2 of each pass, 2 of each are left at hand, and 12 may be")
        bench.push([(f"t{t}", {"seq": 6}) for t in range(10)], "calls")
        bench.penstock.gate("q").set("t9", rate=1000)
        eventually(lambda: passed(bench, "t9") == 7, "the lane that was given more passes")
        assert len(bench.events("out")) == 25
        bench.penstock.gate("q").set(rate=1000)
        eventually(lambda: len(bench.events("out")) == 70, "all pass")
    lanes: dict[str, list[int]] = {}
    for event in bench.events("out"):
        lanes.setdefault(str(event.key), []).append(event.data["seq"])
    assert lanes == {f"t{t}": list(range(7)) for t in range(10)}


@pytest.mark.chaos
def test_lanes_that_are_put_back_again_and_again_pass_in_order_within_their_limits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_loop, "MOST_AT_HAND", 20)
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"seq": i}) for i in range(8) for t in range(40)), "calls")
    gate = token_bucket_gate(capacity=2, refill_per_sec=0.2)
    put_back = "SELECT sum(put_back) FROM penstock.gate_lanes"
    with bench.running(stream("calls").gate(gate).to("out")):
        marks = set()
        while len(bench.events("out")) < 320:
            marks.add(bench.ask(put_back))
            bench.penstock.gate("q").set("t0", weight=1 + len(marks) % 2)  # looks at a lane again, at any moment
            time.sleep(0.05)
    assert len(marks) > 3, "what was read again was put back again"
    lanes: dict[str, list[Any]] = {}
    for event in bench.events("out"):
        lanes.setdefault(str(event.key), []).append(event)
    for events in lanes.values():
        assert [event.data["seq"] for event in events] == list(range(8))
        times = [(micros(event.appended_at), NANO) for event in events]
        assert limiter.bucket_is_kept(times, 2 * NANO, NANO // 5)


def test_no_more_are_in_flight_than_the_limit_and_an_ack_lets_the_next_through(calls: Bench) -> None:
    workers = calls.penstock.queue("out").group("workers").batch(10)
    gated = stream("calls").gate(concurrency_gate(limit=2, group="workers")).to("out")
    with calls.running(gated):
        seen: dict[str, list[int]] = {"t0": [], "t1": []}
        while any(len(seqs) < 6 for seqs in seen.values()):
            events: list[Any] = workers.wait().timeout_millis(30_000).pop()
            assert len(events) <= 2
            lag = {lane.partition: lane.lag for lane in workers.lanes()}
            assert all(behind <= 2 for behind in lag.values())
            for event in events:
                seen[event.key].append(event.data["seq"])
            calls.penstock.ack(events)
        assert seen == {"t0": list(range(6)), "t1": list(range(6))}


def test_lanes_that_share_a_limit_are_served_in_turn(calls: Bench) -> None:
    shared = stream("calls").gate(token_bucket_gate(capacity=1, refill_per_sec=20, shared=True)).to("out")
    calls.run(shared)
    order = sorted(calls.events("out"), key=lambda event: (event.appended_at, event.key))
    assert [event.data["seq"] for event in order] == [i for i in range(6) for _ in range(2)]
    assert calls.ask("SELECT to_jsonb(g) ->> 'allowed_total' FROM penstock.gates g") == "12"


def test_an_event_that_costs_much_has_its_turn_among_those_that_cost_little(bench: Bench) -> None:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"cost": 1}) for _ in range(30) for t in range(3)), "calls")
    bench.push([("dear", {"cost": 10})], "calls")
    gate = token_bucket_gate(capacity=10, refill_per_sec=40, cost_fn="cost", shared=True)
    bench.run(stream("calls", schema={"cost": "int"}).gate(gate).to("out"))
    order = sorted(bench.events("out"), key=lambda event: event.appended_at)
    assert len(order) == 91
    assert [event.key for event in order].index("dear") < 45


def test_times_that_the_consumer_sees_keep_the_limit_when_the_clock_goes_back(calls: Bench) -> None:
    # One partition for all, so that each sees what the others are stamped with.
    calls.queue("mixed", "hash", 1)
    gated = stream("calls").gate(token_bucket_gate(capacity=4, refill_per_sec=10)).to("mixed")
    calls.run(gated)
    with psycopg.connect(calls.url, autocommit=True) as conn:
        # What the gates remember lies in the future, as it does when the clock has been put back.
        conn.execute("UPDATE penstock.queries SET gate_time = gate_time + interval '2 seconds'")
        conn.execute("UPDATE penstock.gate_states SET at_us = at_us + 2000000 WHERE partition_id % 2 = 0")
    calls.push([(f"t{t}", {"seq": 6 + i}) for i in range(6) for t in range(3)], "calls")
    calls.run(gated)
    lanes: dict[str, list[tuple[int, int]]] = {}
    for event in calls.events("mixed"):
        lanes.setdefault(str(event.key), []).append((micros(event.appended_at), NANO))
    assert {key: len(times) for key, times in lanes.items()} == {"t0": 12, "t1": 12, "t2": 6}
    for times in lanes.values():
        assert limiter.bucket_is_kept(sorted(times), 4 * NANO, 10 * NANO)


def test_the_recipes_queries_run_word_for_word(calls: Bench) -> None:
    from penstock.db.pool import Database
    from penstock.engine.driver.event_loop import Background
    from penstock.engine.gates.admin import GateBook

    with calls.running(SLOW, "ota-rate-limiter.v1"):
        eventually(lambda: len(calls.events("out")) == 4, "two of each pass")
    background, database = Background("compat"), Database(calls.settings)
    try:
        background.run(database.open())
        assert background.run(GateBook(database).make_compatible())
        assert not background.run(GateBook(database).make_compatible()), "a second time nothing happens"
        background.run(database.close())
    finally:
        background.close()
    with psycopg.connect(calls.url) as conn:
        rows = conn.execute(LOWEST_FIRST.encode()).fetchall()
        assert [(key, allowed, cost) for key, _, allowed, cost, _ in sorted(rows)] == [("t0", 2, 2), ("t1", 2, 2)]
        assert all(0 <= tokens < 0.1 for _, tokens, *_ in rows)
        assert sorted(key for key, _ in conn.execute(EMPTY.encode()).fetchall()) == ["t0", "t1"]


def test_what_cannot_be_changed_is_refused(calls: Bench) -> None:
    with calls.running(SLOW):
        eventually(lambda: len(calls.events("out")) == 4, "two of each pass")
    gate = calls.penstock.gate("q")
    with pytest.raises(InvalidOption, match=r"window_seconds: none of its gates has one; the query's gates are 1"):
        gate.set("t0", window_seconds=5)
    with pytest.raises(InvalidOption, match="rate must be a number above 0"):
        gate.set("t0", rate=0)
    with pytest.raises(NotFound, match="there is no query 'nobody' with a gate"):
        calls.penstock.gate("nobody").pause()
