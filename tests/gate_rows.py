"""Rows of a query with a gate, for tests that read and change limits without running the query."""

from __future__ import annotations

import psycopg

QUERY = "ota-limiter"


def insert_gated_query(url: str) -> None:
    """Insert a token bucket of 200 with two keys: one that is denied and empty, one that is nearly full."""
    with psycopg.connect(url) as conn:
        row = conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) "
            "VALUES (%s, '{gate}', 'x', 1) RETURNING id",
            (QUERY,),
        ).fetchone()
        assert row is not None
        conn.execute(
            "INSERT INTO penstock.gate_rules (query_id, gate, kind, amount, rate, shared) "
            "VALUES (%s, 1, 'token_bucket', 200, 0.001, false)",
            row,
        )
        for partition, key, denied in ((1, "tenant-1", False), (7, "tenant-7", True)):
            conn.execute(
                "INSERT INTO penstock.gate_keys (query_id, partition_id, key, passed, allowed, denied_since, next_at, "
                "wants, decided_at) VALUES (%s, %s, %s, 10, 10, CASE WHEN %s THEN now() END, "
                "now() + interval '1 hour', 5, now())",
                (row[0], partition, key, denied),
            )
            conn.execute(
                "INSERT INTO penstock.gate_states (query_id, partition_id, gate, amount, rate, at_us, level, "
                "cost_total) VALUES (%s, %s, 1, 200, 0.001, penstock.micros(now()), %s, 12.5)",
                (row[0], partition, 0 if denied else 190),
            )
