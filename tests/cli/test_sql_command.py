from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.cli.command_line import CommandLine

NOWHERE = CommandLine("postgresql://localhost:1/nowhere")

APPLICATION = """
CREATE QUEUE orders (customer string, amount decimal(18,2), at string) WITH (partitions = 1);
CREATE QUERY totals WITH (idle_flush_seconds = 86400) AS INSERT INTO totals
SELECT customer, window(at, '1 hour') AS w, sum(amount) AS total FROM orders GROUP BY customer, window(at, '1 hour');
INSERT INTO large SELECT customer, amount FROM orders WHERE amount > 10;
CREATE SINK archive FROM large TO 'file:{file}';
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.sql"


def test_check_says_what_would_run_and_needs_no_database(file: Path) -> None:
    file.write_text(APPLICATION)
    told = NOWHERE.ok("sql", str(file), "--check")
    assert "query totals\n  from: orders\n" in told
    assert "sink archive: large to file:{file}" in told
    assert list(json.loads(NOWHERE.ok("sql", str(file), "--check", "--json"))["queries"]) == ["totals", "large"]


def test_a_statement_that_is_none_is_refused_with_its_place(file: Path) -> None:
    file.write_text("INSERT INTO x\nSELECT a, count(*) AS n FROM o GROUP BY a;\n")
    code, line = NOWHERE.refused("sql", str(file))
    assert code == 2
    assert "app.sql:2:41: a stream has no end" in line


def test_a_file_that_is_not_there_or_has_no_query_is_refused(file: Path) -> None:
    assert "does not exist" in NOWHERE.refused("sql", str(file))[1]
    file.write_text("CREATE QUEUE q;")
    assert "app.sql has no query" in NOWHERE.refused("sql", str(file))[1]


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        ("TO 'kafka:orders'", "is not a sink: give console, file:PATH"),
        ("TO 'file:x' WITH (evry = 5)", "'evry' is not an option of a sink; the options are batch,"),
        ("TO 'file:x' WITH (every = 'often')", "every must be 0 to 86400 seconds"),
    ],
)
def test_a_sink_that_is_none_is_refused_before_anything_runs(file: Path, sink: str, reason: str) -> None:
    file.write_text(APPLICATION.replace("TO 'file:{file}'", sink))
    for check in ([], ["--check"]):
        code, line = NOWHERE.refused("sql", str(file), *check)
        assert code == 2
        assert "app.sql:6:1: " in line
        assert reason in line


def test_a_master_that_is_none_is_refused_in_one_line(file: Path, database_url: str) -> None:
    file.write_text("CREATE QUEUE o (a int);\nINSERT INTO x SELECT a FROM o;\n")
    _, line = CommandLine(database_url).refused("sql", str(file), "--available-now", "--master", "spark:/there:7077")
    assert "error: master 'spark:/there:7077' is not a Spark master: use spark://host:7077" in line


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_file_runs_with_its_queues_queries_and_sinks(file: Path, tmp_path: Path, database_url: str) -> None:
    penstock = CommandLine(database_url)
    out = tmp_path / "large.jsonl"
    file.write_text(APPLICATION.replace("{file}", str(out)))
    penstock.ok("queue", "create", "orders", "--partitions", "1")
    for customer, amount in (("ada", 5.5), ("ada", 20.25), ("bob", 1)):
        event = {"customer": customer, "amount": amount, "at": "2026-01-31T12:00:00Z"}
        penstock.ok("queue", "push", "orders", json.dumps(event))
    penstock.ok("sql", str(file), "--available-now", "--flush", "--report", "0")

    with psycopg.connect(database_url) as conn:
        rows = conn.execute("SELECT customer, total::float FROM penstock_history.totals ORDER BY 1").fetchall()
    assert rows == [("ada", 25.75), ("bob", 1.0)]
    assert [json.loads(line) for line in out.read_text().splitlines()] == [{"customer": "ada", "amount": 20.25}]
