"""Writes to ``penstock.gate_limits`` settle buckets and resume partitions in the same transaction, by triggers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from penstock.engine.gates.rate_limiters import BucketMeter, Limit, MeterState
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN

WAITING = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0);
INSERT INTO penstock.gate_keys (query_id, partition_id, key, wakes_at, next_at, wants, decided_at)
SELECT q.id, n, 't' || n, now() + interval '1 day', now() + interval '1 day', 10, now()
FROM penstock.queries q, generate_series(1, 2) AS n;
INSERT INTO penstock.gate_states (query_id, partition_id, gate, amount, rate, at_us, level)
SELECT q.id, n, 1, 100, 1, penstock.micros(clock_timestamp()) - 10000000, 0
FROM penstock.queries q, generate_series(1, 2) AS n;
INSERT INTO penstock.gate_rules (query_id, gate, kind, amount, rate, shared)
SELECT q.id, 1, 'token_bucket', 100, 1, false FROM penstock.queries q;
LISTEN penstock_gates
"""
TEN_SECONDS_LATER = "UPDATE penstock.gate_states SET at_us = at_us - 10000000"
CHANGES = {
    "insert": "INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't1', 1, 50)",
    "update": "UPDATE penstock.gate_limits SET rate = 60 WHERE key = 't1'",
    "delete": "DELETE FROM penstock.gate_limits WHERE key = 't1'",
}


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as made:
        yield made


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_resumes_its_partition_settles_its_bucket_and_notifies(
    conn: psycopg.Connection[Any], change: str
) -> None:
    if change != "insert":
        conn.execute(CHANGES["insert"].encode())
    conn.execute(WAITING.encode())
    conn.execute(CHANGES[change].encode())

    resumed = conn.execute("SELECT key FROM penstock.gate_keys WHERE wakes_at IS NULL AND next_at IS NULL").fetchall()
    assert resumed == [("t1",)]
    levels = dict(conn.execute("SELECT partition_id, level FROM penstock.gate_states").fetchall())
    assert levels[2] == 0, "the other partition is unchanged"
    assert 10 <= levels[1] < 50, "time before the change is refilled at the old rate"
    payloads = [notification.payload for notification in conn.notifies(timeout=5, stop_after=2)]
    assert payloads == ['["q", "t1"]', "q"], "drivers of earlier versions expect the name alone"


def test_a_change_for_all_keys_settles_every_partition_and_shared_gates(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    conn.execute(b"UPDATE penstock.gate_states SET partition_id = 0, gate = 2 WHERE partition_id = 2")
    conn.execute(
        b"INSERT INTO penstock.gate_rules (query_id, gate, kind, amount, rate, shared) "
        b"SELECT id, 2, 'token_bucket', 100, 1, true FROM penstock.queries"
    )
    conn.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', '', 1, 50), ('p', '', 1, 5)")

    assert conn.execute("SELECT count(*) FROM penstock.gate_keys WHERE wakes_at IS NULL").fetchall() == [(2,)]
    levels = conn.execute("SELECT level FROM penstock.gate_states").fetchall()
    assert all(10 <= level < 50 for (level,) in levels)


def test_limits_can_be_set_before_the_query_is_started(conn: psycopg.Connection[Any]) -> None:
    conn.execute(CHANGES["insert"].encode())
    assert conn.execute("SELECT rate FROM penstock.gate_limits").fetchall() == [(50,)]


def level(conn: psycopg.Connection[Any], partition: int = 1) -> Decimal:
    """The stored level of a partition's bucket."""
    stored: Decimal = conn.execute(
        "SELECT level FROM penstock.gate_states WHERE partition_id = %s", [partition]
    ).fetchall()[0][0]
    return stored


def hold(conn: psycopg.Connection[Any], seconds: float) -> None:
    conn.execute(
        "INSERT INTO penstock.gate_limits (query, key, gate, hold_until) "
        "VALUES ('q', 't1', 0, clock_timestamp() + make_interval(secs => %s)) "
        "ON CONFLICT (query, key, gate) DO UPDATE SET hold_until = excluded.hold_until",
        [seconds],
    )


def test_a_bucket_is_refilled_at_the_rate_in_force_between_changes(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    conn.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't1', 1, 3)")
    assert 10 <= level(conn) < 11
    conn.execute(TEN_SECONDS_LATER.encode())
    conn.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, paused) VALUES ('q', 't1', 0, true)")
    assert 40 <= level(conn) < 45
    conn.execute(TEN_SECONDS_LATER.encode())
    conn.execute(b"DELETE FROM penstock.gate_limits WHERE gate = 1")
    assert 70 <= level(conn) < 75
    conn.execute(TEN_SECONDS_LATER.encode())
    conn.execute(b"UPDATE penstock.gate_limits SET paused = false")
    assert 80 <= level(conn) < 85, "without an override, the limit of the gate applies"


