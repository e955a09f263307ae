from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer.main

from penstock.cli.app import app
from tests.cli.command_line import CommandLine


def commands() -> Iterator[tuple[str, ...]]:
    for name, command in typer.main.get_group(app).commands.items():
        below = getattr(command, "commands", None)
        if below is None:
            yield (name,)
        else:
            yield from ((name, sub) for sub in below)


EVERY_COMMAND = list(commands())
UNREACHABLE = CommandLine("postgresql://localhost:1/nowhere")


def words(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def test_list_of_commands() -> None:
    assert {" ".join(command) for command in EVERY_COMMAND} == {
        *(f"queue {name}" for name in ("list", "create", "show", "push", "tail", "configure", "repartition", "delete")),
        *(f"group {name}" for name in ("list", "show", "seek", "configure", "delete")),
        *(f"dlq {name}" for name in ("list", "show", "redrive", "purge")),
        *(f"source {name}" for name in ("file", "table", "list", "forget")),
        *(f"rule {name}" for name in ("save", "list", "delete", "run", "try", "silence")),
        *(f"sink {name}" for name in ("run", "file", "webhook", "table")),
        *(f"query {name}" for name in ("list", "show", "cycles", "rows", "pause", "resume", "stop", "delete")),
        *(f"gate {name}" for name in ("list", "show", "set", "pause", "resume", "hold")),
        *(f"key {name}" for name in ("create", "list", "rotate", "revoke", "audit")),
        *(f"db {name}" for name in ("upgrade", "status", "psql", "sql", "compat", "roles", "start", "stop")),
        "push",
        "run",
        "serve",
        "console",
        "simulate",
        "sql",
        "demo",
        "prepare",
        "version",
    }


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_every_command_has_help_with_an_example_and_takes_the_shared_options(command: tuple[str, ...]) -> None:
    text = words(UNREACHABLE.ok(*command, "--help"))
    assert f"Usage: penstock {' '.join(command)}" in text
    assert re.search(rf"Examples .*penstock {' '.join(command)}", text)
    for option in ("--json", "--database-url", "--data-dir", "--server", "--quiet", "--verbose"):
        assert option in text


@pytest.mark.parametrize("arguments", [["run"], ["queue", "push"], ["queue"], []], ids=" ".join)
def test_help_shows_flags_without_a_value(arguments: list[str]) -> None:
    text = words(UNREACHABLE.ok(*arguments, "--help"))
    assert "bool" not in text
    assert "-h Show this message and exit." in text


def test_help_fills_the_lines_of_a_paragraph() -> None:
    text = UNREACHABLE.ok("run", "--help")
    assert re.search(r"runs all streams at its top level in", words(text))
    assert not re.search(r"streams at its\s*\n", text)


def test_help_explains_the_exit_codes() -> None:
    text = words(UNREACHABLE.ok("--help"))
    assert (
        "0 success, 1 failure, 2 invalid usage, 3 not found, 4 database or server unavailable, 130 interrupted." in text
    )


@pytest.mark.parametrize("arguments", [[], ["queue"], ["query"], ["db"]])
def test_group_without_command_prints_help(arguments: list[str]) -> None:
    assert "Commands" in UNREACHABLE.ok(*arguments)


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_the_package_version(arguments: list[str]) -> None:
    version = importlib.metadata.version("penstock")
    assert UNREACHABLE.ok(*arguments) == f"penstock {version}\n"
    assert json.loads(UNREACHABLE.ok(*arguments, "--json")) == {"version": version}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grup"], "Did you mean 'group'?"),
        (["queue", "create"], "Missing argument 'QUEUE'"),
        (["queue", "list", "--nonsense"], "No such option"),
        (["queue", "list", "--quiet", "--verbose"], "exclude each other"),
        (["--quiet", "queue", "list", "--verbose"], "exclude each other"),
        (["queue", "list", "--database-url", "x", "--data-dir", "y"], "two databases"),
        (["demo", "log", "--database-url", "postgresql://db/mine"], "a database of its own"),
        (["demo", "--data-dir", "mine"], "a database of its own"),
        (["demo", "nothing"], "no demo of 'nothing'"),
    ],
)
def test_usage_error_prints_one_line_and_exits_with_2(arguments: list[str], message: str) -> None:
    code, line = UNREACHABLE.error(*arguments)
    assert code == 2
    assert message in line


