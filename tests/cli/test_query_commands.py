from __future__ import annotations

import json
import signal
from typing import Any

import psycopg
import pytest

from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.log.log import Log
from tests.cli.command_line import Arrange, CommandLine

STEPS = ["from: orders", "window: tumbling 5 s", "aggregate count: count()", "to: totals"]
#: These tests do not compute anything on Spark.
NO_SPARK: Any = None


@pytest.fixture(autouse=True)
def query_with_cycles(cli: CommandLine, arrange: Arrange) -> None:
    """Create a query with two committed cycles, a failed one, an open window and three unread events."""
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", "1", "2", "3")

    async def register(log: Log) -> None:
        registry = Registry(log)
        query = await registry.register("orders_5s", STEPS, "abc", sink="totals", history_seconds=3600)
        queue = await log.catalog.refresh("orders")
        await log.consumer_groups.subscribe(queue, "orders_5s", "beginning", query_id="orders_5s")
        column = ResultColumn(
            "count", "bigint", (StateColumn("a0", "bigint", NO_SPARK, "{state} + {partial}"),), "{a0}"
        )
        await registry.create_tables(ResultTables(query.id, "orders_5s", [column]))

    arrange(register)
    with psycopg.connect(str(cli.database_url)) as conn:
        conn.execute(
            "INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned, committed_at, events_in, events_out, "
            "windows, late, dead, took, error) VALUES "
            "(1, 1, 1, '', 5, clock_timestamp() + interval '1 second', 5, 1, 1, 0, 1, '{\"spark\": 12.5}', NULL), "
            "(1, 2, 1, '', 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, E'out of\\nmemory'), "
            "(1, 3, 1, '', 7, clock_timestamp(), 7, 0, 0, 2, 0, '{\"spark\": 8}', NULL)"
        )
        conn.execute(
            "INSERT INTO penstock.state_1 (key, window_start, window_end, partition_id, a0, updated_at) "
            "VALUES ('ada', '2026-01-31 12:00Z', '2026-01-31 12:00:05Z', 1, 4, now())"
        )


def mark_running(cli: CommandLine) -> None:
    with psycopg.connect(str(cli.database_url)) as conn:
        conn.execute("UPDATE penstock.queries SET driver = 'host:7', lease_until = now() + interval '1 hour'")


def test_history_retention_follows_the_last_start(cli: CommandLine, arrange: Arrange) -> None:
    async def start_again(log: Log) -> None:
        await Registry(log).register("orders_5s", STEPS, "abc", sink="totals", history_seconds=400 * 86_400)

    assert cli.json("query", "show", "orders_5s")["history_seconds"] == 3600
    arrange(start_again)
    assert cli.json("query", "show", "orders_5s")["history_seconds"] == 400 * 86_400
    assert "  history kept   400 d\n" in cli.ok("query", "show", "orders_5s")


def test_list_prints_state_and_lag(cli: CommandLine) -> None:
    (query,) = cli.json("query", "list")
    assert (query["name"], query["state"], query["driver"]) == ("orders_5s", "stopped", None)
    assert (query["queues"], query["sink"], query["lag"]) == (["orders"], "totals", 3)
    assert query["committed_at"] is not None
    first, row = cli.ok("query", "list").splitlines()
    assert first.split()[:3] == ["query", "state", "driver"]
    assert row.split()[:5] == ["orders_5s", "stopped", "–", "orders", "totals"]


def test_client_queries_are_listed_and_deleted(cli: CommandLine) -> None:
    with psycopg.connect(str(cli.database_url)) as conn:
        conn.execute(
            "INSERT INTO penstock.client_queries (name, source_queue, config_hash, group_name) "
            "VALUES ('per_user', 'orders', 'h', 'streams.per_user')"
        )
    spark, clients = cli.json("query", "list")
    assert (spark["computed_by"], clients["computed_by"]) == ("spark", "clients")
    assert (clients["name"], clients["state"], clients["queues"], clients["lag"]) == (
        "per_user",
        "stopped",
        ["orders"],
        0,
    )
    assert cli.ok("query", "list").splitlines()[2].split()[:4] == ["per_user", "stopped", "clients", "orders"]
    assert "penstock.state" in cli.error("query", "show", "per_user")[1]
    cli.ok("query", "delete", "per_user", "--yes")
    assert [query["name"] for query in cli.json("query", "list")] == ["orders_5s"]


def test_query_with_a_lease_is_running(cli: CommandLine) -> None:
    mark_running(cli)
    (query,) = cli.json("query", "list")
    assert (query["state"], query["driver"]) == ("running", "host:7")
    assert "running, by host:7" in cli.ok("query", "show", "orders_5s")


def test_query_that_ended_without_a_stop_has_failed_in_every_command(cli: CommandLine) -> None:
    with psycopg.connect(str(cli.database_url)) as conn:
        conn.execute("UPDATE penstock.queries SET lease_until = now()")
    assert [query["state"] for query in cli.json("query", "list")] == ["failed"]
    assert cli.json("query", "show", "orders_5s")["state"] == "failed"
    assert "a failed query" in cli.ok("queue", "show", "orders")
    cli.ok("query", "stop", "orders_5s")
    assert [query["state"] for query in cli.json("query", "list")] == ["stopped"]


