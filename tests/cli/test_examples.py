from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import DATABASE_VARIABLES

pytestmark = pytest.mark.slow

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.py"))
#: Examples that start Spark.
ON_SPARK = ("aggregations", "pipeline", "rate_limiter", "rate_limiter_quickstart", "sensors", "views")
#: Options for a short run on a busy machine.
OPTIONS = {
    "aggregations": ["--seconds", "6"],
    "rate_limiter": ["--busy"],
    "sensors": ["--calm", "4", "--storm", "4"],
}


def examples() -> Iterator[Any]:
    for path in EXAMPLES:
        marks = [pytest.mark.slow, pytest.mark.timeout(400)] if path.stem in ON_SPARK else []
        if path.stem in ("sensors", "rate_limiter_quickstart"):
            marks.append(pytest.mark.long)  # takes long, and covers nothing that the others do not
        yield pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("example", list(examples()))
def test_example_runs_and_checks_itself(example: Path, database_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in DATABASE_VARIABLES}
    environment["PENSTOCK_DATABASE_URL"] = database_url
    command = [sys.executable, "-W", "error", str(example), *OPTIONS.get(example.stem, [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # Spark logs warnings to standard error if the machine is busy.
    assert example.stem in ON_SPARK or done.stderr == ""
    assert done.stdout


def test_examples_exist() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "quickstart",
        "two_groups_and_replay",
        "dead_letters",
        "transaction",
        "sync_client",
        *ON_SPARK,
    }