def test_tokens_lost_to_a_smaller_capacity_do_not_come_back(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    conn.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, amount) VALUES ('q', 't1', 1, 4)")
    conn.execute(b"UPDATE penstock.gate_limits SET amount = 1000")
    assert 4 <= level(conn) < 5


def test_a_held_bucket_stays_empty_after_other_changes(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    hold(conn, 3600)
    conn.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't1', 1, 2)")
    assert level(conn) == 0
    conn.execute(TEN_SECONDS_LATER.encode())
    hold(conn, 0)
    assert level(conn) == 0, "a hold that is shortened refills nothing either"


def test_a_bucket_is_refilled_from_the_end_of_a_hold_on(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    hold(conn, -4)
    conn.execute(b"DELETE FROM penstock.gate_limits")
    assert 4 <= level(conn) < 9


#: A partition without releases so far, and one that no driver has seen yet.
UNUSED = """
INSERT INTO penstock.queues (name, partitioning, dedup_window_seconds) VALUES ('calls', 'key', 60);
INSERT INTO penstock.groups (queue_id, name, epoch, subscribed_from, query_id)
SELECT id, 'q', epoch, 'all', 'q' FROM penstock.queues;
INSERT INTO penstock.partitions (id, queue_id, epoch, name) OVERRIDING SYSTEM VALUE
SELECT 7, id, epoch, 'new' FROM penstock.queues;
DELETE FROM penstock.gate_states
"""


@pytest.mark.parametrize(
    ("key", "end"),
    [("t1", "DELETE FROM"), ("new", "DELETE FROM"), ("", "DELETE FROM"), ("t1", "TRUNCATE"), ("", "UPDATE")],
)
def test_a_hold_leaves_an_empty_bucket_without_any_release_before(
    conn: psycopg.Connection[Any], key: str, end: str
) -> None:
    conn.execute(WAITING.encode())
    conn.execute(UNUSED.encode())
    hold = "VALUES ('q', %s, 0, clock_timestamp() + interval '1 hour')"
    conn.execute(f"INSERT INTO penstock.gate_limits (query, key, gate, hold_until) {hold}".encode(), [key])
    conn.execute(f"{end} penstock.gate_limits{' SET hold_until = NULL' if end == 'UPDATE' else ''}".encode())
    rows = conn.execute("SELECT partition_id, level, amount, rate FROM penstock.gate_states ORDER BY 1").fetchall()
    expected = {"t1": [1], "new": [7], "": [1, 2, 7]}[key]
    assert rows == [(partition, 0, 100, 1) for partition in expected]


def test_a_hold_that_ended_long_ago_leaves_no_state(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    conn.execute(UNUSED.encode())
    hold(conn, -3600)
    conn.execute(b"DELETE FROM penstock.gate_limits")
    assert conn.execute("SELECT count(*) FROM penstock.gate_states").fetchall() == [(0,)]


def test_limits_of_a_restarted_stream_apply_from_the_restart_on(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    conn.execute(b"UPDATE penstock.gate_rules SET rate = 50")
    conn.execute(b"SELECT penstock.settle_gates(ARRAY['q'], ARRAY[''], NULL)")
    assert 10 <= level(conn) < 15
    assert conn.execute("SELECT rate FROM penstock.gate_states").fetchall() == [(50,), (50,)]
    assert conn.execute("SELECT count(*) FROM penstock.gate_keys WHERE wakes_at IS NULL").fetchall() == [(2,)]


def test_the_database_and_the_driver_compute_the_same_tokens(conn: psycopg.Connection[Any]) -> None:
    chance = random.Random(5)
    for _ in range(300):
        now = 1_800_000_000_000_000
        amount, rate = chance.randint(1, 10**12), chance.choice([1, TOKEN // 7, TOKEN, 10**15])
        at = now - chance.choice([0, 1, 999_999, chance.randint(1, 10**9)])
        held = chance.choice([0, 0, at - 1, at, at + 1, now, now + 5_000_000, chance.randint(at, now)])
        before = MeterState(at, level=chance.randint(0, amount * 1_000_000))
        meter = BucketMeter(Limit("token_bucket", amount, rate=rate), before, now, held)
        row = conn.execute(
            "SELECT penstock.tokens(%s::numeric, %s::numeric, %s::numeric, %s, %s, %s) * 1000000000000000",
            [f"{amount}e-9", f"{rate}e-9", f"{before.level}e-15", at, held or None, now],
        ).fetchall()
        assert meter.state().level == row[0][0], (amount, rate, before, held)


@pytest.mark.parametrize(
    "wrong",
    [
        b"UPDATE penstock.gate_limits SET rate = 1e-10",
        b"UPDATE penstock.gate_limits SET rate = 'NaN'",
        b"UPDATE penstock.gate_limits SET amount = 'Infinity'",
        b"UPDATE penstock.gate_limits SET amount = 1e10",
        b"UPDATE penstock.gate_limits SET hold_until = 'infinity'",
    ],
)
def test_limits_out_of_range_are_rejected(conn: psycopg.Connection[Any], wrong: bytes) -> None:
    conn.execute(CHANGES["insert"].encode())
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute(wrong)


def test_truncating_the_table_settles_buckets(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    conn.execute(CHANGES["insert"].encode())
    conn.execute(TEN_SECONDS_LATER.encode())
    conn.execute(b"TRUNCATE penstock.gate_limits")
    assert level(conn) == 100, "10, and 500 at the rate of the override, limited by the capacity"
    assert conn.execute("SELECT rate FROM penstock.gate_states WHERE partition_id = 1").fetchall() == [(1,)]


def test_concurrent_changes_in_different_order_do_not_deadlock(database_url: str) -> None:
    many, one = (psycopg.connect(database_url) for _ in range(2))
    with many, one, ThreadPoolExecutor() as pool:
        many.execute(WAITING.replace("LISTEN penstock_gates", "SELECT 1").encode())
        many.commit()
        many.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't1', 1, 5)")
        change = (
            b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't2', 1, 5), ('q', 't1', 1, 6)"
        )
        later = pool.submit(one.execute, change + b" ON CONFLICT (query, key, gate) DO UPDATE SET rate = 6")
        many.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', 't2', 1, 7)")
        many.commit()
        later.result()
        rates = one.execute("SELECT key, rate FROM penstock.gate_limits ORDER BY key").fetchall()
    assert rates == [("t1", 6), ("t2", 6)]


def test_one_statement_changes_the_limits_of_many_keys(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.replace("generate_series(1, 2)", "generate_series(1, 20000)").encode())
    contracts = "SELECT 'q', 't' || n, 1, 5 FROM generate_series(1, 20000) AS n"
    conn.execute(f"INSERT INTO penstock.gate_limits (query, key, gate, rate) {contracts}".encode())
    conn.execute(b"UPDATE penstock.gate_limits SET rate = 6")
    settled = "SELECT count(*), min(level) >= 10, max(rate) FROM penstock.gate_states WHERE rate = 6"
    assert conn.execute(settled.encode()).fetchall() == [(20_000, True, 6)]
