"""Whoever writes into the table of limits need know nothing else: the rest happens in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

WAITING = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0);
INSERT INTO penstock.gate_lanes (query_id, partition_id, key, wakes_at, next_at, wants, decided_at)
SELECT q.id, n, 't' || n, now() + interval '1 day', now() + interval '1 day', 10, now()
FROM penstock.queries q, generate_series(1, 2) AS n;
INSERT INTO penstock.gate_states (query_id, partition_id, gate, amount, rate, at_us, level)
SELECT q.id, n, 1, 100, 1, penstock.micros(clock_timestamp()) - 10000000, 0
FROM penstock.queries q, generate_series(1, 2) AS n;
LISTEN penstock_gates
"""
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
def test_a_change_wakes_its_lane_settles_its_bucket_and_is_told(conn: psycopg.Connection[Any], change: str) -> None:
    if change != "insert":
        conn.execute(CHANGES["insert"].encode())
    conn.execute(WAITING.encode())
    conn.execute(CHANGES[change].encode())

    lanes = conn.execute("SELECT key FROM penstock.gate_lanes WHERE wakes_at IS NULL AND next_at IS NULL").fetchall()
    assert lanes == [("t1",)]
    levels = dict(conn.execute("SELECT partition_id, level FROM penstock.gate_states").fetchall())
    assert levels[2] == 0, "the lane that nothing changed for is as it was"
    assert 10 <= levels[1] < 50, "what was refilled before the change was refilled as the limit was then"
    assert [notice.payload for notice in conn.notifies(timeout=5, stop_after=1)] == ["q"]


def test_a_change_for_all_keys_concerns_every_lane_and_what_they_share(conn: psycopg.Connection[Any]) -> None:
    conn.execute(WAITING.encode())
    shared = "UPDATE penstock.gate_states SET partition_id = 0 WHERE partition_id = 2"
    conn.execute(shared.encode())
    conn.execute(b"INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES ('q', '', 1, 50), ('p', '', 1, 5)")

    assert conn.execute("SELECT count(*) FROM penstock.gate_lanes WHERE wakes_at IS NULL").fetchall() == [(2,)]
    levels = conn.execute("SELECT level FROM penstock.gate_states").fetchall()
    assert all(10 <= level < 50 for (level,) in levels)


def test_limits_of_a_query_that_was_never_started_wait_for_it(conn: psycopg.Connection[Any]) -> None:
    conn.execute(CHANGES["insert"].encode())
    assert conn.execute("SELECT rate FROM penstock.gate_limits").fetchall() == [(50,)]
