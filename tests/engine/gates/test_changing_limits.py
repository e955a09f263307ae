"""Limits that change while a query runs: for one key or all keys, paused, resumed and held."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from penstock import concurrency_gate, token_bucket_gate
from penstock.core.errors import InvalidOption, NotFound
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.conditions import eventually
from tests.engine.gates import ideal_limiter
from tests.engine.oracle import micros
from tests.engine.pipelines import Bench, stream

#: Whether the partition of a key is parked.
IS_PARKED = """
SELECT count(*) FROM penstock.cursors c JOIN penstock.gate_keys l USING (partition_id) WHERE c.state = 3 AND l.key = %s
"""
#: How many events the cycles have read, those that were read again included.
EVENTS_READ = "SELECT sum(planned) FROM penstock.cycles"
#: Close the connection on which a driver listens for changes.
STOP_LISTENING = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'LISTEN penstock_gates'"

SLOW = stream("calls").gate(token_bucket_gate(capacity=2, refill_per_sec=0.001)).to("out")

#: The queries of the recipe, unchanged.
LOWEST_FIRST = """
SELECT
    s.key                         AS tenant_or_partition,
    (s.value->>'tokens')::float   AS tokens_remaining,
    (s.value->>'allowedTotal')::int AS lifetime_allowed,
    (s.value->>'consumedTotal')::int AS lifetime_cost,
    s.updated_at
FROM queen_streams.state s
JOIN queen_streams.queries q ON q.id = s.query_id
WHERE q.name = 'ota-rate-ideal_limiter.v1'
ORDER BY tokens_remaining ASC
LIMIT 20;
"""
EMPTY = """
SELECT s.key, (s.value->>'tokens')::float AS tokens
FROM queen_streams.state s
JOIN queen_streams.queries q ON q.id = s.query_id
WHERE q.name = 'ota-rate-ideal_limiter.v1'
  AND (s.value->>'tokens')::float < 1