def test_shared_options_are_accepted_before_and_after_the_command(cli: CommandLine) -> None:
    url = str(cli.database_url)
    for arguments in (["--database-url", url, "--json", "queue", "list"], ["queue", "list", "--json"]):
        if arguments[0] == "queue":
            arguments += ["--database-url", url]
        assert json.loads(UNREACHABLE.ok(*arguments)) == []


def test_option_after_the_command_takes_precedence(cli: CommandLine) -> None:
    first = ("--database-url", "postgresql://localhost:1/nowhere")
    assert UNREACHABLE.ok(*first, "queue", "list", "--database-url", str(cli.database_url), "--json") == "[]\n"


def test_verbose_prints_the_cause_of_an_error() -> None:
    result = UNREACHABLE("queue", "list", "--verbose")
    assert result.exit_code == 4
    assert "caused by OperationalError" in result.stderr
    assert "Traceback" not in result.stderr


def test_quiet_prints_results_and_errors_only(cli: CommandLine) -> None:
    assert cli.ok("queue", "create", "orders", "--quiet") == ""
    assert cli.ok("--quiet", "queue", "push", "orders", "1") == ""
    assert cli.ok("queue", "tail", "orders", "--quiet") != ""
    assert cli.error("queue", "show", "nowhere", "--quiet")[0] == 3


@pytest.mark.slow
def test_queue_names_are_completed(cli: CommandLine) -> None:
    for name in ("orders", "others", "clicks"):
        cli.ok("queue", "create", name)
    completing = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock queue show o", "COMP_CWORD": "3"}
    cli.environment |= completing
    with cli.start() as process:
        assert process.communicate(timeout=30)[0].split() == ["orders", "others"]
    cli.environment["PENSTOCK_DATABASE_URL"] = "postgresql://localhost:1/nowhere"
    with cli.start() as process:
        output, errors = process.communicate(timeout=30)
        assert (output.strip(), errors) == ("", "")


def test_completion_can_be_installed() -> None:
    text = words(UNREACHABLE.ok("--help"))
    assert "--install-completion" in text
    assert "--show-completion" in text


def test_help_does_not_import_heavy_modules() -> None:
    # Without the __init__ of the package, which imports more.
    script = """
import sys, types, importlib.util
spec = importlib.util.find_spec("penstock")
package = types.ModuleType("penstock")
package.__path__ = list(spec.submodule_search_locations)
sys.modules["penstock"] = package
import penstock.cli.app
heavy = {"psycopg", "psycopg_pool", "msgspec", "zstandard", "asyncio", "psutil", "rich.console"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "orders", "--rate", "-1"], "error: --rate must be more than 0"),
        (["queue", "list", "--server", "host:6632"], "error: --server is not the address of a server"),
        (["queue", "list", "--database-url", "mysql://db"], "error: --database-url is not a PostgreSQL connection"),
        (["queue", "list", "--database-url", "postgresql://localhost:1/x"], "and that --database-url is right"),
    ],
)
def test_error_names_the_option_that_was_used(arguments: list[str], message: str) -> None:
    assert message in UNREACHABLE.error(*arguments)[1]


@pytest.mark.parametrize("command", [("rule", "delete"), ("source", "forget")], ids=" ".join)
def test_deleting_nothing_is_reported_before_the_question(cli: CommandLine, command: tuple[str, ...]) -> None:
    code, line = cli.error(*command, "nothing", input="")
    assert code == 3
    assert f"error: there is no {command[0]} 'nothing'" in line
