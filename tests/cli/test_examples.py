from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import FOREIGN

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_checks_itself(example: Path, database_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment["PENSTOCK_DATABASE_URL"] = database_url
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "quickstart",
        "two_groups_and_replay",
        "dead_letters",
        "transaction",
        "sync_client",
    }
