"""SHOW, EXPLAIN and DROP."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from penstock.log.log import Log
from tests.cli.command_line import Arrange, CommandLine
from tests.console.scripted_view import ScriptedView

TOTALS = (
    "SELECT customer, count(*) AS orders, sum(amount) AS total, max(_time) AS last_order FROM orders GROUP BY customer"
)
STATEMENTS = f"""
CREATE QUEUE orders (customer string, amount decimal(18,2));
CREATE MATERIALIZED VIEW totals WITH (changes = 'totals.changes') AS {TOTALS};
CREATE MATERIALIZED VIEW sizes AS SELECT orders, count(*) AS customers FROM totals GROUP BY orders;
INSERT INTO large SELECT customer FROM orders WHERE amount > 10;
"""


@pytest.fixture(autouse=True)
def views(cli: CommandLine, arrange: Arrange) -> None:
    """Create a queue, a view with state, a view that reads it, and another query. None of them runs."""
    for queue in ("orders", "totals.changes"):
        cli.ok("queue", "create", queue)

    async def start(log: Log) -> None:
        totals = await ScriptedView.start(log, STATEMENTS, "totals")
        await totals.store_state(log, 1, 3, 2048)
        await totals.cycle(log, {"ada": (2, "10"), "bob": (1, "5")})
        await ScriptedView.start(log, STATEMENTS, "sizes")

    arrange(start)
    with psycopg.connect(str(cli.database_url)) as conn:
        conn.execute("UPDATE penstock.queries SET lease_until = 'epoch', driver = NULL")
        conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) "
            "VALUES ('large', '{\"from: orders\", \"to: large\"}', '', 1)"
        )


def test_show_prints_what_the_listing_commands_print(cli: CommandLine) -> None:
    views = cli.json("sql", "SHOW MATERIALIZED VIEWS")
    assert [view["name"] for view in views] == ["sizes", "totals"]
    assert views == cli.json("query", "list", "--views")
    assert cli.ok("sql", "show queries") == cli.ok("query", "list")
    assert cli.json("sql", "SHOW QUEUES;") == cli.json("queue", "list")


def test_explain_of_a_view_prints_operators_key_and_state(cli: CommandLine) -> None:
    text = cli.ok("sql", "EXPLAIN totals")
    assert text.startswith("Materialized view totals\n  key ")
    assert "Operators\n  select: " in text
    assert "\n    aggregate: count(*) AS " in text
    assert "queue orders: customer, amount, _time\n" in text
    assert "\n  to: totals.changes\n" in text
    assert "State\n  aggregate by orders.customer: 3 rows, 2 KiB" in text
    explained = cli.json("sql", "EXPLAIN totals")
    assert (explained["query"], explained["key"]) == ("totals", ["customer"])
    assert explained["state"] == [{"operator": 1, "name": "aggregate by orders.customer", "rows": 3, "bytes": 2048}]
    assert cli.ok("sql", "EXPLAIN large") == "Query large\nSteps\n  from: orders\n  to: large\n"
    assert cli.error("sql", "EXPLAIN nothing")[0] == 3


def test_explain_of_a_statement_prints_operators_and_key(cli: CommandLine) -> None:
    created = cli.ok("sql", f"EXPLAIN CREATE MATERIALIZED VIEW best WITH (indexes = 'total') AS {TOTALS}")
    assert created.startswith("Materialized view best\n  key  customer\nOperators\n  select: ")
    assert "\n  index: total\n" in created
    # A view of the database is read as a view.
    explained = cli.json("sql", "EXPLAIN SELECT customer, sum(total) AS t FROM totals GROUP BY customer")
    assert (explained["query"], explained["key"], explained["state"]) == (None, ["customer"], None)
    assert explained["operators"][-1].strip() == "view totals: customer, total"
    stream = cli.json("sql", "EXPLAIN INSERT INTO large SELECT customer FROM orders")
    assert (stream["key"], stream["operators"], stream["definition"][-1]) == (None, [], "to: large")


def test_drop_deletes_a_view(cli: CommandLine) -> None:
    assert cli.json("sql", "DROP MATERIALIZED VIEW sizes") == {"query": "sizes", "deleted": True}
    assert cli.ok("sql", "DROP MATERIALIZED VIEW totals") == "Dropped the view totals.\n"
    assert [query["name"] for query in cli.json("query", "list")] == ["large"]
    assert cli.ok("sql", "DROP MATERIALIZED VIEW IF EXISTS totals") == "There is no view totals.\n"
    code, line = cli.error("sql", "DROP MATERIALIZED VIEW totals")
    assert (code, "there is no view 'totals'" in line) == (3, True)


@pytest.mark.parametrize("command", [("sql", "DROP MATERIALIZED VIEW totals"), ("query", "delete", "totals", "--yes")])
def test_a_view_that_others_read_is_not_deleted(cli: CommandLine, command: tuple[str, ...]) -> None:
    code, line = cli.error(*command)
    assert code == 1
    assert "'totals' is read by 'sizes': delete what reads it first, `penstock query delete sizes`" in line


def test_drop_refuses_a_running_view_and_another_query(cli: CommandLine) -> None:
    with psycopg.connect(str(cli.database_url)) as conn:
        conn.execute("UPDATE penstock.queries SET lease_until = now() + interval '1 hour' WHERE name = 'sizes'")
    assert "stop it first, `penstock query stop sizes`" in cli.error("sql", "DROP MATERIALIZED VIEW sizes")[1]
    assert "`penstock query delete large` deletes it" in cli.error("sql", "DROP MATERIALIZED VIEW large")[1]


def test_a_file_has_commands_only_or_none(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "some.sql"
    file.write_text("SHOW QUEUES;\nDROP MATERIALIZED VIEW sizes;\n")
    assert "--check" not in cli.ok("sql", str(file))
    assert [view["name"] for view in cli.json("query", "list", "--views")] == ["totals"]
    file.write_text("DROP MATERIALIZED VIEW IF EXISTS totals;\n" + STATEMENTS)
    code, line = cli.error("sql", str(file))
    assert code == 2
    assert "some.sql:3:1: CREATE defines what runs, and SHOW, EXPLAIN and DROP do not" in line
    file.write_text("DROP MATERIALIZED VIEW totals;")
    assert "leave out the option" in cli.error("sql", str(file), "--check")[1]
    assert [view["name"] for view in cli.json("query", "list", "--views")] == ["totals"]
