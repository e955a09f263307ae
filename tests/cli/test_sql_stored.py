"""``penstock sql --stored``: runs the views that the console created, and follows their table."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from penstock.engine.query_registry import Registry
from penstock.engine.stored.stored_statements import (
    create_stored_statement,
    drop_stored_view,
    find_stored_statement,
)
from penstock.log.log import Log
from tests.cli.command_line import Arrange, CommandLine
from tests.conditions import eventually

UNREACHABLE = CommandLine("postgresql://localhost:1/nowhere")
TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS total FROM sales GROUP BY customer"
COUNTS = "CREATE MATERIALIZED VIEW counts AS SELECT customer, count(*) AS n FROM sales GROUP BY customer"
BAD = "CREATE MATERIALIZED VIEW bad AS SELECT customer, count(*) AS n FROM nothing GROUP BY customer"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give a file of statements, or --stored"),
        (["views.sql", "--stored"], "leave out the file"),
        (["--stored", "--preview", "5"], "leave out the file, --check and --preview"),
        (["--stored", "--reset", "--flush"], "leave out --reset, --flush"),
    ],
)
def test_options_that_exclude_each_other_are_rejected(arguments: list[str], reason: str) -> None:
    code, line = UNREACHABLE.error("sql", *arguments)
    assert code == 2
    assert reason in line


def test_names_are_taken_by_queries_and_by_stored_views(cli: CommandLine, arrange: Arrange) -> None:
    async def create(log: Log) -> None:
        await create_stored_statement(log.database, "totals", TOTALS, "ada")

    arrange(create)
    with pytest.raises(Exception, match="there is a query 'totals' already"):
        arrange(create)


@pytest.mark.parametrize("command", [("sql", "DROP MATERIALIZED VIEW totals"), ("query", "delete", "totals", "--yes")])
def test_view_that_has_never_run_is_deleted(cli: CommandLine, arrange: Arrange, command: tuple[str, ...]) -> None:
    arrange(lambda log: create_stored_statement(log.database, "totals", TOTALS, "ada"))
    cli.ok(*command)
    assert "there is no" in cli.error(*command)[1]
    arrange(lambda log: create_stored_statement(log.database, "totals", TOTALS, "ada"))  # the name is free


@contextmanager
def stored_process(cli: CommandLine) -> Iterator[subprocess.Popen[str]]:
    process = cli.start("sql", "--stored", "--master", "local[1]", "--report", "0", stdout=None, stderr=None)
    try:
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


def read_view(database_url: str, view: str) -> list[tuple[object, ...]]:
    """Return the rows of a view without the times of their changes; none before it exists."""
    with psycopg.connect(database_url) as conn:
        if conn.execute("SELECT to_regclass(%s)", (f"penstock_live.{view}",)).fetchone() == (None,):
            return []
        table = sql.Identifier("penstock_live", view)
        return [row[:2] for row in conn.execute(sql.SQL("SELECT * FROM {} ORDER BY 1").format(table)).fetchall()]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_process_follows_the_table(cli: CommandLine, arrange: Arrange, database_url: str) -> None:
    def rows(view: str) -> list[tuple[object, ...]]:
        return read_view(database_url, view)

    def store(name: str, statement: str) -> None:
        arrange(lambda log: create_stored_statement(log.database, name, statement, "ada"))

    def error(name: str) -> str | None:
        errors: list[str | None] = []

        async def read(log: Log) -> None:
            stored = await find_stored_statement(log.database, name)
            errors.append(None if stored is None else stored.error)

        arrange(read)
        return errors[0]

    def running() -> set[str]:
        names: set[str] = set()

        async def read(log: Log) -> None:
            names.update(query.name for query in await Registry(log).list() if query.is_running)

        arrange(read)
        return names

    def is_gone(name: str) -> bool:
        listed = [each["name"] for each in json.loads(cli.ok("query", "list", "--json"))]
        return name not in listed and name not in running()

    cli.ok("queue", "create", "sales", "--partitions", "1")
    for amount in (5, 20):
        cli.ok("queue", "push", "sales", json.dumps({"customer": "ada", "amount": amount}))
    store("bad", BAD)
    store("totals", TOTALS)
    with stored_process(cli):
        eventually(lambda: rows("totals") == [("ada", 25)], timeout=180)
        assert "'nothing'" in (error("bad") or "")
        assert error("totals") is None

        store("counts", COUNTS)  # while the process runs
        eventually(lambda: rows("counts") == [("ada", 2)], timeout=60)
        with psycopg.connect(database_url) as conn:
            conn.execute("DELETE FROM penstock.stored_statements WHERE name = 'counts'")
        eventually(lambda: running() == {"totals"}, timeout=60)

        cli.ok("queue", "push", "sales", json.dumps({"customer": "bob", "amount": 1}))
        eventually(lambda: rows("totals") == [("ada", 25), ("bob", 1)], timeout=60)
        cli.ok("queue", "create", "nothing", "--partitions", "1")
        cli.ok("queue", "push", "nothing", json.dumps({"customer": "eve"}))
        eventually(lambda: rows("bad") == [("eve", 1)], timeout=120)  # it is tried again

        arrange(lambda log: drop_stored_view(log.database, "totals"))
        eventually(lambda: is_gone("totals"), timeout=60)
        assert rows("totals") == []
    assert running() == set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_second_process_takes_over(cli: CommandLine, arrange: Arrange, database_url: str) -> None:
    cli.ok("queue", "create", "sales", "--partitions", "1")
    cli.ok("queue", "push", "sales", json.dumps({"customer": "ada", "amount": 5}))
    arrange(lambda log: create_stored_statement(log.database, "totals", TOTALS, "ada"))
    with stored_process(cli) as first:
        eventually(lambda: read_view(database_url, "totals") == [("ada", 5)], timeout=180)
        with stored_process(cli):
            first.send_signal(signal.SIGTERM)
            assert first.wait(120) == 0
            cli.ok("queue", "push", "sales", json.dumps({"customer": "bob", "amount": 1}))
            eventually(lambda: read_view(database_url, "totals") == [("ada", 5), ("bob", 1)], timeout=180)