ORDER BY s.updated_at DESC;
"""


@pytest.fixture
def calls(bench: Bench) -> Bench:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"seq": i}) for i in range(6) for t in range(2)), "calls")
    return bench


def released(bench: Bench, key: str) -> int:
    return sum(1 for event in bench.events("out") if event.key == key)


def test_raised_limits_release_events_at_once(calls: Bench) -> None:
    gate = calls.penstock.gate("q")
    with calls.running(SLOW):
        eventually(lambda: len(calls.events("out")) == 4, "two events of each key are released")
        gate.set("t0", rate=1000)
        eventually(lambda: released(calls, "t0") == 6, "all events of the key with the higher limit are released")
        assert released(calls, "t1") == 2
        gate.set(rate=500)
        eventually(lambda: released(calls, "t1") == 6, "a limit for all keys releases the others")
        rates = {info.key: info.rate for info in gate.list()}
        assert rates == {"t0": 1000, "t1": 500}, "the limit of a key takes precedence over that of all keys"
        gate.set("t0", clear=True)
        assert {info.key: info.rate for info in gate.list()} == {"t0": 500, "t1": 500}


def test_limits_written_to_the_table_apply_at_once(calls: Bench) -> None:
    weights = "INSERT INTO penstock.gate_limits (query, key, gate, weight) VALUES ('q', '', 0, 2)"
    contract = "INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't0', 1, 1000)"
    parked = """
        SELECT count(*) FROM penstock.cursors c JOIN penstock.gate_keys l USING (partition_id)
        WHERE c.state = 3 AND l.next_at IS NOT NULL
    """
    with calls.running(SLOW), psycopg.connect(calls.url, autocommit=True) as conn:
        eventually(lambda: calls.ask(parked) == 2, "both partitions are parked")
        conn.execute(weights.encode())
        eventually(lambda: calls.ask(parked) == 2, "they are parked again after the change for all keys")
        conn.execute(contract.encode())
        eventually(lambda: released(calls, "t0") == 6, "all events of the key with the higher limit are released")
        assert released(calls, "t1") == 2


def test_a_restart_with_higher_limits_releases_parked_partitions(calls: Bench) -> None:
    with calls.running(SLOW):
        eventually(
            lambda: calls.ask("SELECT count(*) FROM penstock.cursors WHERE state = 3") == 2,
            "both partitions are parked",
        )
    with calls.running(stream("calls").gate(token_bucket_gate(capacity=2, refill_per_sec=1000)).to("out")):
        eventually(
            lambda: len(calls.events("out")) == 12, "all events are released, although they had to wait for long"
        )


def test_a_key_is_paused_resumed_and_held(calls: Bench) -> None:
    gate = calls.penstock.gate("q")
    fast = stream("calls").gate(token_bucket_gate(capacity=2, refill_per_sec=50)).to("out")
    with calls.running(fast):
        eventually(lambda: len(calls.events("out")) == 12, "all events are released")
        gate.pause("t0")
        gate.hold("t1", seconds=1.5)
        held_at = datetime.now(UTC)
        calls.push([(key, {"seq": 6}) for key in ("t0", "t1", "t2")], "calls")
        eventually(lambda: released(calls, "t1") == 7, "the held event is released after the hold")
        assert (released(calls, "t0"), released(calls, "t2")) == (6, 1)
        last = [event for event in calls.events("out") if event.key == "t1"][-1]
        assert micros(last.appended_at) >= micros(held_at) + 1_400_000, "not before its end"
        assert {info.key for info in gate.list() if info.paused} == {"t0"}
        eventually(lambda: calls.ask(IS_PARKED, "t0") == 1, "the paused partition is parked")
        calls.ask(STOP_LISTENING)
        gate.resume("t0")
        eventually(
            lambda: released(calls, "t0") == 7, "the event is released, although the driver missed the notification"
        )


def test_parked_partitions_are_evicted_from_a_full_buffer_and_read_again(bench: Bench) -> None:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"seq": i}) for i in range(6) for t in range(10)), "calls")
    with bench.running(SLOW, gate_buffer_events=12):
        parked = "SELECT count(*) FROM penstock.cursors WHERE state = 3"
        eventually(lambda: bench.ask(parked) == 10, "of 10 keys, 2 events are released, 2 are buffered, and 12 may be")
        bench.push([(f"t{t}", {"seq": 6}) for t in range(10)], "calls")
        bench.penstock.gate("q").set("t9", rate=1000)
        eventually(lambda: released(bench, "t9") == 7, "the key with the higher limit is released")
        assert len(bench.events("out")) == 25
        bench.penstock.gate("q").set(rate=1000)
        eventually(lambda: len(bench.events("out")) == 70, "all events are released")
    assert bench.ask(EVENTS_READ) >= 70 + 2 * 4, "at least 4 keys were evicted and read again"
    sequences: dict[str, list[int]] = {}
    for event in bench.events("out"):
        sequences.setdefault(str(event.key), []).append(event.data["seq"])
    assert sequences == {f"t{t}": list(range(7)) for t in range(10)}


@pytest.mark.long
def test_repeated_evictions_keep_the_order_and_the_limits(bench: Bench) -> None:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"seq": i}) for i in range(8) for t in range(40)), "calls")
    gate = token_bucket_gate(capacity=2, refill_per_sec=0.2)
    with bench.running(stream("calls").gate(gate).to("out"), gate_buffer_events=20):
        weight = 1
        while len(bench.events("out")) < 320:
            weight = 3 - weight
            bench.penstock.gate("q").set("t0", weight=weight)  # reschedules the partition
            time.sleep(0.05)
    assert bench.ask(EVENTS_READ) > 3 * 320, "events that were read again were evicted again"
    by_key: dict[str, list[Any]] = {}
    for event in bench.events("out"):
        by_key.setdefault(str(event.key), []).append(event)
    for events in by_key.values():
        assert [event.data["seq"] for event in events] == list(range(8))
        times = [(micros(event.appended_at), TOKEN) for event in events]
        assert ideal_limiter.respects_bucket(times, 2 * TOKEN, TOKEN // 5)


def test_a_concurrency_gate_limits_events_in_flight_until_they_are_acked(calls: Bench) -> None:
    workers = calls.penstock.queue("out").group("workers").batch(10)
    gated = stream("calls").gate(concurrency_gate(limit=2, group="workers")).to("out")
    with calls.running(gated):
        seen: dict[str, list[int]] = {"t0": [], "t1": []}
        while any(len(seqs) < 6 for seqs in seen.values()):
            events: list[Any] = workers.wait().timeout_millis(30_000).pop()
            assert len(events) <= 2
            lag = {position.partition: position.lag for position in workers.positions()}
            assert all(behind <= 2 for behind in lag.values())
            for event in events:
                seen[event.key].append(event.data["seq"])
            calls.penstock.ack(events)
        assert seen == {"t0": list(range(6)), "t1": list(range(6))}


def test_keys_of_a_shared_gate_are_served_in_turn(calls: Bench) -> None:
    shared = stream("calls").gate(token_bucket_gate(capacity=1, refill_per_sec=20, shared=True)).to("out")
    calls.run(shared)
    order = sorted(calls.events("out"), key=lambda event: (event.appended_at, event.key))
    assert [event.data["seq"] for event in order] == [i for i in range(6) for _ in range(2)]
    assert calls.ask("SELECT to_jsonb(g) ->> 'allowed_total' FROM penstock.gates g") == "12"


def test_an_expensive_event_gets_its_turn_among_cheap_ones(bench: Bench) -> None:
    for name in ("calls", "out"):
        bench.queue(name, "key")
    bench.push(((f"t{t}", {"cost": 1}) for _ in range(30) for t in range(3)), "calls")
    bench.push([("expensive", {"cost": 10})], "calls")
    gate = token_bucket_gate(capacity=10, refill_per_sec=40, cost_fn="cost", shared=True)
    bench.run(stream("calls", schema={"cost": "int"}).gate(gate).to("out"))
    order = sorted(bench.events("out"), key=lambda event: event.appended_at)
    assert len(order) == 91
    assert [event.key for event in order].index("expensive") < 45


def test_append_times_respect_the_limit_when_the_clock_goes_back(calls: Bench) -> None:
    # A single partition, whose append times never go back.
    calls.queue("mixed", "hash", 1)
    gated = stream("calls").gate(token_bucket_gate(capacity=4, refill_per_sec=10)).to("mixed")
    calls.run(gated)
    with psycopg.connect(calls.url, autocommit=True) as conn:
        # The stored state lies in the future, as after a clock that was set back.
        conn.execute("UPDATE penstock.queries SET gate_time = gate_time + interval '2 seconds'")
        conn.execute("UPDATE penstock.gate_states SET at_us = at_us + 2000000 WHERE partition_id % 2 = 0")
    calls.push([(f"t{t}", {"seq": 6 + i}) for i in range(6) for t in range(3)], "calls")
    calls.run(gated)
    grants: dict[str, list[tuple[int, int]]] = {}
    for event in calls.events("mixed"):
        grants.setdefault(str(event.key), []).append((micros(event.appended_at), TOKEN))
    assert {key: len(times) for key, times in grants.items()} == {"t0": 12, "t1": 12, "t2": 6}
    for times in grants.values():
        assert ideal_limiter.respects_bucket(sorted(times), 4 * TOKEN, 10 * TOKEN)


def test_the_queries_of_the_queen_recipe_run_unchanged(calls: Bench) -> None:
    from penstock.core.event_loop import EventLoopThread
    from penstock.db.pool import Database
    from penstock.engine.gates.gate_admin import GateAdmin

    with calls.running(SLOW, "ota-rate-ideal_limiter.v1"):
        eventually(lambda: len(calls.events("out")) == 4, "two events of each key are released")
    background, database = EventLoopThread("compat"), Database(calls.settings)
    try:
        background.run(database.open())
        assert background.run(GateAdmin(database).create_queen_views())
        assert not background.run(GateAdmin(database).create_queen_views()), "the second call does nothing"
        background.run(database.close())
    finally:
        background.close()
    with psycopg.connect(calls.url) as conn:
        rows = conn.execute(LOWEST_FIRST.encode()).fetchall()
        assert [(key, allowed, cost) for key, _, allowed, cost, _ in sorted(rows)] == [("t0", 2, 2), ("t1", 2, 2)]
        assert all(0 <= tokens < 0.1 for _, tokens, *_ in rows)
        assert sorted(key for key, _ in conn.execute(EMPTY.encode()).fetchall()) == ["t0", "t1"]


def test_invalid_changes_are_rejected(calls: Bench) -> None:
    with calls.running(SLOW):
        eventually(lambda: len(calls.events("out")) == 4, "two events of each key are released")
    gate = calls.penstock.gate("q")
    with pytest.raises(InvalidOption, match=r"window_seconds: no gate of the query has it; the query's gates are 1"):
        gate.set("t0", window_seconds=5)
    with pytest.raises(InvalidOption, match="rate must be a number above 0"):
        gate.set("t0", rate=0)
    with pytest.raises(NotFound, match="there is no query 'nobody' with a gate"):
        calls.penstock.gate("nobody").pause()
