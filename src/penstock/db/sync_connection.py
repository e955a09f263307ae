"""Synchronous connections, for code that Spark calls."""

from __future__ import annotations

from typing import Any

import psycopg

from penstock.db.pool import SESSION, connect_options


def connect(conninfo: str, purpose: str) -> psycopg.Connection[Any]:
    """Open an autocommitting connection with the settings of the pool. ``purpose`` shows in pg_stat_activity."""
    options = {**connect_options(conninfo), "application_name": f"penstock {purpose}"}
    conn = psycopg.connect(conninfo, **options)
    conn.execute(SESSION)
    return conn


def connect_for_user_sql(conninfo: str, purpose: str) -> psycopg.Connection[Any]:
    """Open an autocommitting connection for statements of users, with PostgreSQL's own planner settings."""
    options = {**connect_options(conninfo), "application_name": f"penstock {purpose}", "prepare_threshold": None}
    conn = psycopg.connect(conninfo, **options)
    conn.execute("SET TimeZone = 'UTC'")
    return conn