def test_show_prints_steps_open_windows_and_activity(cli: CommandLine) -> None:
    shown = cli.json("query", "show", "orders_5s")
    assert shown["description"] == STEPS
    assert shown["open_windows"] == 1
    assert (shown["live_view"], shown["history_view"]) == ("penstock_live.orders_5s", "penstock_history.orders_5s")
    assert shown["lately"] == {
        "seconds": 300.0,
        "cycles": 2,
        "failed": 1,
        "events_in": 12,
        "windows": 1,
        "late": 2,
        "dead": 1,
    }
    text = cli.ok("query", "show", "orders_5s")
    assert "window: tumbling 5 s" in text
    assert "penstock_live.orders_5s" in text
    assert "2, 1 failed" in text


def test_cycles_are_listed_newest_last(cli: CommandLine) -> None:
    lines = cli.json_lines("query", "cycles", "orders_5s")
    assert [(line["cycle"], line["state"], line["events_in"]) for line in lines] == [
        (1, "committed", 5),
        (2, "failed", None),
        (3, "committed", 7),
    ]
    assert lines[0]["took"] == {"spark": 12.5}
    assert lines[0]["seconds"] == pytest.approx(1, abs=0.1)
    assert [line["cycle"] for line in cli.json_lines("query", "cycles", "orders_5s", "-n", "1")] == [3]
    first, *rows = cli.ok("query", "cycles", "orders_5s").splitlines()
    assert first.split()[:6] == ["cycle", "events", "out", "windows", "late", "dead"]
    assert rows[1].endswith("failed: out of memory")


def test_cycles_failed_lists_failed_cycles_only(cli: CommandLine) -> None:
    assert [line["error"] for line in cli.json_lines("query", "cycles", "orders_5s", "--failed")] == ["out of\nmemory"]


def test_delete_asks_for_confirmation(cli: CommandLine) -> None:
    assert cli("query", "delete", "orders_5s", input="n\n").exit_code == 1
    assert len(cli.json("query", "list")) == 1
    assert cli.json("query", "delete", "orders_5s", "--yes") == {"query": "orders_5s", "deleted": True}
    assert cli.json("query", "list") == []
    assert cli.json("group", "list", "orders") == []
    with psycopg.connect(str(cli.database_url)) as conn:
        assert conn.execute("SELECT count(*) FROM penstock.state").fetchone() == (0,)
        assert conn.execute("SELECT to_regclass('penstock_live.orders_5s')").fetchone() == (None,)


def test_running_query_is_not_deleted(cli: CommandLine) -> None:
    mark_running(cli)
    code, line = cli.error("query", "delete", "orders_5s", "--yes")
    assert code == 1
    assert "is running" in line


def test_pause_and_resume(cli: CommandLine) -> None:
    mark_running(cli)
    assert cli.json("query", "pause", "orders_5s") == {"query": "orders_5s", "state": "paused"}
    assert [query["state"] for query in cli.json("query", "list")] == ["paused"]
    assert "paused, by host:7" in cli.ok("query", "show", "orders_5s")
    assert cli.json("query", "resume", "orders_5s") == {"query": "orders_5s", "state": "resumed"}
    assert [query["state"] for query in cli.json("query", "list")] == ["running"]


def test_stopped_query_stays_paused_until_stop(cli: CommandLine) -> None:
    cli.ok("query", "pause", "orders_5s")
    assert [(query["state"], query["is_paused"]) for query in cli.json("query", "list")] == [("stopped", True)]
    assert "will be paused when it is started" in cli.ok("query", "show", "orders_5s")
    assert cli.json("query", "stop", "orders_5s") == {"query": "orders_5s", "state": "stopping"}
    assert [query["is_paused"] for query in cli.json("query", "list")] == [False]


@pytest.mark.parametrize("command", [["show"], ["cycles"], ["pause"], ["resume"], ["stop"], ["delete", "--yes"]])
def test_unknown_query_exits_with_3(cli: CommandLine, command: list[str]) -> None:
    name, *more = command
    assert cli.error("query", name, "nobody", *more)[0] == 3


def test_query_names_are_completed(cli: CommandLine) -> None:
    cli.environment |= {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": "penstock query show o",
        "COMP_CWORD": "3",
    }
    with cli.start() as process:
        output, _ = process.communicate(timeout=30)
    assert output.split() == ["orders_5s"]


def test_rows_prints_the_windows(cli: CommandLine) -> None:
    heading, row = cli.ok("query", "rows", "orders_5s").splitlines()
    assert heading.split() == ["key", "window_start", "window_end", "count", "updated_at"]
    assert row.split()[:6] == ["ada", "2026-01-31", "12:00:00Z", "2026-01-31", "12:00:05Z", "4"]
    (row,) = cli.json_lines("query", "rows", "orders_5s", "--current")
    assert (row["key"], row["count"], row["window_end"]) == ("ada", 4, "2026-01-31T12:00:05Z")
    assert cli.json_lines("query", "rows", "orders_5s", "--history", "--since", "1h") == []
    assert cli.json_lines("query", "rows", "orders_5s", "--key", "bob") == []


def test_rows_refuses_an_unknown_query_and_contradictory_options(cli: CommandLine) -> None:
    assert cli.error("query", "rows", "nothing")[0] == 3
    assert "exclude each other" in cli.error("query", "rows", "orders_5s", "--current", "--history")[1]


@pytest.mark.slow
def test_rows_watch_prints_changes_until_interrupted(cli: CommandLine) -> None:
    with cli.start("query", "rows", "orders_5s", "--watch", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["count"] == 4
        with psycopg.connect(str(cli.database_url)) as conn:
            conn.execute("UPDATE penstock.state_1 SET a0 = 5")
        assert json.loads(process.stdout.readline())["count"] == 5
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
