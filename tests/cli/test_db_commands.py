from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest

from penstock.db import migrate
from tests.cli.command_line import CommandLine

UNREACHABLE = "postgresql://localhost:1/nowhere"


@pytest.fixture
def empty(empty_database_url: str) -> CommandLine:
    return CommandLine(empty_database_url)


@pytest.fixture
def unreachable() -> CommandLine:
    return CommandLine(UNREACHABLE)


def test_sql_needs_no_database(unreachable: CommandLine) -> None:
    assert unreachable.ok("db", "sql") == migrate.render_sql()
    document = unreachable.json("db", "sql")
    assert document["sql"] == migrate.render_sql()
    assert document["migrations"] == [str(migration) for migration in migrate.load_migrations()]


def test_a_refused_connection_is_reported_as_such(unreachable: CommandLine) -> None:
    code, line = unreachable.error("queue", "list")
    assert code != 0
    assert "refused" in line


def test_sql_from_version_prints_later_migrations(unreachable: CommandLine) -> None:
    newest = migrate.load_migrations()[-1].version
    assert unreachable.ok("db", "sql", "--from-version", str(newest)) == migrate.render_sql(newest)
    assert unreachable.error("db", "sql", "--from-version", "9999")[0] == 2


def test_printed_sql_creates_the_schema(empty: CommandLine) -> None:
    with psycopg.connect(str(empty.database_url), autocommit=True) as connection:
        connection.execute(empty.ok("db", "sql").encode())
    assert empty.json("db", "status", "--check")["pending"] == []


def test_upgrade_applies_pending_migrations_once(empty: CommandLine) -> None:
    every = [str(migration) for migration in migrate.load_migrations()]
    newest = migrate.load_migrations()[-1].version
    assert empty.json("db", "upgrade") == {"applied": every, "schema": newest}
    assert empty.json("db", "upgrade") == {"applied": [], "schema": newest}
    assert "already up to date" in empty.ok("db", "upgrade")


def test_status_changes_nothing(empty: CommandLine) -> None:
    status = empty.json("db", "status")
    assert (status["embedded"], status["state"], status["current"]) == (False, "running", 0)
    assert status["pending"] == [str(migration) for migration in migrate.load_migrations()]
    assert "penstock db upgrade" in empty("db", "status").stderr
    assert empty("db", "status", "--check").exit_code == 1


def test_status_shows_no_password(cli: CommandLine) -> None:
    secret = str(cli.database_url).replace("//app@", "//app:s3cret@")
    for arguments in ([], ["--json"]):
        assert "s3cret" not in cli.ok("db", "status", "--database-url", secret, *arguments)


@pytest.mark.parametrize("command", [["queue", "list"], ["db", "status"], ["db", "upgrade"], ["dlq", "show", "1"]])
def test_unreachable_database_exits_with_4(unreachable: CommandLine, command: list[str]) -> None:
    code, line = unreachable.error(*command)
    assert code == 4
    assert "PostgreSQL cannot be reached" in line
    assert "?" not in line


def test_missing_schema_names_the_upgrade_command_without_auto_upgrade(empty: CommandLine) -> None:
    empty.environment["PENSTOCK_AUTO_UPGRADE"] = "0"
    code, line = empty.error("queue", "list")
    assert code == 4
    assert "penstock db upgrade" in line


def test_invalid_url_is_rejected_without_its_password() -> None:
    code, line = CommandLine("postgresql+psycopg://app:s3cret@db/x").error("queue", "list")
    assert code == 2
    assert "s3cret" not in line


@pytest.mark.slow
def test_embedded_server_runs_until_it_is_stopped(data_dir: Path) -> None:
    cli = CommandLine(None)
    here = ("--data-dir", str(data_dir / "data"))
    assert cli.json("db", "status", *here)["state"] == "absent"
    with cli.start("db", "start", "--json", *here) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        status = cli.json("db", "status", *here)
        assert (status["embedded"], status["state"], status["url"]) == (True, "running", url)
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
    with cli.start("db", "start", "--json", *here) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.send_signal(signal.SIGHUP)
        assert server.wait(30) == 143
    assert cli.json("db", "status", *here)["state"] == "stopped"


def test_start_and_stop_reject_a_database_url(cli: CommandLine) -> None:
    for command in ("start", "stop"):
        code, line = cli.error("db", command)
        assert code == 2
        assert "--data-dir" in line


@pytest.mark.slow
def test_psql_runs_on_the_database_and_finds_results(cli: CommandLine) -> None:
    with cli.start("db", "psql", "--", "-Atc", "SELECT current_database(); SHOW search_path") as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    name, search_path = output.splitlines()
    assert name in str(cli.database_url)
    assert search_path.split(",")[0] == "penstock_live"


@pytest.mark.slow
def test_psql_passes_its_exit_code_on(cli: CommandLine) -> None:
    with cli.start("db", "psql", "--", "-c", "SELECT 1/0") as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "division by zero" in errors


@pytest.mark.slow
def test_psql_of_the_embedded_postgresql_runs_if_none_is_installed(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with cli.start("db", "psql", "--", "-XAtc", "SELECT current_database()") as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.strip() in str(cli.database_url)


def test_status_of_a_stopped_database_tells_how_to_start_it(tmp_path: Path) -> None:
    result = CommandLine(None)("db", "status", "--data-dir", str(tmp_path / "none"))
    assert result.exit_code == 0
    assert "absent" in result.stdout
    assert "`penstock db start` runs it" in result.stderr
