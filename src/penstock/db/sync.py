"""A connection for code that is not asynchronous, such as what Spark calls."""

from __future__ import annotations

from typing import Any

import psycopg

from penstock.db.pool import SESSION, connect_options


def connect(conninfo: str, purpose: str) -> psycopg.Connection[Any]:
    """An autocommitting connection, set up as those of the pool are; the server's list of them shows what for."""
    options = {**connect_options(conninfo), "application_name": f"penstock {purpose}"}
    conn = psycopg.connect(conninfo, **options)
    conn.execute(SESSION)
    return conn


def connect_plainly(conninfo: str, purpose: str) -> psycopg.Connection[Any]:
    """The same for statements of a user's, which PostgreSQL plans as it sees fit."""
    options = {**connect_options(conninfo), "application_name": f"penstock {purpose}", "prepare_threshold": None}
    conn = psycopg.connect(conninfo, **options)
    conn.execute("SET TimeZone = 'UTC'")
    return conn
