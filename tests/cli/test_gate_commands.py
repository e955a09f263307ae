"""``penstock gate``: state of gates, and changes of their limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from penstock import Stream, agg
from penstock.log.log import Log
from tests import gate_rows
from tests.cli.command_line import Arrange, CommandLine
from tests.console.scripted_query import ScriptedQuery


@pytest.fixture
def gates(cli: CommandLine) -> CommandLine:
    gate_rows.insert_gated_query(str(cli.database_url))
    return cli


def test_list_starts_with_gates_that_have_waiting_events(gates: CommandLine) -> None:
    waiting, other = gates.json("gate", "list")
    assert (waiting["key"], waiting["allowed_total"], waiting["cost_total"], waiting["limit"]) == (
        "tenant-7",
        10,
        12.5,
        200,
    )
    assert waiting["tokens"] < 1 < other["tokens"]
    assert (waiting["denied_since"] is None, other["denied_since"] is None) == (False, True)
    head, first, _ = gates.ok("gate", "list").splitlines()
    assert head.split()[:3] == ["query", "key", "gate"]
    assert first.split()[:2] == [gate_rows.QUERY, "tenant-7"]


def test_limits_of_a_key_are_set_paused_held_and_cleared(gates: CommandLine) -> None:
    def read_limits() -> tuple[float, float, bool, bool]:
        (gate,) = gates.json("gate", "show", gate_rows.QUERY, "tenant-7")
        return gate["rate"], gate["limit"], gate["paused"], gate["hold_until"] is not None

    gates.ok("gate", "set", gate_rows.QUERY, "tenant-7", "--rate", "250", "--capacity", "500")
    assert read_limits() == (250, 500, False, False)
    gates.ok("gate", "pause", gate_rows.QUERY)
    gates.ok("gate", "hold", gate_rows.QUERY, "tenant-7", "--seconds", "30")
    assert read_limits() == (250, 500, True, True)
    gates.ok("gate", "resume", gate_rows.QUERY, "tenant-7")
    assert read_limits() == (250, 500, False, False), "limits of a key take precedence"
    gates.ok("gate", "set", gate_rows.QUERY, "tenant-7", "--clear")
    assert read_limits() == (0.001, 200, True, False)


def test_bucket_refills_at_the_old_rate_until_the_change(gates: CommandLine) -> None:
    gates.ok("gate", "set", gate_rows.QUERY, "tenant-7", "--rate", "250")
    with psycopg.connect(str(gates.database_url)) as conn:
        row = conn.execute("SELECT level FROM penstock.gate_states WHERE partition_id = 7").fetchone()
    assert row is not None
    assert 0 < row[0] < 1


def test_resume_ends_a_hold_and_keeps_the_tokens_of_a_paused_bucket(gates: CommandLine) -> None:
    def tokens() -> float:
        (gate,) = gates.json("gate", "show", gate_rows.QUERY, "tenant-1")
        level: float = gate["tokens"]
        return level

    gates.ok("gate", "pause", gate_rows.QUERY, "tenant-1")
    gates.ok("gate", "resume", gate_rows.QUERY, "tenant-1")
    assert tokens() >= 190
    gates.ok("gate", "hold", gate_rows.QUERY, "tenant-1", "--seconds", "3600")
    gates.ok("gate", "resume", gate_rows.QUERY, "tenant-1")
    assert tokens() < 1


def test_invalid_changes_are_rejected(gates: CommandLine) -> None:
    assert gates.error("gate", "set", gate_rows.QUERY, "tenant-7", "--window", "5")[0] == 2
    assert gates.error("gate", "set", gate_rows.QUERY, "tenant-7")[0] == 2
    assert gates.error("gate", "pause", "nobody")[0] == 3
    assert gates.error("gate", "show", gate_rows.QUERY, "tenant-8")[0] == 3


def test_compat_creates_the_queen_views_once(gates: CommandLine) -> None:
    assert gates.json("db", "compat") == {"made": True}
    assert gates.json("db", "compat") == {"made": False}
    with psycopg.connect(str(gates.database_url)) as conn:
        keys = conn.execute("SELECT key FROM queen_streams.state WHERE (value->>'tokens')::float < 1").fetchall()
        columns = conn.execute(
            "SELECT q.name, q.source_queue, q.sink_queue, q.config_hash, s.partition_id::text "
            "FROM queen_streams.state s JOIN queen_streams.queries q ON q.id = s.query_id WHERE s.key = 'tenant-7'"
        ).fetchall()
    assert keys == [("tenant-7",)]
    assert columns == [(gate_rows.QUERY, "", None, "x", "7073746f-636b-8002-8000-000000000007")]


def test_compat_replaces_the_views_of_an_earlier_version(gates: CommandLine) -> None:
    with psycopg.connect(str(gates.database_url)) as conn:
        conn.execute("CREATE SCHEMA queen_streams")
        conn.execute("CREATE VIEW queen_streams.queries AS SELECT q.id, q.name, q.created_at FROM penstock.queries q")
        conn.execute("CREATE VIEW queen_streams.state AS SELECT 1 AS query_id, 'a' AS key, 1 AS gate")
    assert gates.json("db", "compat") == {"made": True}
    with psycopg.connect(str(gates.database_url)) as conn:
        assert conn.execute("SELECT config_hash FROM queen_streams.queries").fetchall() == [("x",)]


def test_compat_shows_open_windows_of_queries_on_spark(cli: CommandLine, arrange: Arrange) -> None:
    stream = Stream.from_("orders").window_tumbling(seconds=60).aggregate({"events": agg.count()}).to("totals")
    start = datetime(2026, 1, 31, 12, tzinfo=UTC)

    async def run_query(log: Log) -> None:
        for queue in ("orders", "totals"):
            await log.configure(queue)
        query = await ScriptedQuery.start(log, "sales", stream)
        await query.cycle({"ada": (3, 12.5)}, (start, start + timedelta(seconds=60)))

    cli.ok("db", "compat")
    arrange(run_query)
    with psycopg.connect(str(cli.database_url)) as conn:
        rows = conn.execute(
            "SELECT q.source_queue, q.sink_queue, s.partition_id, s.key, s.value FROM queen_streams.state s "
            "JOIN queen_streams.queries q ON q.id = s.query_id WHERE q.name = 'sales'"
        ).fetchall()
    milliseconds = int(start.timestamp() * 1000)
    totals = {"events": 3, "total": 12.5}
    value = {**totals, "acc": totals, "windowStart": milliseconds, "windowEnd": milliseconds + 60_000}
    assert rows == [("orders", "totals", None, "ada", value)]
