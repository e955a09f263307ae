from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock.db.sync_connection import connect, connect_for_user_sql

Connect = Callable[[str, str], psycopg.Connection[Any]]


@pytest.mark.parametrize("how", [connect, connect_for_user_sql])
def test_connections_have_keepalives_and_show_their_purpose(database_url: str, how: Connect) -> None:
    with how(database_url, "worker") as conn:
        parameters = conn.info.get_parameters()
        assert (parameters["connect_timeout"], parameters["keepalives_idle"], parameters["keepalives_count"]) == (
            "10",
            "30",
            "3",
        )
        assert conn.autocommit
        settings = conn.execute("SELECT current_setting('application_name'), current_setting('TimeZone')").fetchone()
        assert settings == ("penstock worker", "UTC")


def test_the_connection_string_overrides_the_defaults(database_url: str) -> None:
    separator = "&" if "?" in database_url else "?"
    with connect(f"{database_url}{separator}connect_timeout=3&keepalives_idle=7", "worker") as conn:
        parameters = conn.info.get_parameters()
        assert (parameters["connect_timeout"], parameters["keepalives_idle"]) == ("3", "7")


def test_only_penstocks_own_sessions_are_tuned_for_lookups(database_url: str) -> None:
    question = "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan')"
    with connect(database_url, "worker") as ours, connect_for_user_sql(database_url, "reference") as theirs:
        assert ours.execute(question).fetchone() == ("force_generic_plan", "off")
        assert theirs.execute(question).fetchone() == ("auto", "on")
