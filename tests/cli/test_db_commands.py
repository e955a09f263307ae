from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest

from penstock.db import migrate
from tests.cli.command_line import CommandLine

NOBODY = "postgresql://localhost:1/nowhere"


@pytest.fixture
def empty(empty_database_url: str) -> CommandLine:
    return CommandLine(empty_database_url)


@pytest.fixture
def nowhere() -> CommandLine:
    return CommandLine(NOBODY)


def test_the_sql_is_printed_without_any_database(nowhere: CommandLine) -> None:
    assert nowhere.ok("db", "sql") == migrate.render_sql()
    document = nowhere.json("db", "sql")
    assert document["sql"] == migrate.render_sql()
    assert document["migrations"] == [str(migration) for migration in migrate.load_migrations()]


def test_the_sql_can_begin_later(nowhere: CommandLine) -> None:
    newest = migrate.load_migrations()[-1].version
    assert nowhere.ok("db", "sql", "--from-version", str(newest)) == migrate.render_sql(newest)
    assert nowhere.refused("db", "sql", "--from-version", "9999")[0] == 2


def test_the_printed_sql_makes_the_schema(empty: CommandLine) -> None:
    with psycopg.connect(str(empty.database_url), autocommit=True) as connection:
        connection.execute(empty.ok("db", "sql").encode())
    assert empty.json("db", "status", "--check")["pending"] == []


def test_upgrade_applies_what_is_missing_once(empty: CommandLine) -> None:
    every = [str(migration) for migration in migrate.load_migrations()]
    newest = migrate.load_migrations()[-1].version
    assert empty.json("db", "upgrade") == {"applied": every, "schema": newest}
    assert empty.json("db", "upgrade") == {"applied": [], "schema": newest}
    assert "already up to date" in empty.ok("db", "upgrade")


def test_status_changes_nothing(empty: CommandLine) -> None:
    found = empty.json("db", "status")
    assert (found["embedded"], found["state"], found["current"]) == (False, "running", 0)
    assert found["pending"] == [str(migration) for migration in migrate.load_migrations()]
    assert "penstock db upgrade" in empty("db", "status").stderr
    assert empty("db", "status", "--check").exit_code == 1


def test_status_shows_no_password(cli: CommandLine) -> None:
    secret = str(cli.database_url).replace("//app@", "//app:s3cret@")
    for arguments in ([], ["--json"]):
        assert "s3cret" not in cli.ok("db", "status", "--database-url", secret, *arguments)


@pytest.mark.parametrize("command", [["queue", "list"], ["db", "status"], ["db", "upgrade"], ["dlq", "show", "1"]])
def test_a_database_that_is_not_there_is_no_success(nowhere: CommandLine, command: list[str]) -> None:
    code, line = nowhere.refused(*command)
    assert code == 4
    assert "PostgreSQL cannot be reached" in line


def test_a_schema_that_may_not_be_made_is_asked_for(empty: CommandLine) -> None:
    empty.environment["PENSTOCK_AUTO_UPGRADE"] = "0"
    code, line = empty.refused("queue", "list")
    assert code == 4
    assert "penstock db upgrade" in line


def test_an_url_that_is_none_is_refused_without_showing_it() -> None:
    code, line = CommandLine("postgresql+psycopg://app:s3cret@db/x").refused("queue", "list")
    assert code == 2
    assert "s3cret" not in line


@pytest.mark.slow
def test_the_embedded_server_is_kept_up_until_it_is_stopped(data_dir: Path) -> None:
    cli = CommandLine(None)
    here = ("--data-dir", str(data_dir / "data"))
    assert cli.json("db", "status", *here)["state"] == "absent"
    with cli.start("db", "start", "--json", *here) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        found = cli.json("db", "status", *here)
        assert (found["embedded"], found["state"], found["url"]) == (True, "running", url)
        cli.ok("queue", "create", "orders", *here)
        assert [queue["name"] for queue in cli.json("queue", "list", "--database-url", url)] == ["orders"]
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
    assert cli.json("db", "status", *here)["state"] == "stopped"
    assert cli.json("db", "stop", *here)["stopped"] is False
    assert [queue["name"] for queue in cli.json("queue", "list", *here)] == ["orders"]
    with cli.start("db", "start", "--json", *here) as server:
        assert server.stdout is not None
        server.stdout.readline()
        assert cli.json("db", "stop", *here)["stopped"] is True
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 143


def test_only_the_embedded_server_is_started_and_stopped(cli: CommandLine) -> None:
    for command in ("start", "stop"):
        code, line = cli.refused("db", command)
        assert code == 2
        assert "--data-dir" in line
