"""A file of statements whose driver is killed at any moment gives what DuckDB gives, each row once."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.engine.crash.drivers import Driver
from tests.engine.crash.statements import FILE, Shop


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_statements_whose_driver_is_killed_around_its_commits_give_what_duckdb_gives(
    database_url: str, tmp_path: Path
) -> None:
    chance = random.Random(8)
    kinds = ["killed after commit", "killed before commit"]
    # The commits of all three queries are counted together.
    faults: list[list[Any]] = [[kinds[i % 2], chance.randint(1, 9)] for i in range(6)]
    file = tmp_path / "shop.sql"
    file.write_text(FILE)
    with Shop(database_url, seed=8) as shop:
        shop.push(100)
        for i, fault in enumerate(faults):
            with Driver(database_url, tmp_path / f"{i}.log", fault=fault, file=str(file)) as driver:
                while driver.process.poll() is None:
                    shop.push(10)
                    with suppress(subprocess.TimeoutExpired):
                        driver.process.wait(1)
                driver.wait_until_dead()
        with Driver(database_url, tmp_path / "last.log", file=str(file)):
            shop.check()
