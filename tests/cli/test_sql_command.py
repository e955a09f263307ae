from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.cli.command_line import CommandLine

UNREACHABLE = CommandLine("postgresql://localhost:1/nowhere")

APPLICATION = """
CREATE QUEUE orders (customer string, amount decimal(18,2), at string) WITH (partitions = 1);
CREATE QUERY totals WITH (idle_flush_seconds = 86400, history_retention_seconds = 3e6) AS INSERT INTO totals
SELECT customer, window(at, '1 hour') AS w, sum(amount) AS total FROM orders GROUP BY customer, window(at, '1 hour');
INSERT INTO large SELECT customer, amount FROM orders WHERE amount > 10;
CREATE SINK archive FROM large TO 'file:{file}';
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.sql"


def test_check_prints_the_plan_without_a_database(file: Path) -> None:
    file.write_text(APPLICATION)
    plan = UNREACHABLE.ok("sql", str(file), "--check")
    assert "query totals\n  from: orders\n" in plan
    assert "sink archive: large to file:{file}" in plan
    assert list(json.loads(UNREACHABLE.ok("sql", str(file), "--check", "--json"))["queries"]) == ["totals", "large"]


def test_invalid_statement_is_reported_with_its_position(file: Path) -> None:
    file.write_text("INSERT INTO x\nSELECT a, count(*) AS n FROM o GROUP BY a;\n")
    code, line = UNREACHABLE.error("sql", str(file))
    assert code == 2
    assert "app.sql:2:41: a stream has no end" in line


def test_missing_file_and_file_without_query_are_rejected(file: Path) -> None:
    assert "does not exist" in UNREACHABLE.error("sql", str(file))[1]
    assert "`penstock db psql -- -c 'SELECT 1'`" in UNREACHABLE.error("sql", "SELECT 1")[1]
    file.write_text("CREATE QUEUE q;")
    assert "app.sql has no query" in UNREACHABLE.error("sql", str(file))[1]


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        ("TO 'kafka:orders'", "is not a sink: give console, file:PATH"),
        ("TO 'file:x' WITH (evry = 5)", "'evry' is not an option of a sink; the options are batch,"),
        ("TO 'file:x' WITH (every = 'often')", "every must be a number from 0 to 86,400"),
    ],
)
def test_invalid_sink_is_rejected_before_anything_runs(file: Path, sink: str, reason: str) -> None:
    file.write_text(APPLICATION.replace("TO 'file:{file}'", sink))
    for check in ([], ["--check"]):
        code, line = UNREACHABLE.error("sql", str(file), *check)
        assert code == 2
        assert "app.sql:6:1: " in line
        assert reason in line


def test_invalid_master_is_rejected_in_one_line(file: Path, database_url: str) -> None:
    file.write_text("CREATE QUEUE o (a int);\nINSERT INTO x SELECT a FROM o;\n")
    _, line = CommandLine(database_url).error("sql", str(file), "--available-now", "--master", "spark:/there:7077")
    assert "error: master 'spark:/there:7077' is not a Spark master: use spark://host:7077" in line


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_file_runs_with_its_queues_queries_and_sinks(file: Path, tmp_path: Path, database_url: str) -> None:
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
    assert penstock.json("query", "show", "totals")["history_seconds"] == 3e6
    assert [json.loads(line) for line in out.read_text().splitlines()] == [{"customer": "ada", "amount": 20.25}]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_functions_are_imported_from_modules_next_to_the_file(file: Path, database_url: str) -> None:
    file.with_name("shop_words.py").write_text("def twice(text: str) -> str:\n    return text * 2\n")
    file.write_text(
        "CREATE QUEUE words (word string) WITH (partitions = 1);"
        "CREATE FUNCTION twice AS 'shop_words:twice';"
        "INSERT INTO doubled SELECT twice(word) AS word FROM words;"
    )
    assert "function twice: twice, code" in UNREACHABLE.ok("sql", str(file), "--check")
    penstock = CommandLine(database_url)
    penstock.ok("queue", "create", "words", "--partitions", "1")
    penstock.ok("queue", "push", "words", '{"word": "ha"}')
    # Python workers get the path of their modules from the process that starts Spark.
    command = [sys.executable, "-m", "penstock", "sql", str(file), "--available-now", "--report", "0"]
    subprocess.run(command, env={**os.environ, "PENSTOCK_DATABASE_URL": database_url}, check=True, timeout=300)
    assert "haha" in penstock.ok("queue", "tail", "doubled")
