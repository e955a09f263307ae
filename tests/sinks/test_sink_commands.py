"""``penstock sink`` as a person uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.conditions import eventually


@pytest.fixture
def cli(sinks_url: str) -> CommandLine:
    return CommandLine(sinks_url)


def some(cli: CommandLine, queue: str) -> str:
    cli.ok("queue", "create", queue)
    cli.ok("queue", "push", queue, '{"n": 1}', '{"n": 2}', "--key", "boiler")
    return queue


def test_events_go_to_the_screen_and_to_a_file(cli: CommandLine, tmp_path: Path) -> None:
    queue, path = some(cli, "cli-run"), tmp_path / "out.jsonl"

    shown = cli.ok("sink", "run", queue, "--to", "console", "--to", f"file:{path}", "--idle-seconds", "0.2", "-q")

    assert [line.split("] ")[1] for line in shown.splitlines()] == ["boiler: n=1", "boiler: n=2"]
    assert path.read_text() == '{"n":1}\n{"n":2}\n'


def test_counters_are_printed_as_json(cli: CommandLine, tmp_path: Path) -> None:
    queue = some(cli, "cli-file")
    told = cli.json(
        "sink", "file", queue, str(tmp_path / "x.jsonl"), "--group", "archive", "--envelope", "--idle-seconds", "0.2"
    )
    assert (told["group"], told["written"], told["dead_letters"]) == ("archive", 2, 0)
    assert json.loads((tmp_path / "x.jsonl").read_text().splitlines()[0])["key"] == "boiler"


def test_events_go_into_a_table(cli: CommandLine, sinks_url: str) -> None:
    import psycopg

    queue = some(cli, "cli-table")
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute("CREATE TABLE latest (sensor text PRIMARY KEY, n int)")
        cli.ok(
            "sink",
            "table",
            queue,
            "latest",
            "--column",
            "sensor=$key",
            "--column",
            "n=n",
            "--idle-seconds",
            "0.2",
            "-q",
        )
        assert conn.execute("SELECT * FROM latest").fetchall() == [("boiler", 2)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "cli-no", "--to", "console"], "there is no queue"),
        (["run", "cli-wrong", "--to", "paper:a4"], "is not a sink"),
        (["webhook", "cli-wrong", "http://127.0.0.1:9/x", "--idle-seconds", "0"], "not a public address"),
        (["webhook", "cli-wrong", "https://example.com", "--header", "nonsense"], "has no colon"),
        (["run", "cli-wrong", "--to", "console", "--from", "now"], "'now' is not one of 'beginning', 'end'"),
    ],
)
def test_errors_are_printed_in_one_line(cli: CommandLine, arguments: list[str], says: str) -> None:
    if arguments[1] == "cli-wrong":
        cli("queue", "create", "cli-wrong")
    assert says in cli.error("-q", "sink", *arguments)[1].replace("\n", " ")


def test_the_error_of_a_single_sink_is_printed_once(cli: CommandLine) -> None:
    cli("queue", "create", "cli-once")
    result = cli("sink", "webhook", "cli-once", "http://127.0.0.1:9/x", "--idle-seconds", "0")
    assert result.output.count("not a public address") == 1


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_without_losing_events(cli: CommandLine, sinks_url: str) -> None:
    queue = some(cli, "cli-pipe")
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "sink", "run", queue, "--to", "console", "-q"],
        env={**os.environ, "PENSTOCK_DATABASE_URL": sinks_url},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 0
    shown = cli.ok("sink", "run", queue, "--to", "console", "--idle-seconds", "0.2", "-q")
    assert len(shown.splitlines()) == 2


@pytest.mark.slow
def test_it_ends_cleanly_on_a_signal(cli: CommandLine, sinks_url: str, tmp_path: Path) -> None:
    queue, path = some(cli, "cli-signal"), tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "sink", "file", queue, str(path), "--json"],
        env={**os.environ, "PENSTOCK_DATABASE_URL": sinks_url},
        stdout=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: process.poll() is not None or (path.exists() and path.stat().st_size))
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=20)
    assert json.loads(said)["written"] == 2
    assert process.returncode == 143
