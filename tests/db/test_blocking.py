"""Connections of code that is not asynchronous are set up as those of the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock.db.sync import connect, connect_plainly

Connect = Callable[[str, str], psycopg.Connection[Any]]


@pytest.mark.parametrize("how", [connect, connect_plainly])
def test_a_dead_peer_is_noticed_and_the_purpose_is_shown(database_url: str, how: Connect) -> None:
    with how(database_url, "worker") as conn:
        said = conn.info.get_parameters()
        assert (said["connect_timeout"], said["keepalives_idle"], said["keepalives_count"]) == ("10", "30", "3")
        assert conn.autocommit
        shown = conn.execute("SELECT current_setting('application_name'), current_setting('TimeZone')").fetchone()
        assert shown == ("penstock worker", "UTC")


def test_what_the_connection_string_says_counts(database_url: str) -> None:
    apart = "&" if "?" in database_url else "?"
    with connect(f"{database_url}{apart}connect_timeout=3&keepalives_idle=7", "worker") as conn:
        said = conn.info.get_parameters()
        assert (said["connect_timeout"], said["keepalives_idle"]) == ("3", "7")


def test_our_own_statements_are_planned_for_look_ups_and_a_users_are_not(database_url: str) -> None:
    question = "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan')"
    with connect(database_url, "worker") as ours, connect_plainly(database_url, "reference") as theirs:
        assert ours.execute(question).fetchone() == ("force_generic_plan", "off")
        assert theirs.execute(question).fetchone() == ("auto", "on")
