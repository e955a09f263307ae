from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import Arrange, CommandLine


@pytest.fixture(autouse=True)
def orders(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")


def test_arguments_are_events(cli: CommandLine) -> None:
    pushed = cli.json("queue", "push", "orders", '{"n": 1}', '"text"', "null", "--key", "a")
    assert (pushed["accepted"], pushed["duplicates"]) == (3, 0)
    assert [(event["partition"], event["offset"]) for event in pushed["events"]] == [("a", 0), ("a", 1), ("a", 2)]
    assert [event["data"] for event in cli.json_lines("queue", "tail", "orders")] == [{"n": 1}, "text", None]


def test_numbers_keep_their_digits(cli: CommandLine) -> None:
    exact = "0.1234567890123456789012345"
    cli.ok("queue", "push", "orders", f'{{"n": {exact}}}')
    cli.ok("queue", "push", "orders", f'{{"n": {exact}}}', "--id", "x")
    assert cli.ok("queue", "tail", "orders").count(exact) == 2


def test_push_with_a_known_id_is_a_duplicate(cli: CommandLine) -> None:
    assert cli.json("queue", "push", "orders", "1", "--id", "x")["events"][0]["status"] == "queued"
    assert cli.json("queue", "push", "orders", "1", "--id", "x")["events"][0]["status"] == "duplicate"


def test_keys_ids_and_times_come_from_fields(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "orders.ndjson"
    rows = [{"tenant": f"t{n % 3}", "order": f"o{n}", "at": f"2026-01-01T00:00:{n:02}Z"} for n in range(30)]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    fields = ("--key-field", "tenant", "--id-field", "order", "--time-field", "at")
    command = ("queue", "push", "orders", "--file", str(file), *fields)
    assert cli.json(*command) == {"queue": "orders", "accepted": 30, "duplicates": 0}
    assert cli.json(*command) == {"queue": "orders", "accepted": 0, "duplicates": 30}
    events = cli.json_lines("queue", "tail", "orders", "-n", "100")
    assert {(e["key"], e["id"], e["time"]) for e in events} == {(r["tenant"], r["order"], r["at"]) for r in rows}


@pytest.mark.parametrize("arguments", [[], ["--file", "-"]])
def test_push_from_a_pipe(cli: CommandLine, arguments: list[str]) -> None:
    pushed = cli.json("queue", "push", "orders", *arguments, input='{"n": 1}\n\n  {"n": 2}  \r\n{"n": 3}')
    assert pushed["accepted"] == 3


def test_lines_of_an_open_pipe_are_pushed_immediately(cli: CommandLine) -> None:
    reading, writing = os.pipe()
    with (
        cli.start("queue", "push", "orders", "--file", "-", stdin=reading) as process,
        os.fdopen(writing, "wb") as pipe,
    ):
        os.close(reading)
        pipe.write(b'{"n": 1}\n{"n":')
        pipe.flush()
        while not cli.json_lines("queue", "tail", "orders"):
            assert process.poll() is None
        pipe.write(b" 2}\n")
        pipe.close()
        assert process.wait(30) == 0
    assert [event["data"]["n"] for event in cli.json_lines("queue", "tail", "orders")] == [1, 2]


def test_invalid_line_is_reported_with_the_number_of_pushed_events(cli: CommandLine) -> None:
    code, line = cli.error("queue", "push", "orders", input='{"n": 1}\n\n{"n": \n')
    assert code == 2
    assert line.startswith("error: line 3: data: ")
    assert "nothing was pushed" in line
    many = "\n".join(map(str, range(6_000)))
    code, line = cli.error("queue", "push", "orders", input=f"{many}\nbroken\n")
    assert "line 6001" in line
    assert "5,000 events before it were pushed" in line
    assert cli.json("queue", "show", "orders")["size"]["events"] == 5_000


@pytest.mark.parametrize("waiting", [[], ["--wait", "0.3"]])
def test_push_to_a_full_queue_fails(cli: CommandLine, arrange: Arrange, waiting: list[str]) -> None:
    cli.ok("queue", "configure", "orders", "--max-depth-events", "2")
    arrange(lambda log: log.subscribe("orders", "slow"))
    cli.ok("queue", "push", "orders", "1", "2")
    code, line = cli.error("queue", "push", "orders", *waiting, input="3\n")
    assert code == 1
    assert "is full" in line
    assert "nothing was pushed" in line


@pytest.mark.parametrize(
    "command",
    [
        ["queue", "push", "orders", "3", "--wait", "60"],
        ["simulate", "orders", "--fast", "--duration", "1"],
    ],
    ids=["push", "simulate"],
)
@pytest.mark.slow
def test_a_waiting_push_names_the_group_and_goes_on_when_it_no_longer_counts(
    cli: CommandLine, arrange: Arrange, command: list[str]
) -> None:
    cli.ok("queue", "configure", "orders", "--max-depth-events", "2")
    arrange(lambda log: log.subscribe("orders", "slow"))
    cli.ok("queue", "push", "orders", "1", "2")
    with cli.start(*command) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("warning: waiting")
        assert "group 'slow' is 2 events behind" in line
        shown = cli("queue", "show", "orders")
        assert "pushes wait for group 'slow'" in shown.stderr
        assert "`penstock group configure orders slow --no-count`" in shown.stderr
        cli.ok("group", "configure", "orders", "slow", "--no-count")
        assert process.wait(60) == 0
    assert "pushes wait" not in cli("queue", "show", "orders").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hello"], "is not JSON"),
        (["NaN"], "is not JSON"),
        (["1", "2", "--id", "x"], "--id is the id of one event"),
        (["1", "--file", "-"], "not both"),
        (["--file", "/nowhere/to/be/found"], "cannot be read"),
        (["1", "--key", ""], "must not be empty"),
    ],
)
def test_invalid_arguments_are_rejected(cli: CommandLine, arguments: list[str], message: str) -> None:
    code, line = cli.error("queue", "push", "orders", *arguments)
    assert code == 2
    assert message in line
    assert cli.json("queue", "show", "orders")["size"]["events"] == 0


@pytest.mark.parametrize("arguments", [[], ["--file", "-"]])
def test_a_terminal_is_no_file_of_events(cli: CommandLine, arguments: list[str]) -> None:
    terminal, user = pty.openpty()
    try:
        command = [sys.executable, "-m", "penstock", "queue", "push", "orders", *arguments]
        environment = {**os.environ, "PENSTOCK_DATABASE_URL": cli.database_url or ""}
        failed = subprocess.run(command, stdin=user, env=environment, capture_output=True, text=True, timeout=60)
    finally:
        os.close(terminal)
        os.close(user)
    assert failed.returncode == 2
    assert "or through a pipe" in failed.stderr
