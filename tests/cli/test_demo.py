from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine

pytestmark = pytest.mark.slow

FAST = ("--events", "300", "--speed", "50")


@pytest.fixture
def temporary(data_dir: Path) -> CommandLine:
    """A command line whose temporary files are in a directory of the test's own."""
    cli = CommandLine(None)
    cli.environment["TMPDIR"] = str(data_dir)
    return cli


def test_the_demo_adds_up_and_leaves_nothing_behind(temporary: CommandLine, data_dir: Path) -> None:
    with temporary.start("demo", *FAST) as process:
        text, errors = process.communicate(timeout=100)
    assert process.returncode == 0, text + errors
    assert "to the penny" in text
    assert re.search(r"Dead letters of billing.*ValueError", text, re.DOTALL)
    assert "penstock queue create mine" in text
    assert "\x1b" not in text
    assert errors == ""
    assert list(data_dir.iterdir()) == []


def test_what_the_demo_made_can_be_kept(temporary: CommandLine, data_dir: Path) -> None:
    with temporary.start("demo", *FAST, "--keep", "--json") as process:
        text, _ = process.communicate(timeout=100)
    outcome = json.loads(text)
    assert outcome["succeeded"] is True
    assert all(check["holds"] for check in outcome["checks"])
    assert Path(outcome["data_dir"]).parent == data_dir
    (queue,) = temporary.json("queue", "list", "--data-dir", outcome["data_dir"])
    assert (queue["name"], queue["events"]) == ("orders", 303)


def test_an_interrupted_demo_cleans_up(temporary: CommandLine, data_dir: Path) -> None:
    with temporary.start("demo", "--events", "300", "--speed", "0.1") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "A queue" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(data_dir.iterdir()) == []
