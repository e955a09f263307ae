"""Sizes on disk."""

from __future__ import annotations

import psycopg


def stored_bytes(url: str) -> int:
    """Return the size of all Penstock tables of a database, with TOAST and indexes."""
    query = """SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
        WHERE relnamespace = 'penstock'::regnamespace AND relkind = 'r'"""
    with psycopg.connect(url) as conn:
        row = conn.execute(query).fetchone()
    return int(row[0]) if row is not None else 0
